import { actions, areTooLong, grantsBytesMax, parseGrant } from '../domain/grants.ts';
import { createRootKeyString, digestOf } from '../domain/keyString.ts';
import { dayMs, hourMs, timeMax } from '../domain/time.ts';
import { cliActor, type RootKeyRecord } from '../store/rootKeys.ts';
import type { Store } from '../store/store.ts';
import type { CommandResult } from './result.ts';
import { requireWorkspace } from './workspaces.ts';

interface Creation {
  workspace: string;
  permission: string[];
  name?: string;
  expires?: string;
}

export async function createRootKey(
  store: Store,
  { workspace, permission, name, expires }: Creation,
): Promise<CommandResult> {
  const permissions = permission.map(readGrant);
  if (areTooLong(permissions))
    throw new Error(`--permission: the grants of a root key must not exceed ${grantsBytesMax} bytes.`);
  if (name !== undefined && (name === '' || name.length > 255))
    throw new Error('A name must have 1 to 255 characters.');
  const expiresAtMs = expires === undefined ? undefined : readExpires(expires, new Date(await store.currentMs()));
  await requireWorkspace(store, workspace);

  const { key, start } = createRootKeyString(workspace);
  const rootKey = { digest: digestOf(key), start, name, permissions, expires: expiresAtMs };
  const result = await store.rootKeys.create(workspace, rootKey, cliActor);
  if ('refused' in result) throw new Error(`The root key was refused: ${result.refused}.`);
  const { rootKeyId } = result;
  return {
    lines: [`Created root key ${rootKeyId}. It is printed only once:`, key],
    json: { rootKeyId, rootKey: key, permissions, ...(expiresAtMs !== undefined && { expires: expiresAtMs }) },
  };
}

export async function listRootKeys(store: Store, { workspace }: { workspace: string }): Promise<CommandResult> {
  await requireWorkspace(store, workspace);
  const all: RootKeyRecord[] = [];
  for (let more = true; more; ) {
    const page = await store.rootKeys.list(workspace, { after: all.at(-1)?.rootKeyId, count: 100 });
    all.push(...page.rootKeys);
    more = page.more;
  }
  return { lines: all.length > 0 ? all.map(lineOf) : ['There are no root keys.'], json: all };
}

function lineOf({ rootKeyId, start, name, enabled, expires, permissions }: RootKeyRecord): string {
  const state = enabled ? (expires === undefined ? 'enabled' : `until ${new Date(expires).toISOString()}`) : 'disabled';
  return [rootKeyId, `${start}…`, state, name, permissions.join(' ')].filter(Boolean).join('  ');
}

interface Revocation {
  workspace: string;
  rootKeyId: string;
}

export async function revokeRootKey(store: Store, { workspace, rootKeyId }: Revocation): Promise<CommandResult> {
  await requireWorkspace(store, workspace);
  const { refused } = await store.rootKeys.delete(workspace, rootKeyId, cliActor);
  if (refused === undefined) return { lines: [`Revoked root key ${rootKeyId}.`], json: { rootKeyId } };
  if (refused === 'last_root_key') {
    throw new Error(
      `${rootKeyId} is the last root key of ${workspace} with all grants. ` +
        'Create another one first, with --permission "*" and no --expires.',
    );
  }
  throw new Error(`There is no root key ${rootKeyId} in ${workspace}. \`tollgate root-key list\` prints all of them.`);
}

function readGrant(text: string): string {
  const grant = parseGrant(text);
  if (grant) return grant;
  throw new Error(
    `${text} is not a grant. A grant is *, or <resource>.<id or *>.<action>, such as api.*.verify_key. ` +
      `Resources: ${Object.keys(actions).join(', ')}.`,
  );
}

const unitMs: Record<string, number> = { m: 60_000, h: hourMs, d: dayMs };

function readExpires(text: string, now: Date): number {
  const nowMs = now.getTime();
  const [, count, unit] = /^(\d{1,9})([mhd])$/.exec(text) ?? [];
  const isDate = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d))?$/.test(text);
  const ms = unit ? nowMs + Number(count) * unitMs[unit]! : isDate ? Date.parse(text) : Number.NaN;
  if (ms > nowMs && ms <= timeMax) return ms;
  if (ms <= nowMs) throw new Error(`--expires ${text} is in the past.`);
  throw new Error(
    `--expires ${text} is not valid. Use a date (2027-01-31), a time with its zone (2027-01-31T12:00Z), ` +
      'or a duration from now (15m, 12h, 30d), up to the end of 2099.',
  );
}
