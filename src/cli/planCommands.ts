// The commands about plans: named sets of limits, permissions and roles that keys and identities have.

import { planColumns } from '../domain/columns.ts';
import type { Call, InputOf, OutputOf } from './client.ts';
import { type CommandRow, calls, confirmOption, type Given, metaOf, runs } from './commandRow.ts';
import { planLimitRow } from './limitCommands.ts';
import type { CommandResult } from './result.ts';
import { columnsOf, durationOf, firstOf, limitText, numberOf } from './table.ts';

type Plan = OutputOf<'plans.getPlan'>;
type Limit = NonNullable<InputOf<'plans.createPlan'>['ratelimits']>[number];

/** Limit of the permissions that a list prints of a plan; --json prints all. */
const permissionsPrinted = 5;

const table = columnsOf(planColumns, ['Plan', 'Limits', 'Permissions', 'Roles', 'Keys', 'Customers'], {
  Limits: ({ ratelimits }: Plan) => ratelimits.map(limitText).join(', '),
  Permissions: ({ permissions }: Plan) => firstOf(permissions, permissionsPrinted),
  Roles: ({ roles }: Plan) => roles.join(', '),
});

/** A plan by its id, or null for `none`. */
export const planOrNone = ['<planId>', (text: string) => (text === 'none' ? null : text)] as const;
export const planOption = ['--plan <planId>', 'its plan'] as const;

const periods = ['hour', 'day', 'week', 'month', 'year'] as const;

/** A limit such as `requests=100/1m`, `tokens=1000000/month` or `jobs=5/10m/concurrency`. */
export function planLimitOf(text: string): Limit {
  const [, name, limit, lasts, type, named] = /^(.+)=(\d+)\/(\w+)(\/concurrency)?(\/named)?$/.exec(text) ?? [];
  if (name === undefined) {
    throw new Error(
      `--ratelimit ${text} is not a limit. Use, for example, requests=100/1m, tokens=1000000/month, ` +
        'jobs=5/10m/concurrency, or requests=100/1m/named for one that only requests which name it are checked by.',
    );
  }
  const period = periods.find((one) => one === lasts);
  return {
    name,
    limit: numberOf(limit!, `The limit ${name}`),
    ...(period ? { period } : { duration: durationOf(lasts!, `The limit ${name}: `) }),
    ...(type && { type: 'concurrency' as const }),
    autoApply: named === undefined,
  };
}

/** A list that replaces that of the plan; `none` empties it. */
const listSet = <Item>(flags: `--${string}`, about: string, itemOf: (text: string) => Item) => {
  const member = /^--(\w+)/.exec(flags)![1]!;
  return {
    options: [[flags, `${about}; \`none\` for none`] as const],
    read(given: Given): Item[] | undefined {
      const texts = given[member] as readonly string[] | undefined;
      return texts?.length === 1 && texts[0] === 'none' ? [] : texts?.map(itemOf);
    },
  };
};

type Wanted = InputOf<'plans.updatePlan'>;

export const planRows: readonly CommandRow[] = [
  calls({
    words: 'plan list',
    about: 'List the plans, with the numbers of keys and customers that have them.',
    operation: 'plans.listPlans',
    sets: { search: ['--search <text>', 'only those whose name contains it'] },
    prints: ['plans', table],
  }),
  calls({
    words: 'plan show <planId>',
    about: 'Print a plan.',
    operation: 'plans.getPlan',
    sets: { planId: '<planId>' },
    prints: 'record',
  }),
  runs<Wanted>({
    words: 'plan set <planId>',
    about:
      'Create a plan, or change it for all keys and customers that have it, effective immediately. What is not given stays.',
    sets: {
      planId: '<planId>',
      ratelimits: listSet(
        '--ratelimit <limit...>',
        'all its limits, such as `requests=100/1m`, `tokens=1000000/month`, `jobs=5/10m/concurrency/named`; `/named`: only in requests that name it',
        planLimitOf,
      ),
      permissions: listSet('--permission <slug...>', 'all its permissions', (slug) => slug),
      roles: listSet('--role <name...>', 'all its roles', (name) => name),
      meta: ['--meta <json>', 'metadata, such as `{"name":"Pro"}`; `null` removes it', metaOf],
    },
    run: setPlan,
  }),
  planLimitRow,
  calls({
    words: 'plan delete <planId>',
    about: 'Delete a plan that no key and no customer has, or move those to another plan first.',
    operation: 'plans.deletePlan',
    sets: {
      planId: '<planId>',
      replaceWith: ['--replace-with <planId>', 'the plan that its keys and customers have from then on'],
      '--confirm': confirmOption,
    },
    confirms: (call, { planId }) => call('plans.getPlan', { planId }).then(({ data }) => data.planId),
    hasMore: ({ left }) => left !== undefined,
    prints: (_, { planId, replaceWith }) =>
      replaceWith === undefined
        ? `Deleted plan ${planId}.`
        : `Deleted plan ${planId}. Its keys and customers have ${replaceWith}.`,
  }),
];

async function setPlan(call: Call, wanted: Wanted): Promise<CommandResult> {
  const { planId, meta, ...lists } = wanted;
  const isThere = await call('plans.getPlan', { planId }).then(
    () => true,
    (error: Error & { status?: number }) => {
      if (error.status === 404) return false;
      throw error;
    },
  );
  await (isThere
    ? call('plans.updatePlan', wanted)
    : call('plans.createPlan', { planId, ...lists, ...(meta && { meta }) }));
  const { data: plan } = await call('plans.getPlan', { planId });
  const has = [
    ...plan.ratelimits.map((limit) => `the limit ${limitText(limit)}`),
    ...plan.permissions.map((slug) => `the permission ${slug}`),
    ...plan.roles.map((name) => `the role ${name}`),
  ];
  const line = `${isThere ? 'Changed' : 'Created'} plan ${planId}. It has ${has.join(', ') || 'nothing'}.`;
  return { lines: [line, ...(isThere ? [usersOf(plan)] : [])], json: plan };
}

const many = (number: number, noun: string) => `${number} ${noun}${number === 1 ? '' : 's'}`;
const usersOf = ({ keyCount, identityCount }: Plan) =>
  `${many(keyCount, 'key')} and ${many(identityCount, 'customer')} have it.`;
