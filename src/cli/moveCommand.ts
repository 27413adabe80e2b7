// Moves an API to another workspace while its keys are verified, and ends its forwarding. docs/moving.md describes it.

import { setTimeout as delay } from 'node:timers/promises';
import { tooOld } from '../operations/rules.ts';
import { type Move, membersMax, type Obstacle, type Permitted, type PlannedKey } from '../records/moves.ts';
import type { Store } from '../store.ts';
import { type Progress, withProgress } from './progress.ts';
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
/** Obstacles that an error names, and about how many are looked for. */
const namedMax = 10;
const obstaclesMax = 1000;
/** Pages of which no key could be taken, because other keys were added to their identities at the same time. */
const attemptsMax = 20;
const retryMs = 100;

type MoveStore = Pick<Store, 'moves' | 'workspaces' | 'apis' | 'sweep' | 'dataVersion'>;

interface Survey {
  keys: number;
  deletedKeys: number;
  identities: number;
  /** At most, in the other workspace: without those that exist there. */
  newRecords: number;
  obstacles: Obstacle[];
  /** Names of roles. */
  differingRoles: string[];
}

const count = (number: number, noun: string, nouns = `${noun}s`) =>
  `${number.toLocaleString('en')} ${number === 1 ? noun : nouns}`;

export async function moveApi(
  store: MoveStore,
  terminal: Terminal,
  { workspace, apiId, recordsMax }: { workspace: string; apiId: string; recordsMax: number },
  { to, identities, dryRun }: MoveOptions,
): Promise<CommandResult> {
  const move = { from: workspace, to, apiId };
  await checkMove(store, move, identities);
  const before = await moveBefore(store, move);
  if (before?.state === 'moved') {
    await store.moves.received(move);
    return moved(move, before.taken);
  }
  // A move that has begun goes on with what it finds.
  const isBegun = before !== undefined;
  if (isBegun && !dryRun) await continueMove(store, move);
  const permitted = { mayCopy: identities === 'copy', mayJoin: isBegun };
  const survey = await surveyOf(store, move, permitted);
  requireNoObstacles(move, survey, isBegun);
  if (!isBegun) await requireRoom(store, move, survey, recordsMax);
  if (dryRun) return described(move, survey);
  await begin(store, move);
  const run = (progress: Progress) => moveAll(store, move, permitted.mayCopy, (moved) => progress.update(moved, moved));
  try {
    await withProgress(run, terminal.stderr, 'Moving', Math.max(1, survey.keys + survey.deletedKeys), 'keys');
    await store.moves.finish(move);
  } catch (error) {
    // Another process that continued it may have ended it meanwhile.
    if ((await store.moves.find(workspace, apiId))?.state !== 'moved') throw error;
    await store.moves.received(move);
  }
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

/**
 * The move there that has begun or ended; undefined if none has, or the API has come back since. Throws if the API can
 * not be moved there.
 */
async function moveBefore({ moves, apis }: MoveStore, { from, to, apiId }: Move) {
  const before = await moves.find(from, apiId);
  const isHere = (await apis.find(from, apiId)) !== undefined;
  if (before && !(before.state === 'moved' && isHere)) {
    if (before.to === to) return before;
    throw new Error(`${apiId} ${before.state === 'moved' ? 'was' : 'is being'} moved to ${before.to}.`);
  }
  if (!isHere) throw new Error(`${from} has no API ${apiId}.`);
  const receivedFrom = await moves.receivedFrom(from, apiId);
  if (receivedFrom !== undefined) throw new Error(receivingMessage({ from, apiId }, receivedFrom));
  return undefined;
}

const receivingMessage = ({ from, apiId }: Pick<Move, 'from' | 'apiId'>, receivedFrom: string) =>
  `${apiId} is still being moved from ${receivedFrom} to ${from}: let that command end first, or run it again.`;

async function checkMove(store: MoveStore, { from, to, apiId }: Move, identities: string | undefined) {
  if (!/^api_\w{16}$/.test(apiId)) throw new Error('<apiId> must be the id of an API (api_…).');
  if (/^[a-z+]+:\/\//i.test(to))
    throw new Error(
      '--to must be the id of a workspace (ws_…) of this installation. Move the API to a workspace of its own first; ' +
        'then move that workspace to the other installation with `tollgate export --workspace` and `tollgate import`.',
    );
  if (identities !== undefined && identities !== 'copy') throw new Error('--identities can only be `copy`.');
  const old = tooOld(store, movesSince, 'A move');
  if (old !== undefined) throw new Error(`${old}.`);
  if (from === to) throw new Error(`${apiId} is in ${to}: --to must be another workspace.`);
  for (const workspace of [from, to]) {
    await requireWorkspace(store as Store, workspace);
    if (await store.workspaces.isImporting(workspace)) throw new Error(`An import of ${workspace} is not finished.`);
  }
}

/** Reads all keys, to find out before anything is changed what cannot be moved. */
async function surveyOf({ moves }: MoveStore, move: Move, permitted: Permitted): Promise<Survey> {
  const found = { keys: 0, deletedKeys: 0 };
  const identities = new Set<string>();
  const newIdentities = new Set<string>();
  const roleLists = new Set<string>();
  const obstacles = new Map<string, Obstacle>();
  for (const isDeleted of [false, true]) {
    let after = '';
    do {
      const page = await moves.plan(move, { isDeleted, after, count: pageSize.survey });
      found[isDeleted ? 'deletedKeys' : 'keys'] += page.keys.length;
      for (const { identity16 } of page.keys) if (identity16 !== '') identities.add(identity16);
      for (const list of page.roleLists) roleLists.add(list);
      const there = await moves.obstacles(move, page.keys, permitted);
      for (const externalId of there.newIdentities) newIdentities.add(externalId);
      for (const obstacle of there.obstacles) obstacles.set(`${obstacle.reason} ${obstacle.of}`, obstacle);
      after = page.next;
    } while (after !== '' && obstacles.size < obstaclesMax);
  }
  return {
    ...found,
    identities: identities.size,
    // The API and the root key of the forwarding, too.
    newRecords: 2 + found.keys + found.deletedKeys + newIdentities.size + (await moves.newGrants(move.from)),
    obstacles: [...obstacles.values()],
    differingRoles: await moves.differingRoles(move.from, move.to, [...roleLists]),
  };
}

async function requireRoom({ sweep }: MoveStore, { to }: Move, { newRecords }: Survey, recordsMax: number) {
  if (recordsMax === 0) return;
  const records = await sweep.count(to);
  if (records + newRecords <= recordsMax) return;
  throw new Error(
    `The API cannot be moved. Nothing was changed.\n${to} has ${count(records, 'record')} and would get up to ` +
      `${newRecords.toLocaleString('en')} more: RECORDS_MAX is ${recordsMax.toLocaleString('en')}.`,
  );
}

const meanings: Record<Obstacle['reason'], string> = {
  api_exists: 'The other workspace has an API of this id, or a deleted one that was not removed yet',
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
  identity_limited:
    'The other workspace has identities of these names with limits or a balance, which these keys do not have now',
};

function requireNoObstacles(
  { to }: Move,
  { obstacles, differingRoles }: Pick<Survey, 'obstacles' | 'differingRoles'>,
  isBegun: boolean,
) {
  const lines = (Object.keys(meanings) as Obstacle['reason'][]).flatMap((reason) => {
    const of = obstacles.filter((each) => each.reason === reason).map((each) => each.of);
    return of.length === 0 ? [] : [`${meanings[reason]}: ${listed(of)}.`];
  });
  if (differingRoles.length > 0) lines.push(`These roles have other permissions in ${to}: ${listed(differingRoles)}.`);
  if (lines.length === 0) return;
  const what = isBegun
    ? 'The move has stopped. Keys that were not moved stay until the command is run again.'
    : 'The API cannot be moved. Nothing was changed.';
  throw new Error([what, ...lines].join('\n'));
}

const listed = (names: readonly string[]) =>
  names.slice(0, namedMax).join(', ') + (names.length > namedMax ? ` and ${names.length - namedMax} more` : '');

function described(move: Move, survey: Survey): CommandResult {
  const { keys, deletedKeys, identities } = survey;
  const size =
    `${count(keys, 'key')}, ${count(deletedKeys, 'deleted key')} and what they have of ` +
    count(identities, 'identity', 'identities');
  return {
    lines: [`${move.apiId} can be moved to ${move.to}: ${size}. Nothing was changed.`],
    json: { ...move, keys, deletedKeys, identities },
  };
}

async function begin({ moves }: MoveStore, move: Move) {
  const { outcome, other = '' } = await moves.begin(move);
  if (outcome === 'begun') return;
  if (outcome === 'other') throw new Error(`${move.apiId} is being moved to ${other}.`);
  if (outcome === 'receiving') throw new Error(receivingMessage(move, other));
  if (outcome === 'exists') throw new Error(`${meanings.api_exists}: ${move.apiId}.`);
  throw new Error(`${move.from} has no API ${move.apiId}.`);
}

/** Brings keys that were on their way when a command was interrupted: before anything else, as calls wait for them. */
async function continueMove(store: MoveStore, move: Move) {
  await begin(store, move);
  await bringAll(store, move);
}

async function bringAll({ moves }: MoveStore, move: Move) {
  for (let digests = await moves.onTheWay(move); digests.length > 0; digests = await moves.onTheWay(move)) {
    await moves.bring(move, digests);
  }
}

/** Moves all keys, also those that are created meanwhile, and closes the API. */
async function moveAll(store: MoveStore, move: Move, mayCopy: boolean, onMoved: (moved: number) => void) {
  const { moves } = store;
  let moved = 0;
  for (;;) {
    // Of another process that moves it, too.
    await bringAll(store, move);
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
  const { obstacles } = await moves.obstacles(move, keys, { mayCopy, mayJoin: true });
  requireNoObstacles(move, { obstacles, differingRoles: [] }, true);
  const digests = new Map<string, Buffer>();
  for (const { digest, members } of keys) {
    // A key that draws on a balance arrives after the key that has it, which is the first of the members.
    for (const each of [...members, digest]) digests.set(each.toString('latin1'), each);
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
