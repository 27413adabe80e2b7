// Root keys and certificates that end: what the log, `tollgate doctor`, metrics and system.getStatus report of them. A
// root key is named by its id and name, never by its string.

import type { Logger } from 'pino';
import { soonMs, type UsedBy, usedBy } from './domain/ending.ts';
import { type Finding, fault, ok, warning } from './domain/finding.ts';
import { Grants } from './domain/grants.ts';
import { presented } from './domain/keyString.ts';
import { repeat } from './domain/repeat.ts';
import { dayMs, hourMs } from './domain/time.ts';
import { atMostOnceIn } from './redis/atMostOnce.ts';
import type { Store } from './store.ts';

/** How often root keys are read. */
const lookMs = 5 * 60_000;
/** How long the state of GATEWAY_ROOT_KEY is used again. */
const gatewayMs = 1000;
/** Limit of the root keys that a line of the log, or a finding, names. */
const namedMax = 10;

/** "ends 2026-12-01 03:14 UTC, in 3 days" */
function endText(endMs: number, nowMs: number): string {
  const time = `${new Date(endMs).toISOString().slice(0, 16).replace('T', ' ')} UTC`;
  const units = [['day', dayMs] as const, ['hour', hourMs] as const, ['minute', 60_000] as const];
  const awayMs = Math.abs(endMs - nowMs);
  const [unit, ms] = units.find(([, ms]) => awayMs >= ms) ?? units[2]!;
  const count = Math.floor(awayMs / ms);
  const away = `${count} ${unit}${count === 1 ? '' : 's'}`;
  return endMs > nowMs ? `ends ${time}, in ${away}` : `ended ${time}, ${away} ago`;
}

function endFinding(check: string, endMs: number, nowMs: number, change: string): Finding {
  const found = endText(endMs, nowMs);
  if (endMs <= nowMs) return fault(check, found, change);
  return endMs - nowMs <= soonMs ? warning(check, found, change) : ok(check, found);
}

export const certificateFinding = (endMs: number, nowMs: number): Finding =>
  endFinding('certificate', endMs, nowMs, 'Renew it, and send the server SIGHUP, which reads the files again.');

/** Logs a finding that is not ok, and returns whether it is not. */
export function logFinding(log: Logger, { check, status, found, change }: Finding): boolean {
  if (status === 'ok') return false;
  log[status === 'fault' ? 'error' : 'warn']({ check }, `${check}: ${found}. ${change}`);
  return true;
}

/** `accepted`, or the code of the error that callers get. */
type GatewayState = 'accepted' | 'unauthorized' | 'root_key_disabled' | 'root_key_expired' | 'insufficient_permissions';

const gatewayFaults = {
  unauthorized: 'no such root key: it was deleted, or belongs to another Redis',
  root_key_disabled: 'is disabled',
  insufficient_permissions: 'lacks the grant api.*.verify_key',
};

/** The setting GATEWAY_ROOT_KEY; undefined if it is empty. */
export function openGatewayRootKey(store: Pick<Store, 'rootKeys' | 'currentMs'>, rootKeyString: string) {
  if (rootKeyString === '') return undefined;
  const rootKey = presented(rootKeyString);
  const read = atMostOnceIn(gatewayMs, async (): Promise<{ state: GatewayState; endMs?: number; nowMs: number }> => {
    const [found, nowMs] = await Promise.all([store.rootKeys.find(rootKey), store.currentMs()]);
    if (!found) return { state: 'unauthorized', nowMs };
    const { enabled, expires: endMs, grants } = found;
    const ends = endMs !== undefined && { endMs };
    if (!enabled) return { state: 'root_key_disabled', nowMs };
    if (endMs !== undefined && endMs <= nowMs) return { state: 'root_key_expired', nowMs, ...ends };
    const mayVerify = new Grants(grants).holdsAny('api', 'verify_key');
    return { state: mayVerify ? 'accepted' : 'insufficient_permissions', nowMs, ...ends };
  });
  return {
    workspaceId: rootKey.workspaceId,
    read,
    /** For readiness, which it must not fail: the node of a Cluster with this workspace may be lost. */
    state: (): Promise<GatewayState | 'unknown'> =>
      read().then(
        ({ state }) => state,
        () => 'unknown' as const,
      ),
    async finding(): Promise<Finding> {
      const check = 'GATEWAY_ROOT_KEY';
      const change = 'Create another one with `tollgate root-key create --for gateway`, set it, and restart.';
      const { state, endMs, nowMs } = await read();
      if (state !== 'accepted' && state !== 'root_key_expired') return fault(check, gatewayFaults[state], change);
      return endMs === undefined ? ok(check, 'accepted, does not end') : endFinding(check, endMs, nowMs, change);
    },
  };
}

