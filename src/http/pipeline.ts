// The life of a request, in order. Each step passes or throws an ApiError.
//
//   route ─▶ header ─▶ media type ─▶ size ─▶ body ─▶ root key ─▶ limiter ─▶ load ─▶ permission ─▶ handle ─▶ response
//   404 405    401         415        413     400     401 403      429      404        403       4xx         200
//
// After the response the call is logged: one that decides only if it failed.
//
// An operation that decides on the hot path leaves everything from `root key` on to its script.
//
// Parsing a large body takes long. It is parsed after its root key was accepted, so that unknown callers cannot cause
// it:
//
//   route ─▶ header ─▶ media type ─▶ size ─▶ root key ─▶ limiter of large bodies ─▶ root key ─▶ body ─▶ as above

import type { Logger } from 'pino';
import type { Prepared } from '../decide/kind.ts';
import type { PresentedRootKey } from '../domain/caller.ts';
import { cursorAfter } from '../domain/cursor.ts';
import { type Grants, isScoped, type Resource } from '../domain/grants.ts';
import { memberTexts, print } from '../domain/json.ts';
import { ApiError, rootKeyRefusals } from '../errors.ts';
import { type Body, parseBody, parseLargeBody } from '../input/body.ts';
import { type CheckInput, compileInput, compileInputLater } from '../input/validate.ts';
import { type Calls, Metrics } from '../metrics.ts';
import type { AnyOperation, Context, ManageContext, Page, Scope, Streaming } from '../operation.ts';
import type { Store } from '../store.ts';
import { CallerAddresses } from './address.ts';
import { CallLog } from './callLog.ts';
import { ConcurrencyLimiter, serialize } from './concurrencyLimiter.ts';
import type { Served } from './constant.ts';
import { readCursor } from './cursor.ts';
import { createDocuments, withHsts } from './documents.ts';
import { causeOf, errorResponse, internalError } from './errorResponse.ts';
import { type Handler, isReading, jsonType, notToBeStored, type Request, type Response, succeeded } from './message.ts';
import { PreparedCache } from './preparedCache.ts';
import { createProbes, type ProbesOptions } from './probes.ts';
import { RootKeyReader } from './rootKey.ts';

interface PipelineOptions extends Partial<Omit<ProbesOptions, 'store'>> {
  store: Store;
  log: Logger;
  /** Shared with the gateway check, so that both together log an outage in one line a second. */
  callLog?: CallLog;
  metaBytesMax: number;
  /** Errors have Unkey's `type` and `title`, where it has the error. */
  unkeyTypes?: boolean;
  /** Whether the console is served. */
  console?: boolean;
  /** The max-age of Strict-Transport-Security for pages over TLS, in seconds; undefined without TLS. */
  hstsMaxAge?: number | undefined;
  /** Management requests of a workspace that run concurrently. */
  manageAtOnce?: number;
  /** Management requests of all workspaces that run or wait. Further ones are rejected. */
  inFlightMax?: number;
  checks?: Context['checks'];
  /** How long a management request waits for the limiter. */
  turnWaitMs?: number;
  metrics?: Metrics;
}

interface Route {
  operation: AnyOperation;
  /** The path is the alias of the operation. */
  alias: boolean;
  calls: Calls;
  check: CheckInput;
  /** Prepared requests by their bodies, if the operation decides. */
  prepared: PreparedCache<Prepared<string>>;
}

interface Call {
  request: Request & { body: Buffer };
  route: Route;
  rootKey: PresentedRootKey;
  /** The address of the caller, for the audit log; '' for an operation that decides. */
  address: string;
  /** Set when Redis has accepted the root key. */
  caller?: ManageContext['caller'];
}

/** A call whose input has been checked. */
interface CheckedCall {
  call: Call;
  value: unknown;
  context: Context;
  /** The name of the list, if the operation lists. */
  list: string | undefined;
  after: string | undefined;
}

