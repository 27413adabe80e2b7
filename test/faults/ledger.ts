/**
 * The ledger: compares the responses that callers got with the stored data.
 *
 * Many writers run at once, each on keys and root keys of its own, so that the order of changes to each is known. After
 * any fault, a record must have the state after one of its steps, in all its parts: credits granted, credits charged,
 * units of its limit, usage counts, audit events. Any other state means that a script was half applied. Acknowledged
 * steps after that state are lost.
 */

import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'vitest';
import type { Client } from '../support/client.ts';
import { dayMs } from '../support/harness.ts';

type Call = Client['call'];

const granted = 1_000_000;
const limit = { name: 'all', limit: 1_000_000, duration: 20 * dayMs, autoApply: true };

type Change = 'create' | 'verify' | 'credit' | 'rename' | 'delete';

interface Step {
  change: Change;
  /**
   * When it was acknowledged (performance.now()); undefined if it got no response, and may or may not have been
   * applied.
   */
  atMs: number | undefined;
}

interface History {
  kind: 'key' | 'rootKey';
  id: string;
  /** The key string. */
  secret: string;
  steps: Step[];
}

/** The parts of a record's state. */
interface Parts {
  exists: boolean;
  granted: number;
  charged: number;
  counted: number;
  limited: number;
  renamed: number;
  audited: number;
}

export interface LedgerResult {
  acknowledged: number;
  /** Acknowledged steps that are missing, verifications and changes. */
  lostVerifications: number;
  lostChanges: number;
  /** Time between the acknowledgement of the first missing step and the fault. */
  lostMs: number;
  records: number;
}

