import Type, { type Static } from 'typebox';
import { hourMs } from '../../domain/time.ts';
import { manages } from '../../operation.ts';
import { Fields, Identifier, may, NamespaceRef, out, SqlQuery } from '../schemas.ts';
import {
  bucketOf,
  Granularity,
  periodOf,
  readableNamespaces,
  readsDescription,
  rejectSql,
  rowsDescription,
  Time,
  Totals,
  timeFields,
  WholeDay,
} from './buckets.ts';

const Row = Type.Object({
  time: Time,
  granularity: Type.Optional(WholeDay),
  namespace: out.text('Name of the namespace.'),
  identifier: may.text('Identifier of the checks. Present only if the request names one.'),
  passed: out.int('Number of checks that passed.'),
  blocked: out.int('Number of checks that were refused.'),
});
type Row = Static<typeof Row>;

export const getRatelimits = manages({
  name: 'analytics.getRatelimits',
  summary: 'Count rate-limit checks that passed or were blocked, by time and namespace.',
  description: readsDescription,
  input: Fields({
    namespace: Type.Optional(NamespaceRef),
    identifier: Type.Optional(Identifier),
    ...timeFields,
    granularity: Type.Optional(Granularity),
    query: Type.Optional(SqlQuery),
  }),
  output: Type.Array(Row, { description: rowsDescription }),
  needs: { ratelimit: ['read_analytics'] },
  readsMuch: true,
  // A caller with grants for some namespaces gets only their rows.
  scope: () => undefined,
  check({ query }) {
    rejectSql(query, 'Use namespace, identifier, start, end and granularity.');
  },

  async handle({ namespace, identifier, start, end, granularity = 'hour' }, { store, caller }) {
    const period = periodOf({ start, end }, granularity, await store.currentMs());
    const namespaceIds = await readableNamespaces(namespace, { store, caller });
    const totals = new Totals<Row>();
    const query = { ...period, namespaceIds, identifier };
    const counted = await store.analytics.ratelimits(caller.workspaceId, query, (count) => {
      const { hour, isOfDay, namespace, passed, blocked } = count;
      const time = bucketOf(hour, granularity);
      const make = () => ({
        time,
        ...(granularity === 'hour' && isOfDay && { granularity: 'day' as const }),
        namespace,
        ...(identifier !== undefined && { identifier }),
        passed: 0,
        blocked: 0,
      });
      const row = totals.rowOf(time, [namespace], make);
      row.passed += passed;
      row.blocked += blocked;
    });
    const rows = await totals.rows();
    if (granularity === 'total') for (const row of rows) row.time = counted.fromHour * hourMs;
    return rows;
  },
});
