// GET /v2/me: what the holder of a key sees of it, with the key itself, maybe from a page of a product. Nothing is
// charged or counted.
//
// Anybody may call it as often as he likes, so what it costs is bounded: a key that is not known is looked up, and
// nothing else is read; a known one is read some times a second; and few of a workspace are read at a time.

import type { Logger } from 'pino';
import { print } from '../domain/json.ts';
import { digestTextOf } from '../domain/keyString.ts';
import { outcomeErrors } from '../domain/verification.ts';
import { ApiError } from '../errors.ts';
import { type Calls, Metrics } from '../metrics.ts';
import { readHolder } from '../operations/keys/me.ts';
import type { Store } from '../store.ts';
import { endUserAddress } from './address.ts';
import { CallLog } from './callLog.ts';
import { ConcurrencyLimiter } from './concurrencyLimiter.ts';
import { errorResponse, internalError } from './errorResponse.ts';
import { keyIn, noAddressIn } from './gateway.ts';
import { type HeaderHandler, type HeadRequest, notToBeStored, type Response, succeeded } from './message.ts';

export const mePath = '/v2/me';

interface MeOptions {
  store: Store;
  log: Logger;
  /** See PipelineOptions. */
  callLog?: CallLog;
  metrics?: Metrics;
  /** The header with the address of the end user; '' for none. */
  ipHeader?: string;
}

/** Reads of a key in a second, by each server process. */
const readsMax = 2;
/** Keys that were read recently and are known. */
const recentMax = 10_000;
/** Records in a second in which unknown keys are looked up. */
const lookupsMax = 10_000;
/** Reads of a workspace at a time, and of all that run or wait. */
const [atOnce, waitingMax, waitMs, restMsMax] = [2, 256, 2000, 50];

/** A key that was found, and the origins that may read its answer. Without a workspace it was deleted in all. */
interface Known {
  workspaceId: string | undefined;
  origins: readonly string[];
  reads: PerSecond;
}

/** Counts what happens in a second. */
class PerSecond {
  #second = 0;
  #count = 0;

  /** Returns whether this many more are below the limit. */
  take(count: number, max: number): boolean {
    const second = Math.floor(performance.now() / 1000);
    if (second !== this.#second) [this.#second, this.#count] = [second, 0];
    this.#count += count;
    return this.#count <= max;
  }
}

export function createMe(options: MeOptions): HeaderHandler {
  const me = new Me(options);
  return (request) => me.respond(request);
}

class Me {
  readonly #store: Store;
  readonly #metrics: Metrics;
  readonly #calls: Calls;
  readonly #callLog: CallLog;
  readonly #ipHeader: string;
  /** By digest, in the order in which they were found. */
  readonly #known = new Map<string, Known>();
  /** Those that are being looked up: requests that arrive meanwhile wait for the same. */
  readonly #finding = new Map<string, Promise<Known>>();
  readonly #lookups = new PerSecond();
  readonly #reads = new ConcurrencyLimiter({ atOnce, max: waitingMax, waitMs, restMsMax });

  constructor({ store, log, callLog = new CallLog(log), metrics = new Metrics(), ipHeader = '' }: MeOptions) {
    this.#store = store;
    this.#metrics = metrics;
    this.#calls = metrics.callsOf('me');
    this.#callLog = callLog;
    this.#ipHeader = ipHeader;
  }

  async respond(request: HeadRequest): Promise<Response> {
    const startedAt = performance.now();
    this.#metrics.begin();
    const key = keyIn(request, 'Authorization');
    const digest = key && digestTextOf(key);
    const response = await this.#answer(request, digest).catch((cause) => {
      const error = cause instanceof ApiError ? cause : internalError(cause);
      this.#callLog.failed('me', request, error, startedAt);
      return errorResponse(error, request, error.status === 405 ? { allow: 'GET, OPTIONS' } : {});
    });
    this.#calls.count(response.status, performance.now() - startedAt);
    const origins = (digest && this.#known.get(digest)?.origins) || [];
    return { ...response, headers: [...response.headers, notToBeStored, ...corsOf(request, origins)] };
  }

