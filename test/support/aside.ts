// The tests that have more than `npm test` and CI have time for, and the paths that they are about. All of it runs in
// npm run test:faults. What is about a path that changed since the last commit on main runs whole in `npm test`, too
// (CONTRIBUTING.md).

import { spawnSync } from 'node:child_process';

const leases = ['src/decide', 'lua/decide', 'lua/include', 'lua/leases', 'test/decide/leases'];
const servers = ['src/serve.ts', 'src/worker.ts', 'src/workers.ts'];
const exports = [
  'src/cli/exportKeys.ts',
  'src/cli/exportSections.ts',
  'src/cli/importKeys.ts',
  'src/cli/importer.ts',
  'src/cli/importSteps.ts',
  'src/cli/lineKinds.ts',
  'lua/windows',
];
const migrations = ['src/migrations', 'src/migrator.ts', 'src/scripts/layout.ts', 'lua/migrations'];
const usage = [
  'src/usage',
  'lua/analytics',
  'lua/include/usage.lua',
  'lua/include/usageSums.lua',
  'lua/sweep',
  'lua/usage',
];

/** Fault programs that run in npm run test:faults alone. */
const faultPrograms: Record<string, readonly string[]> = {
  'test/faults/bodies.test.ts': ['src/input', 'src/http/pipeline.ts', 'src/operation.ts'],
  'test/faults/clock.test.ts': ['lua/decide', 'lua/include'],
  'test/faults/cluster.test.ts': ['src/redis/connection.ts', 'src/redis/names.ts', 'src/redis/slots.ts'],
  'test/faults/fourServers.test.ts': ['src/decide/leases'],
  'test/faults/holds.test.ts': ['lua/decide', 'lua/holds', 'src/decide/holds.ts'],
  'test/faults/leases.test.ts': ['src/decide/leases', 'lua/leases'],
  'test/faults/ledger.test.ts': ['src/redis/embedded.ts', 'src/scripts/durable.ts'],
  'test/faults/redis.test.ts': ['src/redis/breaker.ts', 'src/redis/connection.ts', 'src/decide/flow.ts'],
  'test/faults/schemathesis.test.ts': ['src/http/openapi.ts', 'src/input'],
  'test/faults/secrets.test.ts': ['src/errors.ts', 'src/http', 'src/log.ts', 'src/operation.ts', 'src/redis'],
  'test/faults/sentinel.test.ts': ['src/redis/connection.ts', 'src/redis/checks.ts'],
  'test/faults/tail.test.ts': ['src/decide/tail', 'src/redis/subscriber.ts'],
  'test/faults/tls.test.ts': ['src/http/server.ts', 'src/http/uws.ts', 'src/redis/connection.ts', ...servers],
};

/** Tests of the console that run in npm run test:faults alone. Those of each screen, and of secrets, run in CI. */
const consoleFiles: Record<string, readonly string[]> = Object.fromEntries(
  [
    'addresses',
    'customerCredits',
    'holds',
    'keyActs',
    'manyKeys',
    'names',
    'overrides',
    'palette',
    'prices',
    'refusals',
    'tabs',
    'temporaryLimits',
  ].map((name) => [`test/console/${name}.test.ts`, ['src/console', 'test/support/chromium.ts']]),
);

