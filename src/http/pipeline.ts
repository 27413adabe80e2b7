// The life of a request, in order. Each step passes or throws an ApiError.
//
//   route ─▶ header ─▶ media type ─▶ size ─▶ body ─▶ root key ─▶ turn ─▶ load ─▶ permission ─▶ handle ─▶ answer ─▶ log
//   404 405    401         415        413     400     401 403     503     404        403       4xx        200
//
// An operation that decides on the hot path leaves everything from `root key` on to its script.
//
// A large body takes long to read. Its root key comes first, so that only a caller that is known makes the server read it:
//
//   route ─▶ header ─▶ media type ─▶ size ─▶ root key ─▶ turn for large bodies ─▶ root key ─▶ body ─▶ as above

import type { Logger } from 'pino';
import type { PresentedRootKey } from '../domain/caller.ts';
import type { Grants, Resource } from '../domain/grants.ts';
import { memberTexts, print } from '../domain/json.ts';
import { ApiError, rootKeyRefusals } from '../errors.ts';
import { type Body, parseBody, parseLargeBody } from '../input/body.ts';
import { type CheckInput, compileInput } from '../input/validate.ts';
import { type Calls, Metrics } from '../metrics.ts';
import type { AnyOperation, Context, ManageContext, Page } from '../operation.ts';
import type { Store } from '../store/store.ts';
import { CallLog } from './callLog.ts';
import { cursorAfter, readCursor } from './cursor.ts';
import { causeOf, errorResponse, internalError } from './errorResponse.ts';
import { type Answer, isReading, type Request, type Response } from './message.ts';
import { createPages } from './pages.ts';
import { createProbes, type ProbesOptions } from './probes.ts';
import { RootKeyReader } from './rootKey.ts';
import { createTurns, oneByOne } from './turns.ts';

export interface PipelineOptions extends Partial<Omit<ProbesOptions, 'store'>> {
  store: Store;
  log: Logger;
  metaBytesMax: number;
  /** Management requests of a workspace that work at once. */
  manageAtOnce?: number;
  /** Management requests under way in all; beyond, they are refused at once. */
  inFlightMax?: number;
  /** How long a management request waits for its turn. */
  turnWaitMs?: number;
  metrics?: Metrics;
}

interface Route {
  operation: AnyOperation;
  /** The path was the operation's second one. */
  alias: boolean;
  calls: Calls;
  check: CheckInput;
}

interface Call {
  request: Request & { body: Buffer };
  route: Route;
  rootKey: PresentedRootKey;
  /** Who it is, once Redis has said so. */
  caller?: ManageContext['caller'];
}

/** Reading a body of this size takes a few milliseconds at most, and one of a megabyte 0.1 s. */
const largeBodyBytes = 32_768;
/** Large bodies of all workspaces that wait or are worked at once: what bounds their memory. */
const largeMax = 128;
/** Large bodies of callers that are not known, while Redis is asked for their root keys. */
const largeNewcomersMax = 64;
/** A workspace's requests that wait, for each that runs, where what waits is large or waits long. */
const waitingPerTurn = 16;
/** Root keys not accepted recently that Redis is asked for at once. */
const newcomersAtOnce = 64;
/** All callers that are not known share one allowance, under this name. */
const newcomer = '';

const jsonType = 'application/json';

