// The commands that change one limit of a key, or of an identity, whose keys share it.

import type { Call, InputOf, OutputOf } from './client.ts';
import { duration, type Given, given, keyId, periodSets, runs, until } from './commandRow.ts';
import { mayHaveChanged } from './failure.ts';
import type { CommandResult } from './result.ts';
import { limitText, numberOf, tableOf } from './table.ts';

type Key = OutputOf<'keys.listKeys'>[number];
type Limit = NonNullable<Key['ratelimits']>[number];
type NewLimits = NonNullable<InputOf<'plans.updatePlan'>['ratelimits']>;
type Change = NonNullable<InputOf<'identities.updateIdentity'>['ratelimit']>;

/** Limit of the keys that are printed; --json prints all. */
const keysPrinted = 20;
/** Keys that are changed at the same time. */
const atOnce = 8;

const limitArguments = '<name> <limit> [duration]';
const about =
  'Set a limit by its name, for example `requests 100 1m` or `tokens 1000000 --per month`; `none` removes it. Other limits stay, and the duration and type of one that exists if none is given.';
const ends = until('the permanent limit before it applies again, or none');
const permanentSets = {
  'ratelimit.name': '<name>',
  'ratelimit.limit': ['<limit>', (text: string, of: string) => (text === 'none' ? null : numberOf(text, of))],
  'ratelimit.duration': ['[duration]', duration],
  'ratelimit.period': periodSets.period,
  'ratelimit.anchor': periodSets.anchor,
  'ratelimit.type': [
    '--type <type>',
    '`concurrency` for slots, which verifications take and the ends of their holds free, each for the duration at most; or `window`',
  ],
} as const;
const limitSets = {
  ...permanentSets,
  'ratelimit.until': {
    options: [...ends.options, ['--always', 'for good: also a limit that is temporary now']],
    read({ always, ...given }: Given, nowMs: number): number | null | undefined {
      const end = ends.read(given, nowMs);
      if (always && end !== undefined) throw new Error('--always and an end contradict each other. Leave one out.');
      return always ? null : end;
    },
  },
} as const;

export const keyLimitRow = runs<{ keyId: string; ratelimit: Change }>({
  words: `key limit <keyId> ${limitArguments}`,
  about,
  sets: { keyId, ...limitSets },
  async run(call, { keyId, ratelimit: given }) {
    const { data: before } = await call('keys.getKey', { keyId });
    const ratelimit = changeOf(given, before.ratelimits ?? []);
    await call('keys.updateKey', { keyId, ratelimit });
    const ratelimits = (await call('keys.getKey', { keyId })).data.ratelimits ?? [];
    return { lines: [nowHas(keyId, ratelimits)], json: { keyId, ratelimits } };
  },
});

export const identityLimitRow = runs<{ identity: string; ratelimit: Change }>({
  words: `identity limit <owner> ${limitArguments}`,
  about: `${about} All keys of the identity share it, except those with a limit of that name of their own, which are printed.`,
  sets: {
    identity: '<owner>',
    ...limitSets,
    '--keys': ['--keys', 'change the limits of that name of its keys too, which keep their durations if none is given'],
  },
  async run(call, { identity, ratelimit: change }, { given: { keys } }) {
    const { data: before } = await call('identities.getIdentity', { identity });
    const ratelimit = changeOf(change, before.ratelimits);
    const { data } = await call('identities.updateIdentity', { identity: before.id, ratelimit });
    const { externalId, ratelimits } = data;
    const line = nowHas(externalId, ratelimits);
    try {
      const { own, total } = await keysWithOwn(call, externalId, ratelimit.name);
      const ofKeys = await (keys ? changeKeys(call, own, ratelimit) : keptResult(own, total, ratelimit.name));
      return { ...ofKeys, lines: [line, ...ofKeys.lines], json: { identity: externalId, ratelimits, ...ofKeys.json } };
    } catch (error) {
      const note = `Whether its keys have limits of that name of their own is not known: ${(error as Error).message}`;
      return { lines: [line], notes: [note], json: { identity: externalId, ratelimits }, failed: keys === true };
    }
  },
});

export const planLimitRow = runs<{ planId: string; ratelimit: Change }>({
  words: `plan limit <planId> ${limitArguments}`,
  about: `${about} It applies to all keys and customers that have the plan, except those with a limit of that name of their own.`,
  sets: { planId: '<planId>', ...permanentSets },
  async run(call, { planId, ratelimit: given }) {
    const { data: before } = await call('plans.getPlan', { planId });
    const change = changeOf(given, before.ratelimits);
    const { data } = await call('plans.updatePlan', { planId, ratelimits: withChange(before.ratelimits, change) });
    const { ratelimits } = data;
    return { lines: [nowHas(planId, ratelimits)], json: { planId, ratelimits } };
  },
});