/** Files with a `thoroughTest`, or with more cases where `isThorough`. */
const thoroughFiles: Record<string, readonly string[]> = {
  'test/atomicity.test.ts': ['src/operations', 'src/records', 'src/scripts', 'lua'],
  'test/cli/backup.test.ts': ['src/cli/backupCommand.ts', 'src/redis/backup.ts', 'docs/backup.md'],
  'test/cli/complete.test.ts': [
    ...exports,
    'src/cli/workspaces.ts',
    'src/records/workspaces.ts',
    'src/usage/exported.ts',
    'src/usage/imported.ts',
    'lua/overrides',
    'lua/workspaces',
  ],
  'test/cli/keyLines.test.ts': exports,
  'test/console/secrets.test.ts': ['src/console'],
  'test/decide/brokenRecords.test.ts': ['lua/decide', 'src/redis/keyspace.md'],
  'test/decide/sharedCalls.test.ts': ['lua/decide', 'src/decide'],
  'test/decide/leases/far.test.ts': leases,
  'test/decide/leases/model.test.ts': leases,
  'test/decide/leases/nothingLost.test.ts': leases,
  'test/endings.test.ts': ['src/endings.ts'],
  'test/everyRead.test.ts': ['test/support/everyRead.ts'],
  'test/faults/fuzz.test.ts': ['src/input', 'src/http/pipeline.ts', 'src/operation.ts'],
  'test/faults/rootKeys.test.ts': [
    'src/http/pipeline.ts',
    'src/http/rootKey.ts',
    'src/operation.ts',
    'src/domain/grants.ts',
  ],
  'test/http/docs.test.ts': ['src/http/docs.ts', 'src/http/documents.ts', 'src/http/samples.ts'],
  'test/http/haproxy.test.ts': ['src/http/server.ts', 'src/http/uws.ts', 'package.json'],
  'test/lua/include/window.test.ts': ['lua/include'],
  'test/migrations/fixtures.test.ts': migrations,
  'test/migrations/migration.test.ts': migrations,
  'test/model.test.ts': ['lua/decide', 'lua/include', 'src/decide'],
  'test/operations/analytics/getVerifications.test.ts': usage,
  'test/operations/keys/concurrency.test.ts': ['lua/decide', 'lua/include'],
  'test/operations/keys/listKeys.test.ts': ['src/records', 'lua/keys'],
  'test/operations/large.test.ts': ['src/records', 'lua/keys', 'lua/include/pages.lua'],
  'test/process/dataVersion.test.ts': [...migrations, ...servers],
  'test/process/endings.test.ts': ['src/endings.ts'],
  'test/process/firstPin.test.ts': ['bin/builds.mjs', 'bin/pin.mjs', 'bin/registry.mjs', 'src/http/uws.ts'],
  'test/process/health.test.ts': ['src/health.ts', 'src/http/probes.ts', ...servers],
  'test/process/log.test.ts': ['src/log.ts', 'src/http/callLog.ts', ...servers],
  'test/process/main.test.ts': ['src/main.ts', 'src/redis/embedded.ts', ...servers],
  'test/process/metrics.test.ts': ['src/metrics.ts', ...servers],
  'test/process/monitoring.test.ts': ['deploy/prometheus', 'src/metrics.ts'],
  'test/records/keyOrders.test.ts': ['src/records', 'lua/keys'],
  'test/redis/breaker.test.ts': ['src/redis/breaker.ts', 'src/redis/connection.ts'],
  'test/redis/embedded.test.ts': ['src/redis/embedded.ts'],
  'test/usage/standings.test.ts': usage,
  'test/usage/sums.test.ts': usage,
};

const isAbout = (paths: readonly string[], path: string) =>
  paths.some((each) => path === each || path.startsWith(`${each}/`));

/** The files that changed since the last commit on main that this commit has: none where Git cannot tell. */
function changedFiles(): string[] {
  const git = (...args: string[]) => {
    const { status, stdout } = spawnSync('git', args, { encoding: 'utf8' });
    return status === 0 ? stdout.split('\n').filter(Boolean) : [];
  };
  const [base] = [...git('merge-base', 'HEAD', 'origin/main'), ...git('merge-base', 'HEAD', 'main')];
  return base ? [...git('diff', '--name-only', base), ...git('ls-files', '-o', '--exclude-standard')] : [];
}

const longAlone = { ...faultPrograms, ...consoleFiles };

export const aside = { ...longAlone, ...thoroughFiles };

/** Which of these tests a run of all tests runs whole, and which it leaves out. */
export function chosenTests(): { whole: string[]; leftOut: string[] } {
  const changed = changedFiles();
  const isDue = ([test, paths]: [string, readonly string[]]) => changed.some((path) => isAbout([test, ...paths], path));
  const whole = Object.entries(aside).filter(isDue);
  const names = new Set(whole.map(([test]) => test));
  return { whole: [...names], leftOut: Object.keys(longAlone).filter((test) => !names.has(test)) };
}