export async function openLedger(call: Call) {
  const { data } = await call('apis.createApi', { name: 'ledger' });
  const apiId = data.apiId;
  const histories: History[] = [];
  let stopped = false;
  let acknowledged = 0;

  /**
   * Writes until `stop`, or until a request gets no response: the record has one of two states, and is not changed
   * again.
   */
  async function write(pick: (min: number, max: number) => number, pauseMs: number) {
    while (!stopped) {
      const history = pick(1, 4) === 1 ? await createRootKey() : await createKey();
      if (!history) return;
      const changes: Change[] =
        history.kind === 'key' ? ['verify', 'verify', 'verify', 'verify', 'credit', 'rename'] : ['rename'];
      for (let step = pick(1, 60); step > 0 && !stopped; step--) {
        if (!(await take(history, changes[pick(0, changes.length - 1)]!))) return;
        if (pauseMs > 0) await delay(pauseMs);
      }
      if (pick(1, 3) === 1 && !stopped && !(await take(history, 'delete'))) return;
    }
  }

  async function createKey(): Promise<History | undefined> {
    const answer = await call('keys.createKey', { apiId, credits: { remaining: granted }, ratelimits: [limit] });
    return created('key', answer.status, answer.data?.keyId, answer.data?.key);
  }

  async function createRootKey(): Promise<History | undefined> {
    const answer = await call('rootKeys.createRootKey', { name: '0', permissions: ['api.*.read_key'] });
    return created('rootKey', answer.status, answer.data?.rootKeyId, answer.data?.key);
  }

  function created(kind: History['kind'], status: number, id: string, secret: string) {
    if (status !== 200) return undefined;
    acknowledged++;
    const history: History = { kind, id, secret, steps: [{ change: 'create', atMs: performance.now() }] };
    histories.push(history);
    return history;
  }

  async function take(history: History, change: Change): Promise<boolean> {
    const step: Step = { change, atMs: undefined };
    history.steps.push(step);
    const { status } = await send(history, change);
    if (status !== 200) {
      // The only failures are no response and 503; no request is refused for its content.
      expect([0, 503]).toContain(status);
      return false;
    }
    acknowledged++;
    step.atMs = performance.now();
    return true;
  }

  function send({ kind, id, secret, steps }: History, change: Change) {
    const name = `${steps.filter((step) => step.change === 'rename').length}`;
    if (kind === 'rootKey') {
      if (change === 'delete') return call('rootKeys.deleteRootKey', { rootKeyId: id });
      return call('rootKeys.updateRootKey', { rootKeyId: id, name });
    }
    if (change === 'verify') return call('keys.verifyKey', { key: secret });
    if (change === 'credit') return call('keys.updateCredits', { keyId: id, operation: 'increment', value: 1 });
    if (change === 'rename') return call('keys.updateKey', { keyId: id, name });
    return call('keys.deleteKey', { keyId: id });
  }

  /** Reads the stored data through the API. */
  async function observe(ask: Call): Promise<(history: History) => Promise<Parts>> {
    const period = { start: Date.now() - 3 * 3_600_000, end: Date.now() + 3_600_000, granularity: 'day' } as const;
    const usage = await ask('analytics.getVerifications', { apiId, ...period, groupBy: ['keyId', 'outcome'] });
    const counted = new Map<string, number>();
    for (const row of usage.data) {
      expect(row.outcome).toBe('VALID');
      expect(row.spentCredits).toBe(row.count);
      counted.set(row.keyId!, (counted.get(row.keyId!) ?? 0) + row.count);
    }
    // The totals of the API are counted in the same step as those of its keys.
    const total = await ask('analytics.getVerifications', { apiId, ...period, groupBy: [] });
    const sum = (rows: readonly { count: number }[]) => rows.reduce((all, { count }) => all + count, 0);
    expect(sum(total.data)).toBe(sum(usage.data));

    const audited = new Map<string, number>();
    for await (const { resource } of pages((cursor) => ask('audit.listEvents', { limit: 100, ...cursor }))) {
      audited.set(resource.id, (audited.get(resource.id) ?? 0) + 1);
    }
    const rootKeys = new Map<string, string>();
    for await (const { rootKeyId, name } of pages((cursor) =>
      ask('rootKeys.listRootKeys', { limit: 100, ...cursor }),
    )) {
      rootKeys.set(rootKeyId, name ?? '');
    }
    const listed = new Set<string>();
    for await (const { keyId } of pages((cursor) => ask('apis.listKeys', { apiId, limit: 100, ...cursor }))) {
      listed.add(keyId);
    }

    return async ({ kind, id, secret }) => {
      const parts: Parts = {
        exists: false,
        granted: 0,
        charged: 0,
        counted: 0,
        limited: 0,
        renamed: 0,
        audited: audited.get(id) ?? 0,
      };
      if (kind === 'rootKey') {
        parts.exists = rootKeys.has(id);
        parts.renamed = Number(rootKeys.get(id) ?? 0);
        const used = await ask('keys.getKey', { keyId: 'key_nonenonenonenonenonenone' }, secret);
        expect(used.status).toBe(parts.exists ? 404 : 401);
        return parts;
      }
      parts.counted = counted.get(id) ?? 0;
      const found = await ask('keys.getKey', { keyId: id });
      expect(found.status).toBe(listed.has(id) ? 200 : 404);
      parts.exists = found.status === 200;
      // Cost 0, so the response has the balance and the units left. This call is counted after the usage was read.
      const looked = await ask('keys.verifyKey', {
        key: secret,
        credits: { cost: 0 },
        ratelimits: [{ name: 'all', cost: 0 }],
      });
      expect(looked.data.code).toBe(parts.exists ? 'VALID' : 'NOT_FOUND');
      if (!parts.exists) return parts;
      const left = found.data.credits!.remaining!;
      expect(looked.data.credits).toBe(left);
      parts.limited = limit.limit - looked.data.ratelimits![0]!.remaining;
      parts.renamed = Number(found.data.name ?? 0);
      parts.charged = parts.counted;
      parts.granted = left + parts.charged;
      return parts;
    };
  }

  return {
    acknowledged: () => acknowledged,

    /** Starts `count` writers, which pause after each step. The function that it returns stops them. */
    start(count: number, pickOf: (writer: number) => (min: number, max: number) => number, pauseMs = 0) {
      stopped = false;
      const writers = Array.from({ length: count }, (_, writer) => write(pickOf(writer), pauseMs));
      return async () => {
        stopped = true;
        await Promise.all(writers);
      };
    },

    /** Fails if a record has a state that none of its steps leaves. `faultAtMs`: performance.now() at the fault. */
    async settle(ask: Call, faultAtMs: number): Promise<LedgerResult> {
      const partsOf = await observe(ask);
      const result = { acknowledged, lostVerifications: 0, lostChanges: 0, lostMs: 0, records: histories.length };
      for (const history of histories) {
        const found = await partsOf(history);
        const known = [before(), ...history.steps.map((_, index) => partsAfter(history, index + 1))];
        // No two steps leave the same state, so at most one matches.
        const taken = known.findIndex((parts) => isAlike(parts, found));
        expect(taken, `half applied: ${JSON.stringify({ found, known: known.slice(-3) })}`).toBeGreaterThanOrEqual(0);
        for (const { change, atMs } of history.steps.slice(taken)) {
          if (atMs === undefined) continue;
          if (change === 'verify') result.lostVerifications++;
          else result.lostChanges++;
          result.lostMs = Math.max(result.lostMs, faultAtMs - atMs);
        }
      }
      return result;
    },
  };
}

const before = (): Parts => ({ exists: false, granted: 0, charged: 0, counted: 0, limited: 0, renamed: 0, audited: 0 });

function partsAfter({ kind, steps }: History, count: number): Parts {
  const taken = steps.slice(0, count).map(({ change }) => change);
  const times = (change: Change) => taken.filter((each) => each === change).length;
  const verified = times('verify');
  const audited = taken.length - verified;
  // A deleted record still has its usage and its audit events.
  if (times('delete') > 0) return { ...before(), counted: verified, audited };
  if (kind === 'rootKey') return { ...before(), exists: true, renamed: times('rename'), audited };
  const charged = { charged: verified, counted: verified, limited: verified };
  return { exists: true, granted: granted + times('credit'), ...charged, renamed: times('rename'), audited };
}

const isAlike = (a: Parts, b: Parts) => (Object.keys(a) as (keyof Parts)[]).every((part) => a[part] === b[part]);

async function* pages<Item>(
  read: (at: {
    cursor?: string;
  }) => Promise<{ status: number; data: readonly Item[]; pagination: { cursor?: string } }>,
): AsyncGenerator<Item> {
  let cursor: string | undefined;
  do {
    const page = await read(cursor === undefined ? {} : { cursor });
    expect(page.status).toBe(200);
    yield* page.data;
    cursor = page.pagination.cursor;
  } while (cursor !== undefined);
}