/** The limits of a plan with one change: a plan is updated with all of its limits. */
function withChange(limits: readonly Limit[], { limit, ...change }: Change): NewLimits {
  const before = limits.find(({ name }) => name === change.name);
  if (limit === null) return limits.filter((one) => one !== before);
  const { duration, period, anchor, type, ...kept } = before ?? {};
  // Another duration or period replaces both. Without a type, the operation keeps that of the limit before.
  const replaced = change.duration === undefined ? {} : { type: type === 'concurrency' ? type : 'window' };
  const isReplaced = change.duration !== undefined || change.period !== undefined;
  const lasts = isReplaced ? replaced : { duration, period, anchor, type };
  const changed = given({ ...kept, ...lasts, ...change, limit }) as NewLimits[number];
  return before ? limits.map((one) => (one === before ? changed : one)) : [...limits, changed];
}

/** The change of one limit, as the operation expects it. A new one is checked in every verification. */
function changeOf(given: Change, limits: readonly Limit[]): Change {
  const { name, limit, duration, period, until } = given;
  if (limit === null) {
    if (typeof until === 'number') throw new Error('A limit is removed at once. Leave --for and --until out.');
    return { name, limit };
  }
  if (limits.some((one) => one.name === name)) return given;
  if (duration !== undefined || period !== undefined) return { ...given, autoApply: true };
  const names = limits.map((one) => one.name).join(', ');
  throw new Error(
    `There is no limit ${name}${names && `, only ${names}`}. Give a duration or a period to add it, such as \`${limit} 1m\` or \`${limit} --per month\`.`,
  );
}

const nowHas = (owner: string, limits: readonly Limit[]) =>
  `${owner} now has ${limits.length === 0 ? 'no limits' : `the limits ${limits.map(limitText).join(', ')}`}.`;

interface OwnLimit {
  key: Key;
  own: Limit;
}

/**
 * The keys of an identity that have a limit of this name of their own, which is used instead of that of the identity.
 */
async function keysWithOwn(call: Call, externalId: string, name: string): Promise<{ own: OwnLimit[]; total: number }> {
  const own: OwnLimit[] = [];
  let total = 0;
  let next: string | undefined;
  do {
    const page = await call('keys.listKeys', { externalId, limit: 100 }, next);
    total += page.data.length;
    for (const key of page.data) {
      const limit = key.ratelimits?.find((one) => one.name === name);
      if (limit) own.push({ key, own: limit });
    }
    ({ next } = page);
  } while (next !== undefined);
  return { own, total };
}

type KeysResult = Omit<CommandResult, 'json'> & { json: object };

const jsonOf = (own: readonly OwnLimit[]) => own.map(({ key, own: limit }) => ({ keyId: key.keyId, ...limit }));

function keptResult(own: readonly OwnLimit[], total: number, name: string): KeysResult {
  const json = { keysWithOwnLimit: jsonOf(own) };
  if (own.length === 0) return { lines: [], json };
  const [have, their] = own.length === 1 ? ['has', 'its'] : ['have', 'their'];
  const sentence =
    `${own.length} of its ${total} keys ${have} a limit ${name} of ${their} own, which is used instead. ` +
    '--keys changes these too:';
  const rows = own
    .slice(0, keysPrinted)
    .map(({ key, own: limit }) => [key.keyId, key.start, key.name ?? '', limitText(limit)]);
  const more = own.length > keysPrinted ? [`… and ${own.length - keysPrinted} more. --json prints all.`] : [];
  return { lines: [sentence, ...tableOf(['KEY', 'START', 'NAME', 'LIMIT'], rows), ...more], json };
}

/** Changes the limit of each key by itself. A key that was deleted meanwhile needs no change. */
async function changeKeys(call: Call, own: readonly OwnLimit[], ratelimit: Change): Promise<KeysResult> {
  const { autoApply: _autoApply, ...change } = ratelimit;
  const failed: { keyId: string; error: string; unknown?: boolean }[] = [];
  const changed: string[] = [];
  const changeOne = async ({ key: { keyId } }: OwnLimit) => {
    try {
      await call('keys.updateKey', { keyId, ratelimit: change });
      changed.push(keyId);
    } catch (error) {
      const { status, message } = error as Error & { status?: number };
      const unknown = mayHaveChanged(error as Error) && { unknown: true };
      if (status !== 404) failed.push({ keyId, error: message, ...unknown });
    }
  };
  for (let at = 0; at < own.length; at += atOnce) await Promise.all(own.slice(at, at + atOnce).map(changeOne));
  const line = `Changed the limits ${ratelimit.name} of ${changed.length} of its keys, too.`;
  const notes = failed
    .slice(0, keysPrinted)
    .map(
      ({ keyId, error, unknown }) => `${keyId} ${unknown ? 'may have been changed' : 'keeps its own limit'}: ${error}`,
    )
    .concat(failed.length > keysPrinted ? [`… and ${failed.length - keysPrinted} more keys. --json prints all.`] : []);
  const json = { changedKeys: changed, ...(failed.length > 0 && { failedKeys: failed }) };
  return { lines: own.length > 0 ? [line] : [], notes, json, failed: failed.length > 0 };
}
