// The API without a socket: the real pipeline, scripts and Redis, a new workspace, and a clock that the test sets.
// Tests use the API through the function `call`.

import { pino } from 'pino';
import type { Static } from 'typebox';
import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest';
import { parseGrant } from '../../src/domain/grants.ts';
import { createId, createRootKeyString, digestOf } from '../../src/domain/keyString.ts';
import type { Handler, Request, Response } from '../../src/http/message.ts';
import { createPipeline } from '../../src/http/pipeline.ts';
import { type OperationName, type Operations, operations } from '../../src/operations/index.ts';
import { cliActor } from '../../src/records/rootKeys.ts';
import { openStore, type Store, type StoreOptions } from '../../src/store.ts';
import { testRedisUrl } from './redis.ts';

// Mapped types, which the compiler computes once. Finding an operation by its name for each call took half of its time.
type Named = { [Operation in Operations[number] as Operation['name']]: Operation };
type Inputs = { [Name in OperationName]: Static<Named[Name]['input']> };
type Outputs = { [Name in OperationName]: Static<Named[Name]['output']> };
export type InputOf<Name extends OperationName> = Inputs[Name];
export type OutputOf<Name extends OperationName> = Outputs[Name];

export interface ErrorBody {
  title: string;
  detail: string;
  status: number;
  type: string;
  errors: { location: string; message: string; fix?: string }[];
}

export interface Called<Data> {
  status: number;
  /** The end of the error's `type`; undefined on success. */
  code: string | undefined;
  data: Data;
  error: ErrorBody;
  pagination: {
    hasMore: boolean;
    cursor?: string;
    since?: number;
    counted?: { time: number; refused?: number; listed: number }[];
  };
  requestId: string;
}

export const hourMs = 3_600_000;
export const dayMs = 24 * hourMs;

/** 2026-01-15T12:00:00Z: mid-hour, mid-month, mid-year-of-no-leap-day. */
const startMs = Date.UTC(2026, 0, 15, 12);

export const testSettings = {
  commandTimeoutMs: 5000,
  keyRetentionMs: 30 * dayMs,
  usageRetentionMs: 90 * dayMs,
  usageHourlyDays: 7,
  auditEventsMax: 100_000,
  tagsMax: 100,
  tagBytesMax: 1_000_000,
  identifiersMax: 1000,
  recordsMax: 0,
  refusalHours: 24,
  refusalBytesMax: 2_097_152,
  inFlightMax: 4096,
  durable: false,
  leaseMs: 0,
  leaseCredits: false,
};

/** The stores of a test file. */
const stores = new Set<Store>();

/** Ends and settles all leases of a test file. */
export async function endAllLeases() {
  for (const { decide } of stores) await decide.leasing.leases.recall();
}

/**
 * TEST_LEASE_MS=100 runs the tests of the harness with leases, from the second request on. A test of leases, and one of
 * what Redis decides itself, gives the harness a `leaseMs` of its own.
 */
const leaseMs = Number(process.env.TEST_LEASE_MS ?? 0);

export type RequestParts = Partial<Omit<Request, 'body'>> & { body?: string | Buffer };

/** A request as the server passes it to the pipeline: a POST of `{}` with this root key, except for the given parts. */
export const requestTo = (path: string, rootKey: string, parts: RequestParts = {}): Request => ({
  method: 'POST',
  path,
  hasQuery: false,
  authorization: `Bearer ${rootKey}`,
  contentType: 'application/json',
  accept: '',
  requestId: createId('req', 0),
  ...parts,
  body: Buffer.from(parts.body ?? '{}'),
});

/** The body of a response. A stream is ended at once, and its data is empty. */
export function jsonOf({ contentType, body, stream }: Response, requestId: string) {
  stream?.stop();
  if (stream) return { meta: { requestId }, data: {} };
  return contentType.includes('json') ? JSON.parse(body) : undefined;
}

/**
 * Call it at the top level of a test file. Its result can be used inside tests. `url` is called before the first test.
 */