type GatewayRootKey = ReturnType<typeof openGatewayRootKey>;

interface Ending {
  workspaceId: string;
  rootKeyId: string;
  name?: string | undefined;
  endMs: number;
  usedBy: UsedBy;
}

async function endingsOf(store: Pick<Store, 'rootKeys'>, workspaceId: string): Promise<Ending[]> {
  const all: Ending[] = [];
  let after: string | undefined;
  do {
    const { rootKeys, next, nowMs } = await store.rootKeys.listEnding(workspaceId, { after, count: 100 });
    for (const { rootKeyId, name, ...rootKey } of rootKeys)
      all.push({ workspaceId, rootKeyId, name, endMs: rootKey.expires!, usedBy: usedBy(rootKey, nowMs)! });
    after = next;
  } while (after !== undefined);
  return all;
}

/** The finding about root keys in use that end; undefined if there are none. */
function rootKeysFinding(endings: readonly Ending[], nowMs: number): Finding | undefined {
  const [first, ...rest] = [...endings].sort((a, b) => a.endMs - b.endMs);
  if (!first) return undefined;
  const named = [first, ...rest.slice(0, namedMax - 1)].map(
    ({ workspaceId, rootKeyId, name, endMs }) =>
      `${rootKeyId}${name ? ` (${name})` : ''} of ${workspaceId} ${endText(endMs, nowMs)}`,
  );
  const others = endings.length > namedMax ? `; and ${endings.length - namedMax} others` : '';
  const change =
    'Give their callers another one (`tollgate root-key rotate`). Disable or delete one that nothing uses any more.';
  return (first.endMs <= nowMs ? fault : warning)('root keys', `in use: ${named.join('; ')}${others}`, change);
}

/** For `tollgate doctor`. */
export async function checkRootKeys(store: Store, rootKeyString: string): Promise<Finding[]> {
  const all: Ending[] = [];
  for (const workspaceId of await store.workspaces.ids()) all.push(...(await endingsOf(store, workspaceId)));
  const found = rootKeysFinding(all, await store.currentMs());
  const gateway = await openGatewayRootKey(store, rootKeyString)?.finding();
  return [found ?? ok('root keys', 'none that is in use ends within 14 days'), ...(gateway ? [gateway] : [])];
}

interface WatchOptions {
  store: Store;
  gateway: GatewayRootKey;
  log: Logger;
  /** Shorter in tests. */
  intervalMs?: number;
}

/** Watches the root keys of all workspaces, and logs once a day which end. For the first process only. */
export function watchRootKeys({ store, gateway, log, intervalMs = lookMs }: WatchOptions) {
  let endings = new Map<string, Ending[]>();
  let gatewayEndMs: number | undefined;
  let loggedAt = Number.NEGATIVE_INFINITY;

  async function look() {
    const found = new Map<string, Ending[]>();
    let failure: unknown;
    for (const workspaceId of await store.workspaces.ids()) {
      if (looks.isStopped) return;
      const some = await endingsOf(store, workspaceId).catch((error) => {
        // A node of a Cluster may be lost. Earlier findings stay true.
        failure = error;
        return endings.get(workspaceId) ?? [];
      });
      if (some.length > 0) found.set(workspaceId, some);
    }
    endings = found;
    gatewayEndMs = (await gateway?.read())?.endMs;
    if (performance.now() - loggedAt >= dayMs) {
      const all = [rootKeysFinding([...found.values()].flat(), await store.currentMs()), await gateway?.finding()];
      for (const finding of all) if (finding && logFinding(log, finding)) loggedAt = performance.now();
    }
    if (failure) throw failure;
  }

  const looks = repeat(
    intervalMs,
    () =>
      look().catch((err) => {
        if (!looks.isStopped) log.warn({ err }, 'Cannot check which root keys end. The check will be repeated.');
      }),
    0,
  );

  return {
    /** When the first root key ends, by its use, in Unix milliseconds. */
    first(): Partial<Record<UsedBy, number>> {
      const first: Partial<Record<UsedBy, number>> = gatewayEndMs === undefined ? {} : { gateway: gatewayEndMs };
      for (const { usedBy, endMs } of [...endings.values()].flat())
        first[usedBy] = Math.min(endMs, first[usedBy] ?? endMs);
      return first;
    },

    stop: looks.stop,
  };
}

export type RootKeyWatch = ReturnType<typeof watchRootKeys>;