/** Parsing a body of this size takes a few milliseconds at most, and one of a megabyte 0.1 s. */
const largeBodyBytes = 32_768;
/** Large bodies of all workspaces in memory. */
const largeBodiesMax = 128;
/** Large bodies of unknown callers in memory. */
const largeUnknownMax = 64;
/** The longest rest after a large read. With 40 callers, two at a time, it adds a second to the wait of each. */
const readRestMsMax = 50;
/** Root keys of unknown callers that Redis checks at a time. */
const unknownAtOnce = 64;
/** Unknown callers, those whose root key was not accepted recently, share one limit under this name. */
const unknownCaller = '';

export function createPipeline(operations: readonly AnyOperation[], options: PipelineOptions): Handler {
  const pipeline = new Pipeline(operations, options);
  return (request) => pipeline.respond(request);
}

class Pipeline {
  readonly #store: Store;
  readonly #options: PipelineOptions;
  readonly #limits: Context['limits'];
  readonly #callLog: CallLog;
  readonly #metrics: Metrics;
  readonly #routes: ReadonlyMap<string, Route>;
  readonly #documents: ReturnType<typeof createDocuments>;
  readonly #probes: ReturnType<typeof createProbes>;
  readonly #documentCalls: Calls;
  readonly #unknownCalls: Calls;
  readonly #rootKeys = new RootKeyReader();
  readonly #addresses: CallerAddresses;
  readonly #limiters: ReturnType<typeof createLimiters>;
  readonly #pause = serialize();

  constructor(operations: readonly AnyOperation[], options: PipelineOptions) {
    const { store, log, callLog = new CallLog(log), metrics = new Metrics() } = options;
    const { isStopping = () => false, gatewayRootKey, scrape } = options;
    this.#options = options;
    // Only these: the options have secrets, too.
    this.#limits = { metaBytesMax: options.metaBytesMax };
    this.#store = store;
    this.#addresses = new CallerAddresses(log);
    this.#callLog = callLog;
    this.#metrics = metrics;
    this.#routes = createRoutes(operations, metrics, store);
    const documents = createDocuments(operations, options.console ?? false);
    this.#documents = options.hstsMaxAge === undefined ? documents : withHsts(documents, options.hstsMaxAge);
    this.#probes = createProbes({ store, isStopping, gatewayRootKey, scrape });
    this.#documentCalls = metrics.callsOf('page');
    // All unknown paths share one name, so that callers cannot create metrics.
    this.#unknownCalls = metrics.callsOf('unknown');
    this.#limiters = createLimiters(options);
  }

  respond(request: Request): Response | Promise<Response> {
    const startedAt = performance.now();
    this.#metrics.begin();
    const route = this.#routes.get(request.path);
    const isShort = request.body.length < largeBodyBytes;
    return route?.operation.kind === 'decides' && isShort
      ? this.#decide(request, route, route.operation, startedAt)
      : this.#serve(request, route, startedAt);
  }