  async #answer(request: HeadRequest, digest: string | undefined): Promise<Response> {
    if (request.method === 'OPTIONS') return { ...succeeded(request, '{}'), headers: preflight };
    if (request.method !== 'GET') throw new ApiError('method_not_allowed', 'This path accepts GET and OPTIONS only.');
    if (request.hasQuery) {
      throw new ApiError('invalid_input', 'This path accepts no query parameters.', { fields: [] });
    }
    if (!digest) throw new ApiError('invalid_key', 'The Authorization header must be `Bearer <key>`, once.');
    const cached = this.#known.get(digest);
    const known = cached ?? (await this.#findOnce(digest));
    if (!known.reads.take(1, readsMax)) {
      if (known.workspaceId === undefined) throw refusal('invalid_key', 'NOT_FOUND');
      throw new ApiError('too_many_requests', `A key can be read ${readsMax} times a second; retry later.`);
    }
    const ip = endUserAddress(request, this.#ipHeader);
    let found = await this.#read(digest, known, ip);
    // Another workspace may have the key, which was deleted here or whose workspace lost the setting.
    if (cached && known.workspaceId === undefined) found = await this.#read(digest, await this.#findOnce(digest), ip);
    if (!('refused' in found)) return succeeded(request, print(found));
    if (found.refused !== 'FORBIDDEN') throw refusal('invalid_key', found.refused);
    throw ip === '' ? noAddressIn(this.#ipHeader) : refusal('ip_not_allowed', found.refused);
  }

  #findOnce(digest: string): Promise<Known> {
    const finding = this.#finding.get(digest) ?? this.#find(digest).finally(() => this.#finding.delete(digest));
    this.#finding.set(digest, finding);
    return finding;
  }

  /** The key if one of the workspaces has it. Its origins are known before anything of it is refused. */
  async #find(digest: string): Promise<Known> {
    const { holders, keys, workspaces } = this.#store;
    const workspaceIds = await holders.workspaces();
    if (!this.#lookups.take(workspaceIds.length, lookupsMax)) {
      throw new ApiError('too_many_requests', 'Too many keys are looked up; retry later.');
    }
    const bytes = Buffer.from(digest, 'latin1');
    let origins: readonly string[] | undefined;
    const workspaceId = await holders.find(workspaceIds, bytes, async (id) => {
      const { me } = await workspaces.settings(id);
      origins = me?.origins ?? [];
      return me !== undefined && (await keys.findByDigest(id, bytes)) !== undefined;
    });
    const known = this.#known.get(digest) ?? { workspaceId, origins: [], reads: new PerSecond() };
    if (!origins) {
      // No workspace has it, not even as a deleted one.
      this.#known.delete(digest);
      throw refusal('invalid_key', 'NOT_FOUND');
    }
    Object.assign(known, { workspaceId, origins: workspaceId === undefined ? [] : origins });
    this.#known.set(digest, known);
    for (const oldest of this.#known.keys()) {
      if (this.#known.size <= recentMax) break;
      this.#known.delete(oldest);
    }
    return known;
  }

  /** Reads a key if its workspace still has the setting. */
  async #read(digest: string, known: Known, ip: string | undefined) {
    const { workspaceId } = known;
    if (workspaceId === undefined) return unknown;
    return this.#reads.run(workspaceId, async () => {
      const { me } = await this.#store.workspaces.settings(workspaceId);
      const found = me ? await readHolder(this.#store, { workspaceId, digest, ip }, me.meta ?? []) : unknown;
      known.origins = me?.origins ?? [];
      if ('refused' in found && found.refused === 'NOT_FOUND') [known.workspaceId, known.origins] = [undefined, []];
      return found;
    });
  }
}

const unknown = { refused: 'NOT_FOUND' } as const;
const refusal = (code: 'invalid_key' | 'ip_not_allowed', outcome: keyof typeof outcomeErrors) =>
  new ApiError(code, outcomeErrors[outcome].detail);

/**
 * The answer to any page: a preflight has no key, and so no workspace. It lets a page send the key, which it has
 * anyway, and does not let it read the answer.
 */
const preflight = [
  ['Access-Control-Allow-Origin', '*'],
  ['Access-Control-Allow-Methods', 'GET'],
  ['Access-Control-Allow-Headers', 'Authorization'],
  ['Access-Control-Max-Age', '600'],
] as const;

function corsOf({ method, headers }: HeadRequest, origins: readonly string[]): Response['headers'] {
  const [origin, ...others] = headers.get('origin') ?? [];
  const vary = ['Vary', 'Origin'] as const;
  if (method === 'OPTIONS' || !origin || others.length > 0 || !origins.includes(origin)) return [vary];
  return [
    vary,
    ['Access-Control-Allow-Origin', origin],
    ['Access-Control-Expose-Headers', 'Retry-After, X-Request-Id'],
  ];
}
