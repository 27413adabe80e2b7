// Prints what Redis stores of one key, decoded. A key string is hashed here: it is neither printed nor sent to Redis.

import { unpackRanges } from '../domain/ipRange.ts';
import { digestOf, endsAsKeyString } from '../domain/keyString.ts';
import { idForms } from '../domain/records.ts';
import type {
  Fault,
  InspectedBalance,
  InspectedCounters,
  InspectedHistory,
  InspectedIdentity,
  InspectedLimit,
  InspectedRefill,
  InspectedState,
  InspectedUsage,
  InspectedWindow,
  Inspection,
} from '../records/inspection.ts';
import type { Store } from '../store.ts';
import type { CommandResult } from './result.ts';
import { readKey, type Terminal } from './terminal.ts';
import { requireWorkspace } from './workspaces.ts';

/** Hours of the log and days that are printed; JSON has all. */
const hoursPrinted = 24;
const daysPrinted = 31;

const rootKeyPattern = /^root_\w{16}_/;

/** `text` is a key id, a key string, or `-` to read either from standard input. */
export async function inspect(
  store: Store,
  terminal: Terminal,
  text: string,
  { workspace }: { workspace: string },
): Promise<CommandResult> {
  const wanted = text === '-' ? await readKey(terminal) : text;
  if (wanted === '') throw new Error('The key is empty.');
  if (rootKeyPattern.test(wanted))
    throw new Error('This is a root key. `tollgate root-key list` prints what is stored of root keys.');
  await requireWorkspace(store, workspace);

  const isId = idForms.key.test(wanted);
  // A key may look like an id. It is sent as one only if no key has this string.
  let found = await store.keys.inspect(workspace, { digest: digestOf(wanted) });
  if (isId && found.outcome === 'unknown') found = await store.keys.inspect(workspace, { keyId: wanted });
  if (found.outcome === 'unknown') throw new Error(unknownKey(wanted, isId, workspace));
  if (found.outcome === 'deleted') throw new Error(deletedKey(found));
  const { inspection } = found;
  return { lines: linesOf(inspection, workspace), json: inspection, failed: faultsOf(inspection).length > 0 };
}

/** Does not repeat the argument: it may be a key. */
function unknownKey(wanted: string, isId: boolean, workspace: string): string {
  const check = 'Check that it is complete, and --workspace: `tollgate workspace list` prints all of them.';
  if (isId) {
    return `${workspace} has no key with this id, and none was deleted within the usage retention. ${check}`;
  }
  if (wanted.startsWith('key_') && !endsAsKeyString(wanted)) {
    return `This is not a key id, which is key_ and 24 letters and digits, and no key of ${workspace} has this string.`;
  }
  return `No key of ${workspace} has this string. ${check}`;
}

function deletedKey({ keyId, hour, purge }: { keyId: string; hour: number | undefined; purge: number | undefined }) {
  const when = hour === undefined ? '' : ` in the hour from ${timeOf(hour)}`;
  const purged = purge === undefined ? '' : ` Its record is removed after ${timeOf(purge)}.`;
  return `${keyId} was deleted${when}.${purged}`;
}

function faultsOf({ fault, state, identity, counters, history }: Inspection): Fault[] {
  const limits = [...(state?.limits ?? []), ...(identity?.limits ?? [])];
  const all = [...limits, ...counters.counters, ...(identity?.counters.counters ?? [])];
  const windows = all.map(({ window }) => window.fault);
  return [fault, identity?.fault, ...windows, history.log.fault, history.days.fault].filter(
    (each) => each !== undefined,
  );
}

const timeOf = (ms: number): string =>
  // Beyond the times of JavaScript, like the reset of the longest durations.
  Math.abs(ms) <= 8.64e15 ? new Date(ms).toISOString() : `${ms} ms`;
const number = (value: number): string => value.toLocaleString('en');
const count = (value: number, unit: string): string => `${number(value)} ${unit}${value === 1 ? '' : 's'}`;
const row = (name: string, text: string): string => `  ${name.padEnd(12)}${text}`;
const indented = (lines: readonly string[]): string[] => lines.map((line) => `  ${line}`);
const section = (title: string, lines: readonly string[]): string[] => (lines.length > 0 ? ['', title, ...lines] : []);

