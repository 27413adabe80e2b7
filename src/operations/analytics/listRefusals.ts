import Type from 'typebox';
import { timeMax } from '../../domain/time.ts';
import { manages } from '../../operation.ts';
import { listOf } from '../lists.ts';
import { checkMilliseconds } from '../rules.ts';
import {
  ApiId,
  Cursor,
  ExternalId,
  Fields,
  Int,
  KeyId,
  limitTypeMeaning,
  may,
  OneOf,
  out,
  shownPeriodFields,
  UnixTime,
} from '../schemas.ts';
import { counted } from './buckets.ts';

const refusedOutcomes = counted.filter((outcome) => outcome !== 'VALID');

export const listRefusals = manages({
  name: 'analytics.listRefusals',
  summary: 'List recent refusals of keys, newest first: when, why, and by which limit.',
  input: Fields({
    apiId: Type.Optional(ApiId),
    keyId: Type.Optional(KeyId),
    externalId: Type.Optional(ExternalId),
    outcome: Type.Optional(OneOf(refusedOutcomes, 'Outcome of the verifications.')),
    start: Type.Optional(UnixTime('Earliest time in Unix milliseconds; `REFUSAL_HOURS` ago by default.')),
    end: Type.Optional(UnixTime('Time in Unix milliseconds, exclusive.')),
    limit: Type.Optional(Int([1, 1000], 'Number of rows of a page.', 100)),
    cursor: Type.Optional(Cursor),
  }),
  output: out.objects(
    'Rows, newest first. Not every refusal has one under load: `counted` in `pagination` has the number of all refusals, by hour.',
    {
      time: out.int('Time of the last refusal of the row in Unix milliseconds.'),
      outcome: OneOf(refusedOutcomes, 'Reason of the refusal.'),
      keyId: out.text('Id of the key.'),
      apiId: out.text('Id of the API of the key.'),
      externalId: may.text('externalId of the identity of the key.'),
      planId: may.text('Plan that the key has now or, if it has none, the plan that the identity of the row has now.'),
      permissions: may.text('Permission query of the last refusal; of a longer one the first 256 bytes.'),
      permissionsCut: Type.Optional(Type.Literal(true, { description: 'The query was longer than that.' })),
      ratelimit: may.text('Name of the first limit that was exceeded. Absent for decisions by a lease.'),
      limit: may.int('Units that this limit admits, or slots that it has.'),
      duration: may.int('Duration of this limit in milliseconds.'),
      type: may.oneOf(['concurrency', 'quota'], limitTypeMeaning),
      ...shownPeriodFields,
      cost: may.int('Units of this limit, or credits, that the verification would have taken.'),
      remaining: may.int('Units of this limit, or credits, that were left. Absent for decisions by a lease.'),
      of: Type.Optional(
        Type.Literal('identity', {
          description: 'Of USAGE_EXCEEDED: the balance of the identity was too small, not that of the key.',
        }),
      ),
      tags: may.texts('Tags of the last refusal, as many as have 256 bytes together as JSON.'),
      source: OneOf(['redis', 'lease'], 'Where it was decided.'),
      count: out.int(
        'Number of refusals of the key with this outcome since its row before, in the same minute. 1 unless it is refused often.',
      ),
    },
  ),
  needs: { api: ['read_analytics'] },
  list: (query) => listOf('refusals', query, 12),
  listedIds: 'refusal',
  // A caller with grants for some APIs gets only their rows.
  scope: () => undefined,
  check: ({ start, end }) => checkMilliseconds({ start, end }),

  async handle({ apiId, keyId, externalId, outcome, start = 0, end = timeMax, limit = 100 }, { store, caller, after }) {
    const apiIds = caller.grants.idsFor('api', 'read_analytics', apiId);
    const of = { apiIds, keyId, externalId, outcome };
    const page = await store.refusals.list(caller.workspaceId, { ...of, start, end, limit, after });
    await store.analytics.addPlans(caller.workspaceId, page.items);
    return page;
  },
});
