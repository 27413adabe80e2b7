// Moves an API to another workspace while its keys are verified, and ends its forwarding. docs/moving.md describes it.

import { setTimeout as delay } from 'node:timers/promises';
import { type Move, membersMax, type Obstacle, type PlannedKey } from '../records/moves.ts';
import type { Store } from '../store.ts';
import { startProgress } from './progress.ts';
import type { CommandResult } from './result.ts';
import type { Terminal } from './terminal.ts';
import { requireWorkspace } from './workspaces.ts';

interface MoveOptions {
  to: string;
  identities?: string | undefined;
  dryRun?: true | undefined;
}

/** Data of earlier versions cannot send verifications on. */
const movesSince = 6;
/** Keys that are examined at once, and keys that are moved at once: their verifications wait for it. */
const pageSize = { survey: 500, move: 100 };
/** Obstacles that an error names. */
const namedMax = 10;
/** Pages of which no key could be taken, because other keys were added to their identities at the same time. */
const attemptsMax = 20;
const retryMs = 100;

type MoveStore = Pick<Store, 'moves' | 'workspaces' | 'apis' | 'dataVersion'>;

interface Survey {
  keys: number;
  deletedKeys: number;
  identities: number;
  obstacles: Obstacle[];
}

const count = (number: number, noun: string) => `${number.toLocaleString('en')} ${noun}${number === 1 ? '' : 's'}`;

export async function moveApi(
  store: MoveStore,
  terminal: Terminal,
  { workspace, apiId }: { workspace: string; apiId: string },
  { to, identities, dryRun }: MoveOptions,
): Promise<CommandResult> {
  const move = { from: workspace, to, apiId };
  await checkMove(store, move, identities);
  const mayCopy = identities === 'copy';
  const ended = await endedBefore(store, move);
  if (ended !== undefined) return moved(move, ended);
  const survey = await surveyOf(store, move, mayCopy);
  await requireNoObstacles(store, move, survey);
  if (dryRun) return described(move, survey);
  await begin(store, move);
  const progress = startProgress(terminal.stderr, 'Moving', Math.max(1, survey.keys + survey.deletedKeys), 'keys');
  try {
    await moveAll(store, move, mayCopy, (moved) => progress.update(moved, moved));
  } finally {
    progress.stop();
  }
  await store.moves.finish(move);
  const { taken = 0 } = (await store.moves.find(workspace, apiId)) ?? {};
  return moved(move, taken);
}

function moved(move: Move, keys: number): CommandResult {
  const { from, to, apiId } = move;
  const line =
    `${apiId} is in ${to}, with ${count(keys, 'key')}. ${from} sends verifications of these keys on until ` +
    `\`tollgate api end-forwarding ${apiId}\`: give the gateways a root key of ${to} first.`;
  return { lines: [line], json: { ...move, outcome: 'moved', keys } };
}

/** The number of keys, if the API was moved there before; undefined if it can be moved. Throws if it cannot. */
async function endedBefore({ moves, apis }: MoveStore, move: Move): Promise<number | undefined> {
  const { from, to, apiId } = move;
  const before = await moves.find(from, apiId);
  const api = await apis.find(from, apiId);
  const there = await apis.find(to, apiId);
  if (!api && !before) throw new Error(`${from} has no API ${apiId}.`);
  const hasEnded = before?.state === 'moved';
  if (before && !hasEnded) {
    if (before.to !== to) throw new Error(`${apiId} is being moved to ${before.to}.`);
    return undefined;
  }
  // An API that came back may be moved again.
  if (!api) {
    if (before!.to !== to) throw new Error(`${apiId} was moved to ${before!.to}.`);
    await moves.received(move);
    return before!.taken;
  }
  if (there) throw new Error(existsMessage(move));
  return undefined;
}

const existsMessage = ({ to, apiId }: Move) =>
  `${to} has an API ${apiId}, or had one whose keys are still being removed.`;