  /** Serves a request of the hot path, without a promise if it is decided without Redis. */
  #decide(request: Request, route: Route, operation: Deciding, startedAt: number): Response | Promise<Response> {
    const { calls } = route;
    const succeed = (data: string) => counted(calls, succeeded(request, data), startedAt);
    const fail = (cause: unknown) =>
      counted(calls, this.#failed(request, route, undefined, cause, startedAt), startedAt);
    try {
      const rootKey = this.#readHead(request);
      const { body } = request as Call['request'];
      const prepared = route.prepared.get(rootKey, body, () => this.#prepare(route, operation, rootKey, body));
      const data = prepared.decide();
      return data instanceof Promise ? data.then(succeed, fail) : succeed(data);
    } catch (cause) {
      return fail(cause);
    }
  }

  #prepare({ check }: Route, operation: Deciding, rootKey: PresentedRootKey, body: Buffer): Prepared<string> {
    const { value } = parseBody(body);
    check(value, body.length);
    return operation.prepare(value as never, rootKey, this.#store);
  }

  async #serve(request: Request, route: Route | undefined, startedAt: number): Promise<Response> {
    const document = route ? undefined : (this.#documents(request) ?? this.#probes.get(request.path));
    const calls = route?.calls ?? (document ? this.#documentCalls : this.#unknownCalls);
    let call: Call | undefined;
    try {
      if (!route) return counted(calls, await serveDocument(request, document), startedAt);
      const { operation } = route;
      if (operation.kind === 'manages' && operation.mayLackBody && request.body.length === 0)
        request = { ...request, body: Buffer.from('{}'), contentType: 'application/json' };
      const rootKey = this.#readHead(request);
      const address = operation.kind === 'manages' ? this.#addresses.of(request) : '';
      call = { request: request as Call['request'], route, rootKey, address };
      const isLarge = request.body.length >= largeBodyBytes;
      const data = await (isLarge ? this.#serveLarge(call) : this.#serveSmall(call));
      if (operation.kind === 'manages') this.#logCall('info', request, operation, 200, startedAt, call.caller);
      if (typeof data !== 'string') return counted(calls, streamed(data), startedAt);
      return counted(calls, succeeded(request, data), startedAt);
    } catch (cause) {
      return counted(calls, this.#failed(request, route, call, cause, startedAt), startedAt);
    }
  }

  #failed(
    request: Request,
    route: Route | undefined,
    call: Call | undefined,
    cause: unknown,
    startedAt: number,
  ): Response {
    const error: ApiError & { allow?: string } = cause instanceof ApiError ? cause : internalError(cause);
    if (route && (error.status >= 500 || route.operation.kind === 'manages')) {
      const level = error.status >= 500 ? 'error' : 'info';
      this.#logCall(level, request, route.operation, error.status, startedAt, call?.caller, error);
    }
    return errorResponse(error, request, {
      ...(error.allow !== undefined && { allow: error.allow }),
      problemJson: route?.operation.problems === true,
      unkeyTypes: this.#options.unkeyTypes === true,
    });
  }

  /** Checks the headers and the size of a request. Returns its root key. */
  #readHead(request: Request): PresentedRootKey {
    if (request.method !== 'POST') throw methodNotAllowed('POST');
    const rootKey = this.#rootKeys.readHeader(request.authorization);
    if (rootKey === undefined) {
      throw new ApiError('unauthorized', 'The Authorization header must be `Bearer <root key>`.');
    }
    if (!isJson(request.contentType)) {
      throw new ApiError('unsupported_media_type', 'Content-Type must be application/json.');
    }
    const { contentEncoding } = request;
    if (contentEncoding !== undefined && contentEncoding.trim().toLowerCase() !== 'identity') {
      const detail = `Content-Encoding must be absent or identity, not ${JSON.stringify(contentEncoding.slice(0, 50))}. Send the body uncompressed.`;
      throw new ApiError('unsupported_media_type', detail);
    }
    if (request.body === 'too_large') {
      throw new ApiError('body_too_large', 'The body is longer than this server accepts.');
    }
    if (request.body === 'no_room') {
      throw new ApiError('too_many_requests', 'The server is receiving too many large bodies; retry later.');
    }
    if (request.hasQuery) {
      throw new ApiError('invalid_input', 'Operations accept no query parameters.', { fields: [] });
    }
    return rootKey;
  }

  #contextOf({ requestId }: Request, text: string): Context {
    let texts: Context['text'] | undefined;
    return {
      store: this.#store,
      requestId,
      limits: this.#limits,
      decisionTimes: this.#metrics.decisionTimes,
      checks: this.#options.checks,
      text(...path) {
        texts ??= memberTexts(text);
        return texts(...path);
      },
    };
  }

  /**
   * Serves a management request with a small body. Returns `data` and what follows it in the response, as text; or its
   * stream.
   */
  async #serveSmall(call: Call): Promise<string | Streaming> {
    const body = parseBody(call.request.body);
    call.route.check(body.value, call.request.body.length);
    const checked = this.#checkCall(call, body);
    await this.#admitUnknown(call, this.#limiters.unknownCallers);
    return this.#run(checked);
  }