const faultLines = ({ field, offset, bytes, hex }: Fault): string[] => [
  `cannot be decoded: field ${field} at byte ${offset} of ${bytes} does not fit`,
  ...(hex.match(/.{1,96}/g) ?? []),
];

function linesOf(inspection: Inspection, workspace: string): string[] {
  const { now, keyId, api, state, stateBytes, fault, identity, fields, counters, history } = inspection;
  return [
    `Key ${keyId ?? '(id not readable)'} of ${workspace}`,
    row('as of', `${timeOf(now)} by the clock of Redis`),
    row('API', api ? `${api.id} ${api.name}` : 'deleted: every verification is NOT_FOUND'),
    ...section(`State, ${count(stateBytes, 'byte')}`, [
      ...(state ? stateLines(state, now, identity) : []),
      ...(fault ? indented(faultLines(fault)) : []),
    ]),
    ...section('Limits of the key', (state?.limits ?? []).flatMap(limitLines)),
    ...(identity ? identityLines(identity, now) : []),
    ...section('Counters next to the key', counterLines(counters)),
    ...section(
      'Other fields of the record',
      Object.entries(fields).map(([name, value]) =>
        row(name, name === 'allowedIps' ? unpackRanges(value).join(', ') : value),
      ),
    ),
    ...section('Usage history', historyLines(history)),
  ];
}

function stateLines(state: InspectedState, now: number, identity: InspectedIdentity | undefined): string[] {
  const { version, flags, expires, refill, balance, lastUsed, usage } = state;
  const expired = expires !== undefined && expires <= now ? ', expired' : '';
  return [
    row('version', `${version.time}, number ${version.number}`),
    row('flags', flags.includes('enabled') ? flags.join(', ') : ['not enabled', ...flags].join(', ')),
    row('expires', expires === undefined ? 'never' : `${timeOf(expires)}${expired}`),
    row('identity', identity ? `${identity.id} ${identity.externalId}` : 'none'),
    row('balance', balance === undefined ? 'unlimited' : count(balance, 'credit')),
    row('refill', refillText(refill, now)),
    row('last used', lastUsed === undefined ? 'never' : timeOf(lastUsed)),
    row('usage', usage ? `not in the history yet: ${usageText(usage)}` : 'nothing counted since the last flush'),
  ];
}

function refillText(refill: InspectedRefill | undefined, now: number): string {
  if (!refill) return 'none';
  const rule = refill.interval === 'daily' ? 'every day' : `monthly on day ${refill.day}`;
  const due = refill.due <= now ? ', due: the next request applies it' : '';
  return `to ${number(refill.amount)} ${rule}, next ${timeOf(refill.due)}${due}`;
}

function usageText({ hour, counts, spentCredits }: InspectedUsage): string {
  const counted = Object.entries(counts).map(([outcome, value]) => `${number(value)} ${outcome}`);
  return `${timeOf(hour)}  ${counted.join(', ') || 'nothing'}; ${count(spentCredits, 'credit')} spent`;
}

function limitLines({ id, name, window, until, former, ...values }: InspectedLimit): string[] {
  const amountText = ({ limit, duration, period, autoApply }: NonNullable<InspectedLimit['former']>) =>
    `${number(limit)} ${values.type === 'concurrency' ? 'slots for' : 'per'} ${period ?? `${number(duration)} ms`}, ${autoApply ? 'autoApply' : 'if the request names it'}`;
  const end = until === undefined ? '' : `, until ${timeOf(until)}, then ${former ? amountText(former) : 'none'}`;
  return [`  ${name}  ${amountText(values)}${end}  ${id}`, ...indented(indented(windowLines(window)))];
}