async function checkMove(store: MoveStore, { from, to, apiId }: Move, identities: string | undefined) {
  if (!/^api_\w{16}$/.test(apiId)) throw new Error('<apiId> must be the id of an API (api_…).');
  if (/^[a-z+]+:\/\//i.test(to))
    throw new Error(
      '--to must be the id of a workspace (ws_…) of this installation. Move the API to a workspace of its own first; ' +
        'then move that workspace to the other installation with `tollgate export --workspace` and `tollgate import`.',
    );
  if (identities !== undefined && identities !== 'copy') throw new Error('--identities can only be `copy`.');
  const { current } = store.dataVersion;
  if (current < movesSince)
    throw new Error(
      `A move needs version ${movesSince} of the stored data, and it has version ${current} until all servers are upgraded and it is migrated.`,
    );
  if (from === to) throw new Error(`${apiId} is in ${to}: --to must be another workspace.`);
  for (const workspace of [from, to]) {
    await requireWorkspace(store as Store, workspace);
    if (await store.workspaces.isImporting(workspace)) throw new Error(`An import of ${workspace} is not finished.`);
  }
}

/** Reads all keys, to find out before anything is changed what cannot be moved. */
async function surveyOf({ moves }: MoveStore, move: Move, mayCopy: boolean): Promise<Survey> {
  const survey: Survey = { keys: 0, deletedKeys: 0, identities: 0, obstacles: [] };
  const identities = new Set<string>();
  for (const isDeleted of [false, true]) {
    let after = '';
    do {
      const page = await moves.plan(move, { isDeleted, after, count: pageSize.survey });
      survey[isDeleted ? 'deletedKeys' : 'keys'] += page.keys.length;
      for (const { identity16 } of page.keys) if (identity16 !== '') identities.add(identity16);
      const found = await moves.obstacles(move, page.keys, mayCopy);
      const known = new Set(survey.obstacles.map(({ reason, of }) => reason + of));
      survey.obstacles.push(...found.filter(({ reason, of }) => !known.has(reason + of)));
      after = page.next;
    } while (after !== '' && survey.obstacles.length < 1000);
  }
  survey.identities = identities.size;
  return survey;
}

const meanings: Record<Obstacle['reason'], string> = {
  shared_limits:
    'Limits of these identities are shared with keys of other APIs, which stay. With --identities copy each workspace ' +
    'has these limits, and counts them by itself from then on',
  shared_balance:
    'A balance of these identities is shared with keys of other APIs, which stay. Remove it (identities.updateCredits), ' +
    'or give the keys credits of their own',
  too_many_keys: `More than ${membersMax} keys share the limits or balance of these identities, and would have to be moved at once. Limits can be copied: --identities copy`,
  key_exists: 'The other workspace has keys with the strings of these keys',
  identity_exists:
    'The other workspace has identities of these names with limits of their own, or a balance would be lost',
};

async function requireNoObstacles({ moves }: MoveStore, { from, to }: Move, { obstacles }: Survey) {
  const lines = (Object.keys(meanings) as Obstacle['reason'][]).flatMap((reason) => {
    const of = obstacles.filter((each) => each.reason === reason).map((each) => each.of);
    return of.length === 0 ? [] : [`${meanings[reason]}: ${listed(of)}.`];
  });
  const roles = await moves.differingRoles(from, to);
  if (roles.length > 0) lines.push(`These roles have other permissions in ${to}: ${listed(roles)}.`);
  if (lines.length > 0) throw new Error(['The API cannot be moved. Nothing was changed.', ...lines].join('\n'));
}

const listed = (names: readonly string[]) =>
  names.slice(0, namedMax).join(', ') + (names.length > namedMax ? ` and ${names.length - namedMax} more` : '');

function described(move: Move, survey: Survey): CommandResult {
  const { keys, deletedKeys, identities } = survey;
  const size = `${count(keys, 'key')}, ${count(deletedKeys, 'deleted key')} and what they have of ${count(identities, 'identity').replace(/identitys$/, 'identities')}`;
  return {
    lines: [`${move.apiId} can be moved to ${move.to}: ${size}. Nothing was changed.`],
    json: { ...move, keys, deletedKeys, identities },
  };
}

async function begin({ moves }: MoveStore, move: Move) {
  const begun = await moves.begin(move);
  if (begun.outcome === 'begun') return;
  if (begun.outcome === 'other') throw new Error(`${move.apiId} is being moved to ${begun.other}.`);
  if (begun.outcome === 'exists') throw new Error(existsMessage(move));
  throw new Error(`${move.from} has no API ${move.apiId}.`);
}

/** Moves all keys, also those that are created meanwhile, and closes the API. */
async function moveAll(store: MoveStore, move: Move, mayCopy: boolean, onMoved: (moved: number) => void) {
  const { moves } = store;
  let moved = 0;
  for (;;) {
    // Of a command that was interrupted.
    for (let digests = await moves.onTheWay(move); digests.length > 0; digests = await moves.onTheWay(move)) {
      await moves.bring(move, digests);
    }
    for (const isDeleted of [false, true]) {
      for (let attempts = 0; ; ) {
        const { keys } = await moves.plan(move, { isDeleted, after: '', count: pageSize.move });
        if (keys.length === 0) break;
        const taken = await movePage(store, move, keys, mayCopy);
        moved += taken;
        onMoved(moved);
        attempts = taken > 0 ? 0 : attempts + 1;
        if (attempts === attemptsMax)
          throw new Error('Keys are added again and again to the identities of keys. Run the command again.');
        if (taken === 0) await delay(retryMs);
      }
    }
    if (await moves.close(move)) return;
    // Keys were created meanwhile, or the API was deleted and the sweeper removes its keys.
    await delay(retryMs);
  }
}

async function movePage(store: MoveStore, move: Move, keys: readonly PlannedKey[], mayCopy: boolean): Promise<number> {
  const { moves } = store;
  const obstacles = await moves.obstacles(move, keys, mayCopy);
  if (obstacles.length > 0)
    await requireNoObstacles(store, move, { obstacles, keys: 0, deletedKeys: 0, identities: 0 });
  const digests = new Map<string, Buffer>();
  for (const { digest, members } of keys) {
    for (const each of [digest, ...members]) digests.set(each.toString('latin1'), each);
  }
  return moves.moveKeys(move, [...digests.values()], mayCopy);
}

export async function endForwarding(
  store: Pick<Store, 'moves'>,
  { workspace, apiId }: { workspace: string; apiId: string },
): Promise<CommandResult> {
  const keys = await store.moves.unforward(workspace, apiId);
  if (keys === 'none') throw new Error(`${workspace} does not send on verifications of ${apiId}.`);
  if (keys === 'moving') throw new Error(`${apiId} is still being moved: \`tollgate api move\` continues.`);
  const line = `${workspace} no longer sends on verifications of ${count(keys, 'key')} of ${apiId}: they are NOT_FOUND there.`;
  return { lines: [line], json: { workspaceId: workspace, apiId, keys } };
}
