// The tests of an SDK of Unkey in any language: every method of methods.ts works and throws its own typed errors, and
// only the address of the server is changed.

import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, type TestContext, test } from 'vitest';
import { createRootKeyString } from '../../src/domain/keyString.ts';
import { createPipeline } from '../../src/http/pipeline.ts';
import { listen, type Server } from '../../src/http/server.ts';
import { operations } from '../../src/operations/index.ts';
import { harness } from '../support/harness.ts';
import {
  type Call,
  foreignMethods,
  type Line,
  lists,
  makeThings,
  methods,
  more,
  type NewerLine,
  newerMethods,
  type Ours,
  type Things,
} from './methods.ts';

/** One SDK, whose clients send to one server. */
export interface Sdk {
  /**
   * Calls a method. Returns the bodies of its responses: of a list, if `all`, one per page. Rejects with an SdkError.
   */
  call(rootKey: string, method: string, input: unknown, all?: boolean): Promise<ResponseBody[]>;
  close(): unknown;
}

export interface ResponseBody {
  meta: { requestId: string };
  data?: unknown;
}

/** The error that an SDK threw. */
export class SdkError extends Error {
  /** The class of the SDK's error. All SDKs have the same classes, as they are generated from one document. */
  readonly type: string;
  /** The response as the SDK decoded it; its text if the error has no type of its own. */
  readonly body: unknown;
  readonly status: number | undefined;

  constructor(type: string, body: unknown, status: number | undefined) {
    super(`${type} (${status}): ${JSON.stringify(body)}`);
    this.type = type;
    this.body = body;
    this.status = status;
  }
}

const typed = {
  400: 'BadRequestErrorResponse',
  401: 'UnauthorizedErrorResponse',
  403: 'ForbiddenErrorResponse',
  404: 'NotFoundErrorResponse',
  409: 'ConflictErrorResponse',
} as const;

interface Options {
  open(serverUrl: string): Promise<Sdk>;
  /** Tests whose input this SDK cannot send, such as `keys.updateKey 200`. `true`: it may be any of them. */
  unsendable?: readonly string[] | true;
  /** It has the methods of `newerMethods`. */
  isNewer?: true;
}