function windowLines(window: InspectedWindow): string[] {
  if (window.fault) return ['window', ...faultLines(window.fault)];
  const { bytes, counted, remaining, reset, isAhead, kind, base, step, sum, slices } = window;
  const counts = [
    `${number(counted)} counted`,
    ...(remaining === undefined ? [] : [`${number(remaining)} remaining`]),
    ...(reset === undefined ? [] : [`next reset ${timeOf(reset)}`]),
    ...(isAhead ? ['charged by a clock that was ahead'] : []),
  ];
  if (bytes === 0) return [`${counts.join(', ')}; empty window`];
  return [
    counts.join(', '),
    `window of ${bytes} bytes: kind ${kind}, base ${timeOf(base!)}, step ${number(step!)} ms, sum ${number(sum!)}`,
    ...slices.map(
      ({ end, units, counts }) => `  until ${timeOf(end)}  ${number(units)}${counts ? '' : '  no longer counts'}`,
    ),
  ];
}

function identityLines(identity: InspectedIdentity, now: number): string[] {
  const { id, externalId, isDeleted, isReplaced, meta, version, balance, limits, counters, fault } = identity;
  const other = isReplaced ? '; another identity has its externalId now' : '';
  return [
    ...section('Identity', [
      row('id', isDeleted ? `${id}, deleted${other}` : id),
      row('externalId', externalId),
      ...(version ? [row('version', `${version.time}, number ${version.number}`)] : []),
      ...(meta === undefined ? [] : [row('meta', meta)]),
      ...(balance ? balanceLines(balance, now) : []),
      ...(fault ? indented(['state', ...faultLines(fault)]) : []),
    ]),
    ...section('Limits of the identity, shared by its keys', limits.flatMap(limitLines)),
    ...section('Counters next to the identity', counterLines(counters)),
  ];
}

const balanceLines = ({ balance, refill, number: numbered, held }: InspectedBalance, now: number): string[] => [
  row('balance', `${count(balance, 'credit')}, number ${numbered}, ${number(held)} held`),
  row('refill', refillText(refill, now)),
];

/** Nothing in a counter distinguishes the limit of a request from a former one. */
function counterLines({ count: listed, counters }: InspectedCounters): string[] {
  if (listed === 0) return [];
  const omitted = listed - counters.length;
  return [
    ...counters.flatMap(({ name, duration, period, expiresIn, window }) => [
      `  ${name}  ${duration === 0 ? 'former limit of slots' : `ad hoc or former limit per ${period ?? `${number(duration)} ms`}`}, expires in ${number(expiresIn)} ms`,
      ...indented(indented(windowLines(window))),
    ]),
    ...(omitted > 0 ? [`  ${number(omitted)} more listed: expired, or beyond the first 100`] : []),
  ];
}

function historyLines({ log, days }: InspectedHistory): string[] {
  const lastHours = log.hours.slice(-hoursPrinted).map((hour) => usageText(hour) + ofIdentity(hour));
  const lastDays = days.days.slice(-daysPrinted).map((day) => {
    const kept = day.hours ? `, ${count(day.hours.length, 'hour')} kept` : '';
    return `${usageText({ ...day, hour: day.day })}${kept}${ofIdentity(day)}`;
  });
  return [
    ...recordLines('log', 'hour', { ...log, all: log.hours.length, last: lastHours }),
    ...recordLines('days', 'day', { ...days, all: days.days.length, last: lastDays }),
  ];
}

const ofIdentity = ({ externalId }: { externalId: string }) => externalId && `  externalId ${externalId}`;

function recordLines(
  name: string,
  of: 'hour' | 'day',
  { bytes, all, last, fault }: { bytes: number; all: number; last: string[]; fault: Fault | undefined },
): string[] {
  const title = `  ${name.padEnd(4)}  `;
  if (bytes === 0) return [`${title}nothing`];
  const unread = all === 0 && !fault ? ', too large to be read' : '';
  const omitted = all - last.length;
  return [
    `${title}${count(all, of)}, ${count(bytes, 'byte')}${unread}`,
    ...(omitted > 0 ? [`    ${count(omitted, `earlier ${of}`)} omitted: --json prints all`] : []),
    ...last.map((line) => `    ${line}`),
    ...(fault ? indented(indented(faultLines(fault))) : []),
  ];
}