export function harness(url: () => string = testRedisUrl, settings: Partial<StoreOptions> = {}) {
  const clock = {
    now: startMs,
    advance(ms: number) {
      clock.now += ms;
    },
  };
  const state = {} as { store: Store; answer: Handler; workspaceId: string; rootKey: string };
  const causes = new Map<string, string>();
  printCauses(causes);
  const termMs = settings.leaseMs === undefined ? leaseMs : 0;
  const leaseSettings = { leaseMs: termMs, leaseLongMs: 10 * termMs, leaseCredits: termMs > 0, leaseAfter: 2 };

  beforeAll(async () => {
    state.store = await openStore({
      ...testSettings,
      ...leaseSettings,
      url: url(),
      nowMs: () => clock.now,
      // Advances only with `clock`, as Redis's clock does. Otherwise a decision would be counted before the time of its
      // test.
      leaseNowMs: () => clock.now,
      ...settings,
    });
    stores.add(state.store);
    state.answer = createPipeline(operations, {
      store: state.store,
      log: logOfCauses(causes),
      metaBytesMax: 10_240,
    });
    Object.assign(state, await createWorkspace());
  });
  afterAll(() => {
    stores.delete(state.store);
    return state.store?.close();
  }); // Undefined when it could not be opened.

  async function createWorkspace() {
    const { workspaceId } = await state.store.workspaces.create('test');
    return { workspaceId, rootKey: await createRootKey(['*'], workspaceId) };
  }

  /** Creates a root key with these grants in the store, without the API. Returns its string. */
  async function createRootKey(
    permissions: string[],
    workspaceId = state.workspaceId,
    expires?: number,
  ): Promise<string> {
    const { key, start } = createRootKeyString(workspaceId);
    const grants = permissions.map((grant) => {
      const parsed = parseGrant(grant);
      if (!parsed) throw new Error(`no such grant: ${grant}`);
      return parsed;
    });
    const made = await state.store.rootKeys.create(
      workspaceId,
      { digest: digestOf(key), start, permissions: grants },
      cliActor,
    );
    if ('refused' in made) throw new Error(`createRootKey: ${made.refused}`);
    // By a change, because none is created that has expired.
    if (expires !== undefined) await state.store.rootKeys.update(workspaceId, made.rootKeyId, { expires }, cliActor);
    return key;
  }

  // With leases (TEST_LEASE_MS): they end when the clock is set forward, and other requests see what they left once
  // they are settled. Here both happen before the next request, not a quarter of a term later.
  let leasedBy = '';
  let ended: Promise<void> | undefined;
  function endLeases(path: string, { body, authorization }: RequestParts): Promise<void> | undefined {
    const request = `${clock.now} ${path} ${authorization} ${body}`;
    if (termMs === 0 || request === leasedBy) return ended;
    leasedBy = request;
    ended = endAllLeases();
    return ended;
  }

  /** Sends a request. Omitted parts have defaults. */
  async function send(path: string, parts: RequestParts = {}) {
    await endLeases(path, parts);
    const requestId = createId('req', clock.now);
    const response = await state.answer(requestTo(path, state.rootKey, { requestId, ...parts }));
    return { ...response, json: jsonOf(response, requestId) };
  }

  /**
   * Calls an operation with the workspace's first root key, or with `as`: a root key string, or the grants of a new
   * one.
   */
  async function call<Name extends OperationName>(
    name: Name,
    input: InputOf<Name>,
    as?: string | string[],
  ): Promise<Called<OutputOf<Name>>> {
    const rootKey = Array.isArray(as) ? await createRootKey(as) : (as ?? state.rootKey);
    const { status, json } = await send(`/v2/${name}`, {
      body: JSON.stringify(input),
      authorization: `Bearer ${rootKey}`,
    });
    const code = json.error?.type.split('/').at(-1);
    return {
      status,
      code,
      data: json.data,
      error: json.error,
      pagination: json.pagination,
      requestId: json.meta.requestId,
    };
  }

  /** The data of a call that must succeed. */
  async function ok<Name extends OperationName>(
    name: Name,
    input: InputOf<Name>,
    as?: string,
  ): Promise<OutputOf<Name>> {
    const { status, error, data, requestId } = await call(name, input, as);
    if (status === 200) return data;
    const cause = causes.get(requestId) ?? error.detail;
    throw new Error(`${name} ${JSON.stringify(input).slice(0, 1000)}: ${status} ${cause}`);
  }

  /** An empty workspace. `of` calls an operation in it, which must succeed, and returns the data. */
  async function openWorkspace() {
    const workspace = await createWorkspace();
    const of = <Name extends OperationName>(name: Name, input: InputOf<Name>) => ok(name, input, workspace.rootKey);
    return { ...workspace, of };
  }

  /** A key, in an API of its own unless one is named. */
  async function createKey(input: Omit<InputOf<'keys.createKey'>, 'apiId'> & { apiId?: string } = {}) {
    const apiId = input.apiId ?? (await ok('apis.createApi', { name: 'test' })).apiId;
    return { apiId, ...(await createExpired(ok, { ...input, apiId }, clock.now)) };
  }

  return {
    clock,
    /** The URL of its Redis. */
    redisUrl: url,
    /** As the server calls the pipeline. */
    respond: (request: Request) => state.answer(request),
    call,
    ok,
    send,
    createKey,
    createRootKey,
    createWorkspace,
    openWorkspace,
    get store() {
      return state.store;
    },
    get workspaceId() {
      return state.workspaceId;
    },
    get rootKey() {
      return state.rootKey;
    },
  };
}

/** Creates a key. keys.createKey accepts no expiry in the past, so such a key gets it by a change. */
export async function createExpired(
  ok: <Name extends 'keys.createKey' | 'keys.updateKey'>(name: Name, input: InputOf<Name>) => Promise<OutputOf<Name>>,
  { expires, ...input }: InputOf<'keys.createKey'>,
  nowMs: number,
) {
  if (expires === undefined || expires > nowMs) return ok('keys.createKey', { ...input, ...(expires && { expires }) });
  const created = await ok('keys.createKey', input);
  await ok('keys.updateKey', { keyId: created.keyId, expires });
  return created;
}

/** Verifies a key on these servers, which cache its snapshot from the second use on. */
export async function cacheOn(servers: readonly Pick<ReturnType<typeof harness>, 'call'>[], key: string, as: string) {
  for (const { call } of servers) {
    for (let times = 0; times < 2; times++) await call('keys.verifyKey', { key }, as);
  }
}

/** A log that stores the causes of responses with 500, by request id. */
export const logOfCauses = (causes: Map<string, string>) =>
  pino(
    { level: 'error' },
    {
      write(line) {
        const { requestId, cause } = JSON.parse(line) as { requestId?: string; cause?: string };
        if (cause !== undefined) causes.set(requestId ?? '', cause);
      },
    },
  );

/** Adds the causes of a failed test's requests to its message. */
export function printCauses(causes: Map<string, string>): void {
  beforeEach(() => causes.clear());
  afterEach(({ task }) => {
    for (const error of causes.size > 0 ? (task.result?.errors ?? []) : [])
      error.message += `\n\nThe log of the server:\n${[...causes.values()].join('\n')}`;
  });
}