export function createPipeline(operations: readonly AnyOperation[], options: PipelineOptions): Answer {
  const { store, log, metaBytesMax, manageAtOnce = 8, inFlightMax = 4096, turnWaitMs = 1000 } = options;
  const { metrics = new Metrics(), isStopping = () => false, scrape } = options;
  const routes = new Map<string, Route>();
  for (const operation of operations) {
    const check = compileInput(operation.input);
    const calls = metrics.callsOf(operation.name);
    routes.set(`/v2/${operation.name}`, { operation, check, calls, alias: false });
    if (operation.alias) routes.set(`/v2/${operation.alias}`, { operation, check, calls, alias: true });
  }
  // Whatever path a caller makes up is one and the same.
  const pageCalls = metrics.callsOf('page');
  const unknownCalls = metrics.callsOf('unknown');
  const probes = createProbes({ store, isStopping, scrape });
  const pages = createPages(operations);
  const rootKeys = new RootKeyReader();
  const turns = createTurns({ atOnce: manageAtOnce, max: inFlightMax, waitMs: turnWaitMs });
  // What keeps Redis or the server long waits for a turn among its like before the common one.
  const atOnce = Math.ceil(manageAtOnce / 4);
  const few = { atOnce, waitingMax: waitingPerTurn * atOnce };
  const largeTurns = createTurns({ ...few, max: largeMax, waitMs: turnWaitMs });
  // A caller that reads much is patient.
  const readingTurns = createTurns({ ...few, max: inFlightMax, waitMs: 10 * turnWaitMs });
  const newcomers = createTurns({ atOnce: newcomersAtOnce, max: inFlightMax, waitMs: turnWaitMs });
  const largeNewcomers = createTurns({ atOnce: newcomersAtOnce, max: largeNewcomersMax, waitMs: turnWaitMs });
  const readTurn = oneByOne();
  const limits = { metaBytesMax };
  const callLog = new CallLog(log);

  return async function answer(request: Request): Promise<Response> {
    const startedAt = performance.now();
    const route = routes.get(request.path);
    const page = route ? undefined : (pages(request) ?? probes.get(request.path));
    const calls = route?.calls ?? (page ? pageCalls : unknownCalls);
    metrics.begin();
    let call: Call | undefined;
    try {
      if (!route) return counted(calls, await servePage(request, page), startedAt);
      const { operation } = route;
      const rootKey = readHead(request);
      call = { request: request as Call['request'], route, rootKey };
      const { body } = call.request;
      const isLarge = body.length >= largeBodyBytes;
      if (operation.kind === 'decides' && !isLarge) {
        const { text, value } = parseBody(body);
        route.check(value, body.length);
        const data = await operation.decide(value as never, rootKey, contextOf(request, text));
        return counted(calls, succeeded(`{"meta":{"requestId":"${request.requestId}"},"data":${data}}`), startedAt);
      }
      const members = await (isLarge ? serveLarge(call) : serveSmall(call));
      if (operation.kind === 'manages') logCall('info', request, operation, 200, startedAt, call.caller);
      return counted(calls, succeeded(`{"meta":{"requestId":"${request.requestId}"},${members}}`), startedAt);
    } catch (cause) {
      const error = cause instanceof ApiError ? cause : internalError(cause);
      const response = errorResponse(error, request, {
        ...(error instanceof MethodNotAllowed && { allow: error.allow }),
        problemJson: route?.operation.problems === true,
      });
      if (route) {
        const expected = error.status < 500;
        if (!expected || route.operation.kind === 'manages') {
          logCall(expected ? 'info' : 'error', request, route.operation, error.status, startedAt, call?.caller, error);
        }
      }
      return counted(calls, response, startedAt);
    }
  };

  /** What can be refused by the head and the length of a request. Returns its root key. */
  function readHead(request: Request): PresentedRootKey {
    if (request.method !== 'POST') throw methodNotAllowed('POST');
    const rootKey = rootKeys.readHeader(request.authorization);
    if (rootKey === undefined) {
      throw new ApiError('unauthorized', 'The Authorization header must be `Bearer <root key>`.');
    }
    if (!isJson(request.contentType)) {
      throw new ApiError('unsupported_media_type', 'Content-Type must be application/json.');
    }
    if (request.body === 'too_large')
      throw new ApiError('body_too_large', 'The body is longer than this server accepts.');
    if (request.body === 'no_room')
      throw new ApiError('store_unavailable', 'The server is receiving too many large bodies; retry later.');
    if (request.hasQuery) throw new ApiError('invalid_input', 'Operations take no query parameters.', { fields: [] });
    return rootKey;
  }

  function contextOf({ requestId }: Request, text: string): Context {
    let texts: Context['text'] | undefined;
    return {
      store,
      requestId,
      limits,
      text(...path) {
        texts ??= memberTexts(text);
        return texts(...path);
      },
    };
  }

  /** A management request with a small body. Returns the members of the answer beside `meta`, as text. */
  async function serveSmall(call: Call): Promise<string> {
    const body = parseBody(call.request.body);
    call.route.check(body.value, call.request.body.length);
    const work = prepare(call, body);
    await introduce(call, newcomers);
    return work();
  }

  /** A request with a large body, read in steps between which others are served. */
  async function serveLarge(call: Call): Promise<string> {
    const { request, route, rootKey } = call;
    await introduce(call, largeNewcomers);
    return largeTurns(rootKey.workspaceId, async () => {
      await authenticate(call);
      await readTurn();
      const body = await parseLargeBody(request.body, readTurn);
      await readTurn();
      route.check(body.value, request.body.length);
      await readTurn();
      return prepare(call, body)();
    });
  }

  /** Checks what a schema cannot say, and returns what is to be done in a turn of the workspace. */
  function prepare(call: Call, { text, value }: Body): () => Promise<string> {
    const { request, rootKey, route } = call;
    const { operation } = route;
    const context = contextOf(request, text);
    if (operation.kind === 'decides') {
      return async () => `"data":${await operation.decide(value as never, rootKey, context)}`;
    }
    operation.check?.(value as never, context);
    const list = operation.list?.(value as never);
    const { cursor } = value as { cursor?: string };
    const after = list === undefined ? undefined : readCursor(list, operation.listedIds!, cursor);

    async function work() {
      const caller = await authenticate(call);
      const actor = { rootKeyId: caller.rootKeyId, operation: route.operation.name, requestId: request.requestId };
      const manageContext: ManageContext = { ...context, caller, actor, after };
      const loaded = await authorised(operation as Managing, value, manageContext);
      return (operation as Managing).handle(value as never, manageContext, loaded);
    }
    const inTurn = () => turns(rootKey.workspaceId, work);
    return async () => {
      const result = await (operation.readsMuch ? readingTurns(rootKey.workspaceId, inTurn) : inTurn());
      return list === undefined
        ? `"data":${print(result)}`
        : pageBody(list, result as Page<unknown>, route.alias ? undefined : operation.wrapItems);
    };
  }

  async function authenticate(call: Call): Promise<ManageContext['caller']> {
    const found = await store.rootKeys.authenticate(call.rootKey);
    if ('refused' in found) throw rootKeyRefusals[found.refused];
    call.caller = found;
    return found;
  }

  /** Lets in a caller that was accepted recently. Any other root key is asked for first, in the allowance of all of these. */
  async function introduce(call: Call, newcomerTurns: typeof newcomers) {
    if (!store.rootKeys.wasAccepted(call.rootKey)) await newcomerTurns(newcomer, () => authenticate(call));
  }

  /** What a log line holds is named here, field by field: a body, a key or a header cannot slip in. */
  function logCall(
    level: 'info' | 'error',
    request: Request,
    operation: AnyOperation,
    status: number,
    startedAt: number,
    caller?: ManageContext['caller'],
    error?: ApiError,
  ) {
    const line = {
      requestId: request.requestId,
      operation: operation.name,
      status,
      ...(caller && { workspaceId: caller.workspaceId, rootKeyId: caller.rootKeyId }),
      ...(error && { code: error.code }),
      ...(error && error.status >= 500 && { cause: causeOf(error) }),
      durationMs: Math.round((performance.now() - startedAt) * 1000) / 1000,
    };
    if (caller || !error) log[level](line);
    else callLog.write(kindOf(error, operation), level, line);
  }
}