export function sdkTests({ open, unsendable = [], isNewer }: Options) {
  const tollgate = harness();
  let server: Server;
  let sdk: Sdk;
  /** The body of the last request that the server received. */
  let received: string | undefined;
  let shared: Things & { rootKeyId: string };
  let weak: string;
  let unknown: string;

  beforeAll(async () => {
    const log = pino({ level: 'silent' });
    const handler = createPipeline(operations, { store: tollgate.store, log, metaBytesMax: 10_240 });
    let requests = 0;
    server = await listen({
      ...{ host: '127.0.0.1', port: 0, bodyBytesMax: 1_000_000 },
      newRequestId: () => `req_${++requests}`,
      handler(request) {
        received = request.body.toString();
        return handler(request);
      },
    });
    sdk = await open(`http://127.0.0.1:${server.port}`);
    shared = await make();
    weak = await tollgate.createRootKey(['audit.*.read_audit']);
    unknown = createRootKeyString(tollgate.workspaceId).key;
  });
  afterAll(async () => {
    await sdk?.close();
    await server.close();
  });

  const call: Call = async (method, input) => {
    const [{ data }] = (await sdk.call(tollgate.rootKey, method, input)) as [ResponseBody];
    return data;
  };

  async function make() {
    const things = await makeThings(call);
    const rootKey =
      isNewer && (await call('rootKeys.createKey' as never, { permissions: ['api.*.read_api'] } as never));
    return { ...things, rootKeyId: rootKey ? (rootKey.keyId as string) : '' };
  }

  /** Settles like the call, but skips the test if the SDK cannot send this input. */
  async function sending<T>(context: TestContext, name: string, input: unknown, result: Promise<T>): Promise<T> {
    received = undefined;
    const [{ status }] = await Promise.allSettled([result]);
    // An SDK may send no body in place of an empty object.
    const isSent = received !== undefined && holds(JSON.parse(received || '{}'), JSON.parse(JSON.stringify(input)));
    if (isSent) expect(unsendable, `${name} is sent as it is`).not.toContain(name);
    else if (unsendable === true || unsendable.includes(name)) context.skip(`this SDK cannot send it: ${name}`);
    else expect.unreachable(`${name} is not sent as it is (${status}): ${received}`);
    return result;
  }

  const changed = (input: unknown, change: object) =>
    Array.isArray(input) ? change : { ...(input as object), ...change };

  async function refusal(context: TestContext, rootKey: string, method: string, input: unknown): Promise<SdkError> {
    const error = await sdk.call(rootKey, method, input).then(
      (bodies) => expect.unreachable(`${method} was not refused: ${JSON.stringify(bodies)}`),
      (reason: unknown) => reason,
    );
    expect(error, String(error)).toBeInstanceOf(SdkError);
    if ((error as SdkError).type === 'NoSuchMethod') context.skip(`this SDK has no ${method}`);
    return error as SdkError;
  }

  const refused = (context: TestContext, method: string, status: number, input: unknown) =>
    sending(context, `${method} ${status}`, input, refusal(context, tollgate.rootKey, method, input));

  const lines = [...Object.entries(methods), ...Object.entries(isNewer ? newerMethods : {})];
  describe.each(lines as [Ours, Line<Ours> & Pick<NewerLine, 'forbiddenIsUntyped'>][])('%s', (method, line) => {
    const { answers, wrong, absent, taken, absentIsUntyped, forbiddenIsUntyped } = line;

    if (answers)
      test('works', async (context) => {
        const things = await make();
        const input = line.input(things);
        const result = sdk.call(tollgate.rootKey, method, input);
        const [{ meta, data = {} }] = (await sending(context, `${method} 200`, input, result)) as [ResponseBody];
        expect(meta.requestId).toMatch(/^req_/);
        expect(data).toEqual(answers(things));
      });

    test.skipIf(!wrong)('400', async (context) => {
      const error = await refused(context, method, 400, changed(line.input(shared), wrong!));
      expectTyped(error, 400);
      expect((error.body as { error: object }).error).toMatchObject({
        errors: [{ location: expect.stringMatching(/^body/), message: expect.any(String) }],
      });
    });

    test('401', async (context) => {
      // A method without `answers` refuses all input, before the root key is looked up. Only a malformed header gets
      // 401 there.
      for (const rootKey of answers ? ['nonsense', unknown] : ['no root key']) {
        expectTyped(await refusal(context, rootKey, method, line.input(shared)), 401);
      }
    });

    if (answers)
      test('403', async (context) => {
        const error = await refusal(context, weak, method, line.input(shared));
        if (forbiddenIsUntyped) return expect(error).toMatchObject({ type: 'APIError', status: 403 });
        // Without the right to read keys the caller is not informed that this one exists.
        expectTyped(error, method === 'keys.whoami' ? 404 : 403);
      });

    if (absent)
      test('404', async (context) => {
        const error = await refused(context, method, 404, changed(line.input(shared), absent));
        if (!absentIsUntyped) return expectTyped(error, 404);
        expect(error).toMatchObject({ type: 'APIError', status: 404 });
        expect(JSON.parse(error.body as string)).toMatchObject({
          error: { status: 404, type: '/errors/role_not_found' },
        });
      });

    if (taken)
      test('409', async (context) => {
        expectTyped(await refused(context, method, 409, taken(shared)), 409);
      });
  });

  describe('a status without a type of its own is the general error', () => {
    test('412 of keys.verifyKey', async (context) => {
      const input = { key: shared.key, ratelimits: [{ name: 'nobodys', cost: 1 }] };
      expect(await refusal(context, tollgate.rootKey, 'keys.verifyKey', input)).toMatchObject({
        type: 'APIError',
        status: 412,
      });
    });

    test.for(foreignMethods)('404 of %s, which is not served', async (method, context) => {
      const error = await refusal(context, tollgate.rootKey, method, { query: 'SELECT 1' });
      expect(error).toMatchObject({ type: 'APIError', status: 404 });
    });
  });

  test.each(lists)('%s is read page by page to its end', async (method, add, input) => {
    const things = await makeThings(call);
    for (const number of more) await add(call, things, `${things.name}.more.${number}`);
    const pages = await sdk.call(tollgate.rootKey, method, { ...input(things), limit: 2 }, true);
    const items = pages.map(({ data }) => data as unknown[]);
    expect(items.map(({ length }) => length)).toEqual([2, 2, 1]);
    expect(new Set(items.flat().map((item) => JSON.stringify(item))).size).toBe(5);
  });
}

function expectTyped({ type, status, body }: SdkError, expected: keyof typeof typed) {
  expect({ type, status }, JSON.stringify(body)).toEqual({ type: typed[expected], status: expected });
  expect(body).toMatchObject({
    meta: { requestId: expect.stringMatching(/^req_/) },
    error: { status: expected, title: expect.any(String), detail: expect.any(String), type: expect.any(String) },
  });
}

/** Whether a JSON value has everything of another; an SDK may add defaults. */
function holds(value: unknown, part: unknown): boolean {
  if (typeof part !== 'object' || part === null) return value === part;
  if (typeof value !== 'object' || value === null || Array.isArray(value) !== Array.isArray(part)) return false;
  return Object.entries(part).every(([name, member]) => holds((value as Record<string, unknown>)[name], member));
}
