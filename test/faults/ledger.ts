/**
 * The ledger: what callers were told, against what the store has afterwards.
 *
 * Many writers at once, each on keys and root keys of its own, so that the history of each is known in order. Whatever
 * the fault, a record must afterwards be as it was after some step of its history, in all its parts: what it was granted,
 * what was charged, what its limit counted, what its usage counts, what the audit stream tells. Anything else is a script that
 * was half applied. How many of the acknowledged steps are there says what was lost.
 */

import { expect } from 'vitest';
import type { Client } from '../support/client.ts';
import { dayMs } from '../support/harness.ts';

type Call = Client['call'];

const granted = 1_000_000;
const limit = { name: 'all', limit: 1_000_000, duration: 20 * dayMs, autoApply: true };

type Change = 'create' | 'verify' | 'credit' | 'rename' | 'delete';

interface Step {
  change: Change;
  /** When it was acknowledged (performance.now()); undefined: it never was, and may have happened. */
  atMs: number | undefined;
}

interface History {
  kind: 'key' | 'rootKey';
  id: string;
  /** The key string. */
  secret: string;
  steps: Step[];
}

/** A record in its parts, as a step of its history leaves it. */
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
  /** From the acknowledgement of the first step that is missing until the fault. */
  lostMs: number;
  records: number;
}

export async function openLedger(call: Call) {
  const { data } = await call('apis.createApi', { name: 'ledger' });
  const apiId = data.apiId;
  const histories: History[] = [];
  let stopped = false;
  let acknowledged = 0;

  /** Writes until `stop`, or until an answer is missing: then it cannot know, and leaves that record alone. */
  async function write(pick: (min: number, max: number) => number) {
    while (!stopped) {
      const history = pick(1, 4) === 1 ? await createRootKey() : await createKey();
      if (!history) return;
      const changes: Change[] =
        history.kind === 'key' ? ['verify', 'verify', 'verify', 'verify', 'credit', 'rename'] : ['rename'];
      for (let step = pick(1, 60); step > 0 && !stopped; step--) {
        if (!(await take(history, changes[pick(0, changes.length - 1)]!))) return;
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
      // Refusals have no place here: either it was answered, or nobody was there to answer.
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

  /** What the store has, asked through the front door. */
  async function observe(ask: Call): Promise<(history: History) => Promise<Parts>> {
    const period = { start: Date.now() - 3 * 3_600_000, end: Date.now() + 3_600_000, granularity: 'day' } as const;
    const usage = await ask('analytics.getVerifications', { apiId, ...period, groupBy: ['keyId', 'outcome'] });
    const counted = new Map<string, number>();
    for (const row of usage.data) {
      expect(row.outcome).toBe('VALID');
      expect(row.spentCredits).toBe(row.count);
      counted.set(row.keyId!, (counted.get(row.keyId!) ?? 0) + row.count);
    }
    // The totals of the API are counted beside those of its keys, in the same step.
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
      // Asked for nothing, it says what is left; what this counts is counted after the usage was read.
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

    /** Starts `count` writers; the answer stops them. */
    start(count: number, pickOf: (writer: number) => (min: number, max: number) => number) {
      stopped = false;
      const writers = Array.from({ length: count }, (_, writer) => write(pickOf(writer)));
      return async () => {
        stopped = true;
        await Promise.all(writers);
      };
    },

    /** Fails where a record is not as one of its steps left it. `faultAtMs`: performance.now() at the fault. */
    async settle(ask: Call, faultAtMs: number): Promise<LedgerResult> {
      const partsOf = await observe(ask);
      const result = { acknowledged, lostVerifications: 0, lostChanges: 0, lostMs: 0, records: histories.length };
      for (const history of histories) {
        const found = await partsOf(history);
        const known = [before(), ...history.steps.map((_, index) => partsAfter(history, index + 1))];
        // Two steps never leave a record alike, so there is one or none.
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
  // Of what is gone, the usage and the audit events tell.
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
