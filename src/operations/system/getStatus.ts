import Type from 'typebox';
import { manages } from '../../operation.ts';
import { buildVersion } from '../../version.ts';
import { Fields, may, OneOf, out } from '../schemas.ts';

const count = (description: string) => Type.Integer({ minimum: 0, description });
const optionalBytes = (description: string) =>
  Type.Optional(Type.Number({ minimum: 0, description: `${description} Absent if Redis does not report it.` }));

const Overdue = (what: string) =>
  out.object(what, {
    overdue: count('Number that is due now.'),
    lateMs: Type.Number({ minimum: 0, description: 'Milliseconds since the first one was due; 0 if none is due.' }),
  });

const Check = Type.Object({
  check: out.text('Name of the check.'),
  status: OneOf(
    ['ok', 'warning', 'fault', 'unknown'],
    'Result. `unknown`: Redis does not report what the check needs.',
  ),
  found: out.text('What was found.'),
  change: may.text('How to fix it.'),
});

const ms = (what: string) =>
  Type.Optional(Type.Number({ minimum: 0, description: `${what} Absent without a request.` }));

const Decisions = out.object('Recent verifications and limit checks of this process.', {
  periodMs: count(
    'Length of the period in milliseconds: one to two minutes, or longer if no status was read meanwhile.',
  ),
  count: count('Number of requests.'),
  p50Ms: ms('Median time from the complete request to its response in milliseconds, estimated.'),
  p99Ms: ms('99th percentile of this time, estimated.'),
});

/** As in `/health/ready`. */
export const Migration = out.object('The migration of the stored data, while one runs. Servers serve meanwhile.', {
  from: count('The version that the data had.'),
  to: count('The version that it is migrated to.'),
  done: count('Records that were migrated.'),
  total: count('Records, as far as known.'),
  startedAt: count('When the migration began, Unix milliseconds.'),
});

export const getStatus = manages({
  name: 'system.getStatus',
  summary: 'Get the state of the server, of Redis and of the sweeper, and what the workspace stores.',
  description:
    'The checks are those of `tollgate doctor`. Versions, the migration, the certificate, Redis and the last sweep are those of the installation, which all workspaces share; everything else is of this workspace only. Facts about Redis are at most a second old.',
  input: Fields({}),
  output: Type.Object({
    time: out.int('Time of the response in Unix milliseconds.'),
    versions: out.object('Versions.', {
      tollgate: out.text('Version of Tollgate, with the commit if it is no release.'),
      node: out.text('Version of Node.'),
      redis: may.text('Name and version of Redis or Valkey.'),
      data: out.int('Version of the stored data.'),
    }),
    migration: Type.Optional(Migration),
    checks: Type.Array(Check, {
      description:
        'The check of the TLS certificate of this process, if it has one, and of the setting GATEWAY_ROOT_KEY, if that is a root key of this workspace.',
    }),
    process: out.object('The server process that responded.', {
      uptimeMs: count('Milliseconds since its start.'),
      memoryBytes: count('Resident memory.'),
      decisions: Type.Optional(Decisions),
    }),
    redis: out.object('Redis, or all masters of its Cluster.', {
      nodes: Type.Integer({ minimum: 1, description: 'Masters; more than one in a Cluster.' }),
      roundTripMs: Type.Number({
        description: 'Shortest of five round trips; of a Cluster that of the slowest node.',
      }),
      usedBytes: optionalBytes('Memory in use.'),
      maxBytes: optionalBytes('`maxmemory`, or the memory of the machine.'),
      checks: Type.Array(Check, { description: 'The checks of Redis.' }),
    }),
    sweeper: out.object('The background task.', {
      sweptAt: may.int(
        'Time of the last complete sweep in Unix milliseconds, stored every ten seconds. Absent before the first one, and if its node of a Cluster is lost.',
      ),
      refills: Overdue('Refills of keys that no request reads.'),
      purges: Overdue('Deleted keys whose records may be removed.'),
      rollups: Overdue('Lists of usage that may be packed.'),
    }),
    stored: out.object('What the workspace stores.', {
      keys: count('Keys, with deleted ones until their records are removed.'),
      deletedKeys: count('Deleted keys whose records are not removed yet.'),
      apis: count('APIs.'),
      deletedApis: count('Deleted APIs whose keys are not removed yet.'),
      identities: count('Identities.'),
      deletedIdentities: count('Deleted identities that can be restored.'),
      namespaces: count('Namespaces.'),
      overrides: count('Overrides of all namespaces.'),
      permissions: count('Permissions.'),
      roles: count('Roles.'),
      rootKeys: count('Root keys.'),
      auditEvents: count('Events of the audit log.'),
    }),
    leases: out.object('Local decisions.', {
      sessions: count('Server processes that may hold leases of this workspace.'),
      silent: count('Server processes that did not return their leases when they were recalled.'),
    }),
  }),
  needs: { system: ['read_status'] },

  async handle(_input, { store, caller, decisionTimes, checks }) {
    const { redis, ...status } = await store.status.read(caller.workspaceId);
    const { version: redisVersion, ...facts } = redis;
    return {
      ...status,
      versions: {
        tollgate: buildVersion,
        node: process.versions.node,
        redis: redisVersion,
        data: store.status.dataVersion,
      },
      migration: store.status.migration,
      checks: (await checks?.(caller.workspaceId)) ?? [],
      process: {
        uptimeMs: Math.round(process.uptime() * 1000),
        memoryBytes: process.memoryUsage.rss(),
        ...(decisionTimes && { decisions: decisionTimes() }),
      },
      redis: facts,
    };
  },
});
