import Type from 'typebox';
import { digestOf } from '../../domain/keyString.ts';
import { apisOf, type Owed, owing, type Prices } from '../../domain/price.ts';
import { manages } from '../../operation.ts';
import type { CustomerRow, CustomersFrom } from '../../usage/customers.ts';
import type { Period } from '../../usage/query.ts';
import { listOf } from '../lists.ts';
import { invalid } from '../rules.ts';
import { ApiId, Cursor, Fields, Int, may, out, PlanId } from '../schemas.ts';
import { counted, periodOf, timeFields } from './buckets.ts';

export const listCustomers = manages({
  name: 'analytics.listCustomers',
  summary: 'List all customers of a period with their verifications and credits, for a bill.',
  description:
    'Of any number of customers. Usage is added up by the first pages, which may be empty although more follow: `looked` is the number of used keys that were read meanwhile, of `total`.',
  input: Fields({
    apiId: Type.Optional(ApiId),
    planId: Type.Optional({ ...PlanId, description: 'Only identities that have this plan now.' }),
    ...timeFields,
    limit: Type.Optional(Int([1, 1000], 'Number of rows of a page.', 100)),
    cursor: Type.Optional(Cursor),
  }),
  output: out.objects('A row for each customer, in order of `externalId`, byte by byte.', {
    externalId: may.text('externalId of the identity. Absent in the row of keys without an identity.'),
    count: out.int('Number of verifications.'),
    outcomes: Type.Object(
      Object.fromEntries(
        counted.map((outcome) => [outcome, may.int(`Number of verifications with ${outcome}.`)]),
      ) as never,
      { description: 'The same by outcome, without those of which there are none.' },
    ),
    spentCredits: out.int('Credits that they spent.'),
    planId: may.text('Plan of the identity now, if it has one.'),
    owed: may.object(
      'What the customer owes, if the workspace has prices and the root key has `workspace.*.read_settings`. Steps count the verifications and credits of this listing only. Absent in the row of keys without an identity.',
      { amount: out.text('Decimal number, such as `31.20`.'), currency: out.text('Code of the currency.') },
    ),
  }),
  needs: { api: ['read_analytics'] },
  // A caller with grants for some APIs gets only their usage.
  scope: () => undefined,
  // The cursor contains the period, because the default period moves.
  list: (query) => listOf('customers', query, 12),
  listedIds: 'customer',

  async handle({ apiId, planId, start, end, limit = 100 }, { store, caller, after }) {
    const place = after === undefined ? undefined : readPlace(after);
    const period = place?.period ?? periodOf({ start, end }, 'total', await store.currentMs());
    const apiIds = caller.grants.idsFor('api', 'read_analytics', apiId);
    const mayRead = caller.grants.holds('workspace', '*', 'read_settings');
    const { prices } = mayRead ? await store.workspaces.settings(caller.workspaceId) : {};
    const priced = prices && digestOf(JSON.stringify(prices)).toString('hex', 0, 6);
    if (place && place.priced !== priced)
      throw invalid('body.cursor', 'is of other prices than those that apply now', 'Begin again without a cursor.');
    const query = { ...period, apiIds, planId, apart: prices && apisOf(prices), from: place?.from, limit };
    const { customers, next, looked, total } = await store.analytics.customers(caller.workspaceId, query);
    return {
      items: customers.map(itemsBy(prices)) as never[],
      next: next && placeText(period, next, priced),
      ...(total !== undefined && { looked: looked!, total }),
    };
  },
});

/** Names each field, because copying the others of a thousand rows takes most of the time of a page. */
function itemsBy(prices: Prices | undefined) {
  const owedBy = prices && owedOf(prices);
  return (row: CustomerRow) => {
    const { externalId, count, outcomes, spentCredits, planId } = row;
    if (externalId === '') return { count, outcomes, spentCredits };
    const customer = { externalId, count, outcomes, spentCredits };
    const planned = planId === undefined ? customer : { ...customer, planId };
    return owedBy ? { ...planned, owed: owedBy(row) } : planned;
  };
}

function owedOf(prices: Prices): (row: CustomerRow) => Owed {
  const owes = owing(prices);
  const apiIds = apisOf(prices);
  return ({ outcomes, spentCredits, planId, apart = [] }) => {
    const rest = { apiId: undefined, verification: outcomes.VALID ?? 0, credit: spentCredits };
    const used = apiIds.map((apiId, at) => ({ apiId, verification: apart[2 * at]!, credit: apart[2 * at + 1]! }));
    for (const { verification, credit } of used) {
      rest.verification -= verification;
      rest.credit -= credit;
    }
    return owes(planId, [...used, rest]);
  };
}

/**
 * A cursor: the period, the listing, the digest of the prices if the rows have amounts, and after a point the last
 * externalId, which is '' for keys without one.
 */
const placeText = ({ fromHour, toHour }: Period, { listing, place }: CustomersFrom, priced: string | undefined) =>
  `${[fromHour, toHour, listing, ...(priced ? [priced] : [])].join('-')}${place === undefined ? '' : `.${place}`}`;

/** Reads a cursor, whose format was checked (http/cursor.ts). */
function readPlace(after: string) {
  const [head = ''] = after.split('.', 1);
  const [fromHour, toHour, listing, priced] = head.split('-');
  const place = head === after ? undefined : after.slice(head.length + 1);
  const from: CustomersFrom = { listing: listing!, place };
  return { period: { fromHour: Number(fromHour), toHour: Number(toHour) }, from, priced };
}
