// Prints why a key would pass or be refused, rule by rule.

import { idForms } from '../domain/records.ts';
import type { Call, InputOf, OutputOf } from './client.ts';
import { runs } from './commandRow.ts';
import type { CommandResult } from './result.ts';
import { endText, lastsText, limitText, numberOf, tableOf, timeText } from './table.ts';

type Explanation = OutputOf<'keys.explainKey'>;
type Rule = Explanation['rules'][number];

export const explainRow = runs<InputOf<'keys.explainKey'>>({
  words: 'key explain <key>',
  about:
    'Print what a verification would respond, rule by rule, by key id (key_…) or key. Charges nothing. `-` reads the key from standard input, so that no process list or history has it.',
  sets: {
    key: '<key>',
    keyId: '<key>',
    permissions: ['--permissions <query>', 'as if the verification required them, such as `docs.read AND docs.write`'],
    'credits.cost': ['--cost <n>', 'as if the verification charged this many credits; 1 by default', numberOf],
    ratelimits: [
      '--ratelimit <name=cost...>',
      'as if it charged this limit so many units, such as `requests=5`',
      limitCostOf,
    ],
    tags: ['--tag <tag...>', 'as if it had this tag'],
    ip: ['--ip <address>', 'as if the end user had this IP address'],
  },
  async run(call, { key: named, keyId: _same, ...verification }, { readKey }) {
    const wanted = named === '-' ? await readKey() : named!;
    const explain = async (of: { key: string } | { keyId: string }) =>
      (await call('keys.explainKey', { ...of, ...verification })).data;
    const byId = idForms.key.test(wanted) ? await explain({ keyId: wanted }) : undefined;
    // The string of a key may look like an id.
    const found = byId && byId.rules[0]?.reason !== 'unknown' ? byId : await explain({ key: wanted });
    return explainedResult(found, await uncheckedOf(call, found));
  },
});

/** A limit of the key by its name, and the units to charge if they follow. */
export function limitCostOf(given: string): { name: string; cost?: number } {
  const [, name, cost] = /^(.+)=([^=]*)$/.exec(given) ?? [];
  return name === undefined ? { name: given } : { name, cost: numberOf(cost!, `The cost of ${name}`) };
}

/** The limits of the key that this verification does not check, as texts. None if the caller may not read the key. */
async function uncheckedOf(call: Call, { keyId, rules }: Explanation): Promise<string[]> {
  if (keyId === undefined) return [];
  const { ratelimits = [] } = (await call('keys.getKey', { keyId }).catch(() => undefined))?.data ?? {};
  const checked = rules.flatMap((rule) => (rule.ratelimits ?? []).map(({ name }) => name));
  return ratelimits.filter(({ name, autoApply }) => !autoApply && !checked.includes(name)).map(limitText);
}

function explainedResult(found: Explanation, unchecked: readonly string[]): CommandResult {
  const { valid, code, keyId, apiId, externalId, rules, charge, leased } = found;
  const charged = [
    ...(charge.credits > 0 ? [charge.credits === 1 ? '1 credit' : `${charge.credits} credits`] : []),
    ...charge.ratelimits.map(({ name, cost }) => `${cost} of limit ${name}`),
  ];
  const of = [keyId, apiId && `of ${apiId}`, externalId && `owned by ${externalId}`].filter(Boolean).join(' ');
  return {
    lines: [
      of ? `${code}: ${of}` : code,
      ...tableOf(
        ['RULE', 'RESULT', 'FIGURES'],
        rules.map((rule) => [rule.rule, rule.result.replace('_', ' '), figuresOf(rule)]),
      ),
      ...(unchecked.length > 0 ? [`Limits that are not checked: ${unchecked.join(', ')}.`] : []),
      ...(valid ? [`A verification would charge ${charged.join(', ') || 'nothing'}.`] : []),
      ...(leased
        ? [`Charged in advance by servers: ${leased.key} by this key, ${leased.identity} by its identity.`]
        : []),
    ],
    json: found,
  };
}

function figuresOf(rule: Rule): string {
  const { allowedIps, slugs, missing, ratelimits = [], balance, debt, cost, remaining, refill } = rule;
  return [
    rule.reason?.replaceAll('_', ' '),
    rule.expires !== undefined && `at ${timeText(rule.expires)}`,
    allowedIps && `${rule.ip ?? 'no address'}; ${allowedIps.join(', ')} may use it`,
    slugs && `has ${slugs.filter(({ held }) => held).length} of ${slugs.length} permissions`,
    missing && `missing: ${missing.join(', ')}`,
    ...ratelimits.map(
      ({ name, of, planId, used, limit, cost, reset, ...rest }) =>
        `${name} of ${of}${planId === undefined ? '' : ` (plan ${planId})`}: ${used} of ${limit} ${lastsText(rest, rest.type)}${endText(rest)}${
          rest.period ? `, renews ${timeText(reset)}` : ''
        }, cost ${cost}`,
    ),
    ...balanceTexts('balance', { balance, debt, remaining, refill }, cost, rule.result),
    ...balanceTexts('balance of the identity', rule.identity ?? {}, cost, rule.result),
    rule.of && `that of the ${rule.of} is too small`,
  ]
    .filter(Boolean)
    .join('; ');
}

function balanceTexts(
  name: string,
  { balance, debt, remaining, refill }: NonNullable<Rule['identity']>,
  cost: number | undefined,
  result: Rule['result'],
) {
  return [
    balance !== undefined && `${name} ${balance}${debt === undefined ? '' : `, debt ${debt}`}, cost ${cost}`,
    result === 'passed' && remaining !== undefined && `then ${remaining}`,
    refill && `refill of ${refill.amount} at ${timeText(refill.next)}`,
  ];
}