type Managing = Extract<AnyOperation, { kind: 'manages' }>;

/** Of a log line without a known caller. A bug has a line for each operation: their causes differ. */
const kindOf = ({ status, code }: ApiError, { name }: AnyOperation) =>
  status < 500 ? 'unknown caller' : code === 'internal' ? `${code} ${name}` : code;

/** Runs `load` and checks that the caller may: first whether it holds the actions on anything, then on this. */
async function authorised(operation: Managing, value: unknown, context: ManageContext): Promise<unknown> {
  const { grants } = context.caller;
  const refuse = (missing: string) => {
    if (operation.refuseAs) return new ApiError(operation.refuseAs, 'There is no such key.');
    return new ApiError('insufficient_permissions', `The root key lacks ${missing}.`);
  };
  const needed = Object.entries(operation.needs).flatMap(([resource, actions]) =>
    actions.map((action) => ({ resource: resource as Resource, action })),
  );
  const lacking = needed.find(({ resource, action }) => !grants.holdsAny(resource, action));
  if (lacking) {
    // The id is known already where the input says it all.
    const id = operation.load ? '*' : (operation.scope(value as never, undefined) ?? '*');
    throw refuse(missingFor(grants, lacking.resource, id, lacking.action)!);
  }

  const loaded = await operation.load?.(value as never, context);
  const id = operation.scope(value as never, loaded);
  if (id === undefined) return loaded;
  const missing = needed
    .map((need) => missingFor(grants, need.resource, id, need.action))
    .find((text) => text !== undefined);
  if (missing) throw refuse(missing);
  return loaded;
}

/** Undefined when held; else the grants of which one would do. */
function missingFor(grants: Grants, resource: Resource, id: string, action: string): string | undefined {
  const scoped = resource === 'api' || resource === 'ratelimit' || resource === 'identity';
  if (grants.holds(resource, scoped ? id : '*', action)) return undefined;
  return scoped && id !== '*' ? `${resource}.*.${action} or ${resource}.${id}.${action}` : `${resource}.*.${action}`;
}

class MethodNotAllowed extends ApiError {
  readonly allow: string;

  constructor(allow: string) {
    super('method_not_allowed', `This path takes ${allow}.`);
    this.allow = allow;
  }
}
const methodNotAllowed = (allow: string) => new MethodNotAllowed(allow);

function counted(calls: Calls, response: Response, startedAt: number): Response {
  calls.count(response.status, performance.now() - startedAt);
  return response;
}

const succeeded = (body: string): Response => ({ status: 200, contentType: jsonType, headers: [], body });

type ServedPage = Response | ((request: Request) => Promise<Response>);

async function servePage(request: Request, page: ServedPage | undefined): Promise<Response> {
  if (!page) throw new ApiError('route_not_found', 'There is no such operation.');
  if (!isReading(request)) throw methodNotAllowed('GET, HEAD');
  return typeof page === 'function' ? page(request) : page;
}

const isJson = (contentType: string): boolean =>
  contentType === jsonType || /^application\/json *(;.*)?$/i.test(contentType);

function pageBody(list: string, { items, next }: Page<unknown>, wrapItems: string | undefined): string {
  const data = print(wrapItems === undefined ? items : { [wrapItems]: items });
  const pagination = next === undefined ? { hasMore: false } : { hasMore: true, cursor: cursorAfter(list, next) };
  return `"data":${data},"pagination":${JSON.stringify(pagination)}`;
}