  /** Serves a request with a large body, which is parsed in steps with other requests between them. */
  async #serveLarge(call: Call): Promise<string | Streaming> {
    const { request, route, rootKey } = call;
    await this.#admitUnknown(call, this.#limiters.largeUnknown);
    return this.#limiters.largeBodies.run(rootKey.workspaceId, async () => {
      await this.#authenticate(call);
      await this.#pause();
      const body = await parseLargeBody(request.body, this.#pause);
      await this.#pause();
      route.check(body.value, request.body.length);
      await this.#pause();
      const checked = this.#checkCall(call, body);
      await this.#pause();
      return this.#run(checked);
    });
  }

  /** Checks what a schema cannot express. */
  #checkCall(call: Call, { text, value }: Body): CheckedCall {
    const { operation } = call.route;
    const context = this.#contextOf(call.request, text);
    if (operation.kind === 'decides') return { call, value, context, list: undefined, after: undefined };
    operation.check?.(value as never, context);
    const list = operation.list?.(value as never);
    const { cursor } = value as { cursor?: string };
    const { listedIds } = operation;
    const ids = typeof listedIds === 'function' ? listedIds(value as never) : listedIds!;
    const after = list === undefined ? undefined : readCursor(list, ids, cursor);
    return { call, value, context, list, after };
  }

  async #run(checked: CheckedCall): Promise<string | Streaming> {
    const { call, value, list } = checked;
    const { rootKey, route } = call;
    const { operation } = route;
    if (operation.kind === 'decides') return operation.prepare(value as never, rootKey, this.#store).decide();
    const { heavyReads, management } = this.#limiters;
    const manage = () => management.run(rootKey.workspaceId, () => this.#manage(operation, checked));
    const isHeavy = operation.readsMuch === true || list !== undefined;
    const result = await (isHeavy ? heavyReads.run(rootKey.workspaceId, manage, operation.name) : manage());
    if (operation.streams) return result as Streaming;
    return list === undefined
      ? print(result)
      : pageBody(list, result as Page<unknown>, route.alias ? undefined : operation.wrapItems);
  }

  async #manage(operation: Managing, { call, value, context, after }: CheckedCall): Promise<unknown> {
    const caller = await this.#authenticate(call);
    const actor = {
      rootKeyId: caller.rootKeyId,
      operation: operation.name,
      requestId: call.request.requestId,
      address: call.address,
    };
    const reauthenticate = () => this.#authenticate(call);
    const manageContext: ManageContext = { ...context, caller, reauthenticate, actor, after };
    const loaded = await authorise(operation, value, manageContext);
    return operation.handle(value as never, manageContext, loaded);
  }

  async #authenticate(call: Call): Promise<ManageContext['caller']> {
    const found = await this.#store.rootKeys.authenticate(call.rootKey);
    if ('refused' in found) throw rootKeyRefusals[found.refused];
    call.caller = found;
    return found;
  }

  /** Authenticates an unknown caller, within the limit that all unknown callers share. */
  async #admitUnknown(call: Call, limiter: ConcurrencyLimiter) {
    if (this.#store.rootKeys.wasAccepted(call.rootKey)) return;
    await limiter.run(unknownCaller, () => this.#authenticate(call));
  }

  /** Logs named fields only, so that no body, key or header can get into the log. */
  #logCall(
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
    // While Redis is away, every request of a known caller fails too.
    const isBounded = error && (!caller || error.status === 503);
    if (isBounded) this.#callLog.write(kindOf(error, operation), level, line);
    else this.#options.log[level](line);
  }
}

function createRoutes(
  operations: readonly AnyOperation[],
  metrics: Metrics,
  { rootKeys }: Store,
): ReadonlyMap<string, Route> {
  const routes = new Map<string, Route>();
  for (const operation of operations) {
    // A server starts sooner if its first request of an operation compiles the schema. The hot path is compiled at
    // start.
    const compile = operation.kind === 'decides' ? compileInput : compileInputLater;
    const check = compile(operation.input);
    const calls = metrics.callsOf(operation.name, operation.kind);
    const prepared = new PreparedCache<Prepared<string>>(rootKeys.wasAccepted);
    routes.set(`/v2/${operation.name}`, { operation, check, calls, prepared, alias: false });
    if (operation.alias) routes.set(`/v2/${operation.alias}`, { operation, check, calls, prepared, alias: true });
  }
  return routes;
}

/**
 * Requests that occupy Redis or the server for long pass a smaller limiter first, then the common one of management.
 */
