import { availableParallelism } from 'node:os';
import { configDefaults, defineConfig } from 'vitest/config';
import { aside, chosenTests } from './test/support/aside.ts';
import { packDependencies } from './test/support/packed.ts';

/** npm run test:faults: only the fault programs, the long ones too, one at a time so that none disturbs another's figures. */
const faultsOnly = process.env.FAULTS_RESULTS !== undefined;

/**
 * Files that replace modules, clocks, globals or settings of vitest, or that measure the process they are in. All others share
 * their modules within a worker: to load these for each file took longer than most tests.
 */
const isolated = [
  'test/{atomicity,docs,model}.test.ts',
  'test/cli/{backup,cli,doctor,keyLines,stopped}.test.ts',
  'test/faults/**/*.test.ts',
  'test/http/{fairness,server,uws}.test.ts',
  'test/decide/leases/holder.test.ts',
  'test/process/**/*.test.ts',
  'test/sdks/go.test.ts',
  'test/{decide/{flow,queues},redis/embedded,scripts/durable}.test.ts',
];
const long = '**/*.long.test.ts';

/**
 * Files that start browsers, gateways, Clusters, clients in other languages, or servers many times: half of the time of all
 * tests. `npm test` leaves them and the project `programs-cluster` out; `npm test -- --all`, `npm run check` and CI
 * run them.
 */
const programs = [
  'test/{docs,tutorial}.test.ts',
  'test/{console,examples,sdks}/**/*.test.ts',
  'test/cli/{backup,keyLines}.test.ts',
  'test/faults/{cluster,fourServers,holds,leases,ledger,move,schemathesis,sentinel,server,tls}.test.ts',
  'test/http/{docs,haproxy}.test.ts',
  'test/process/**/*.test.ts',
];

/**
 * Tests of operations that would find no more on a Cluster: each script that they run is run there by other files. A
 * single test is a `volumeTest`. The fault program cluster.long.test.ts runs all of them on one, too.
 */
const beyondCluster = [
  'test/operations/{contract,large,permissionTable,records}.test.ts',
  'test/operations/analytics/{getVerifications,listRefusals,tail}.test.ts',
  'test/operations/keys/{holdBytes,holdHistories}.test.ts',
  'test/operations/rootKeys/expiry.test.ts',
];

/** bin/test.mjs sets it when it runs all tests. A file that is named runs in any case. */
const isWholeRun = process.env.TEST_SCOPE === 'whole';
const { whole, leftOut } = isWholeRun ? chosenTests() : { whole: [], leftOut: [] };
const elsewhere = [...whole, ...leftOut, long];

const isOfConsole = (file: string) => file.startsWith('test/console/');
/** A project without files is not declared, as it would have the default ones. */
function wholeProject(name: string, isIn: (file: string) => boolean) {
  const include = whole.filter(isIn);
  return include.length > 0 ? [{ extends: true as const, test: { name, include, env: { TEST_THOROUGH: '1' } } }] : [];
}

const projects = [
  {
    extends: true as const,
    test: {
      name: 'shared',
      include: ['test/**/*.test.ts'],
      exclude: [...isolated, ...programs, ...elsewhere],
      isolate: false,
      // As `allowHeaders` sets it. uWebSockets.js reads it when it is loaded, in some orders by a file that does not serve.
      env: { UWS_HTTP_MAX_HEADERS_SIZE: '32768' },
    },
  },
  { extends: true as const, test: { name: 'isolated', include: isolated, exclude: [...programs, ...elsewhere] } },
  // Tests that are about files that changed.
  ...wholeProject('whole', (file) => !isOfConsole(file)),
  ...wholeProject('programs-whole', isOfConsole),
  // Once more, with leases. TEST_LEASE_MS=100 npm test runs all of them so.
  {
    extends: true as const,
    test: { name: 'leased', include: ['test/model.test.ts'], env: { TEST_LEASE_MS: '100' } },
  },
  { extends: true as const, test: { name: 'programs', include: programs, exclude: elsewhere, isolate: false } },
  // The operations once more, on a Redis Cluster. TEST_REDIS=cluster runs any test so that uses a single workspace.
  {
    extends: true as const,
    test: {
      name: 'programs-cluster',
      include: ['test/operations/**/*.test.ts'],
      exclude: beyondCluster,
      env: { TEST_REDIS: 'cluster', TEST_VOLUME: 'none' },
      isolate: false,
    },
  },
];
const faults = [
  {
    extends: true as const,
    test: {
      name: 'faults',
      include: ['test/faults/**/*.test.ts', `test/{console,migrations,process,sdks}/${long}`, ...Object.keys(aside)],
    },
  },
  {
    extends: true as const,
    test: { name: 'leased', include: ['test/atomicity.test.ts'], env: { TEST_LEASE_MS: '100' } },
  },
];

const dependencies = await packDependencies();

export default defineConfig({
  resolve: {
    alias: [...dependencies].map(([name, replacement]) => ({ find: new RegExp(`^${name}$`), replacement })),
  },
  test: {
    // On a busy machine a browser may lose a race that no user sees, or too few of random requests have an effect: CI runs
    // such a test once more, and its report names it.
    retry: process.env.CI && !faultsOnly ? 1 : 0,
    projects: faultsOnly ? faults : projects,
    // Lua files are in no module graph: --watch runs everything again when one changes.
    forceRerunTriggers: [...configDefaults.forceRerunTriggers, '**/lua/**/*.lua'],
    globalSetup: 'test/support/redis.ts',
    setupFiles: ['test/support/emptyDatabase.ts', 'test/support/strict.ts'],
    pool: 'forks',
    // More than there are cores, as many tests wait for processes.
    maxWorkers: faultsOnly ? 1 : availableParallelism() + 2,
    // A test that hangs is all they are for. A busy machine needs several times what an idle one does.
    testTimeout: 120_000,
    expect: { poll: { timeout: 40_000 } },
    hookTimeout: 120_000,
  },
});