function createLimiters({ manageAtOnce = 8, inFlightMax = 4096, turnWaitMs: waitMs = 7000 }: PipelineOptions) {
  const atOnce = Math.ceil(manageAtOnce / 4);
  return {
    management: new ConcurrencyLimiter({ atOnce: manageAtOnce, max: inFlightMax, waitMs }),
    largeBodies: new ConcurrencyLimiter({ atOnce, max: largeBodiesMax, waitMs }),
    heavyReads: new ConcurrencyLimiter({ atOnce, max: inFlightMax, waitMs, restMsMax: readRestMsMax }),
    unknownCallers: new ConcurrencyLimiter({ atOnce: unknownAtOnce, max: inFlightMax, waitMs }),
    largeUnknown: new ConcurrencyLimiter({ atOnce: unknownAtOnce, max: largeUnknownMax, waitMs }),
  };
}

type Managing = Extract<AnyOperation, { kind: 'manages' }>;
type Deciding = Extract<AnyOperation, { kind: 'decides' }>;

/** The kind of a bounded log line. Bugs have one for each operation, because their causes differ. */
const kindOf = ({ status, code }: ApiError, { name }: AnyOperation) =>
  status < 500 ? 'unknown caller' : code === 'internal' ? `${code} ${name}` : code;

/**
 * Runs `load` and checks the grants of the caller: before `load`, that it has the actions for any id, and afterwards
 * for the ids of `scope`.
 */
async function authorise(operation: Managing, value: unknown, context: ManageContext): Promise<unknown> {
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
    // Without `load`, the ids are known already.
    const scope = operation.load ? '*' : operation.scope(value as never, undefined);
    throw refuse(missingFor(grants, lacking.resource, idOf(scope, lacking.resource), lacking.action)!);
  }

  const loaded = await operation.load?.(value as never, context);
  const scope = operation.scope(value as never, loaded);
  if (scope === undefined) return loaded;
  const missing = needed
    .map(({ resource, action }) => missingFor(grants, resource, idOf(scope, resource), action))
    .find((text) => text !== undefined);
  if (missing) throw refuse(missing);
  return loaded;
}

const idOf = (scope: Scope, resource: Resource): string => (typeof scope === 'object' ? scope[resource] : scope) ?? '*';

/** Returns the missing grant, with alternatives if there are any; undefined if the caller has it. */
function missingFor(grants: Grants, resource: Resource, id: string, action: string): string | undefined {
  const scoped = isScoped(resource);
  if (grants.holds(resource, scoped ? id : '*', action)) return undefined;
  return scoped && id !== '*' ? `${resource}.*.${action} or ${resource}.${id}.${action}` : `${resource}.*.${action}`;
}

const methodNotAllowed = (allow: string) =>
  Object.assign(new ApiError('method_not_allowed', `This path accepts ${allow} only.`), { allow });

function counted(calls: Calls, response: Response, startedAt: number): Response {
  calls.count(response.status, performance.now() - startedAt);
  return response;
}

/** Proxies must neither buffer nor cache a stream. */
const streamHeaders = [notToBeStored, ['X-Accel-Buffering', 'no']] as const;
const streamed = (stream: Streaming): Response => ({
  status: 200,
  contentType: 'text/event-stream',
  headers: streamHeaders,
  body: '',
  stream,
});

type ServedDocument = Response | Served;

async function serveDocument(request: Request, document: ServedDocument | undefined): Promise<Response> {
  if (!document) throw new ApiError('route_not_found', 'There is no such operation.');
  if (!isReading(request)) throw methodNotAllowed('GET, HEAD');
  return typeof document === 'function' ? document(request) : document;
}

const isJson = (contentType: string): boolean =>
  contentType === jsonType || /^application\/json *(;.*)?$/i.test(contentType);

function pageBody(list: string, page: Page<unknown>, wrapItems: string | undefined): string {
  const { items, next, looked, total, since, counted } = page;
  const data = print(wrapItems === undefined ? items : { [wrapItems]: items });
  const pagination = {
    hasMore: next !== undefined,
    cursor: next === undefined ? undefined : cursorAfter(list, next),
    looked,
    total,
    since,
    counted,
  };
  return `${data},"pagination":${JSON.stringify(pagination)}`;
}
