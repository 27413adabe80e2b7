// Redis Cluster, the slow tests: the operations' own tests on a Cluster, and masters that are lost under load.

import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { workspaceKey } from '../../src/redis/names.ts';
import { redisNodes } from '../support/redisNodes.ts';
import { loseMaster } from './failover.ts';
import { report } from './report.ts';
import { openTenants, type Tenant } from './tenants.ts';

const commandTimeoutMs = 1000;

let redis: ReturnType<typeof redisNodes> | undefined;
afterEach(async () => {
  await redis?.stop();
  redis = undefined;
});

test('the tests of every operation, the contract and the model pass on a Cluster', () => {
  const dir = mkdtempSync(join(tmpdir(), 'tollgate-cluster-'));
  const results = join(dir, 'results.json');
  const { FAULTS_RESULTS: _faultsOnly, ...env } = process.env;
  const files = ['test/operations', 'test/model.test.ts', 'test/sdks/stories.test.ts', 'test/sdks/typescript.test.ts'];
  const options = ['run', '--reporter=json', `--outputFile=${results}`, '--project=!*cluster', ...files];
  spawnSync('npx', ['vitest', ...options], { env: { ...env, TEST_REDIS: 'cluster' }, stdio: 'ignore' });
  const { numTotalTests, numPassedTests, testResults } = JSON.parse(readFileSync(results, 'utf8')) as {
    numTotalTests: number;
    numPassedTests: number;
    testResults: {
      name: string;
      status: string;
      assertionResults: { fullName: string; status: string; failureMessages: string[] }[];
    }[];
  };
  rmSync(dir, { recursive: true });

  const failed = testResults
    .filter(({ status }) => status !== 'passed')
    .flatMap(({ name, assertionResults }) =>
      assertionResults
        .filter(({ status }) => status === 'failed')
        .map(({ fullName, failureMessages }) => `${name}: ${fullName}: ${failureMessages.join()}`),
    );
  expect(failed).toEqual([]);
  expect(numPassedTests).toBe(numTotalTests);
  expect(numTotalTests).toBeGreaterThan(2500);
  report({
    order: '5.1b',
    fault: 'Redis Cluster instead of one Redis, with the tests of the operations, the contract, the model and the SDK',
    expected: 'all pass',
    measured: `${numPassedTests} of ${numTotalTests} tests pass, in ${testResults.length} files`,
  });
}, 900_000);

test.each([
  ['SIGKILL', '5.2', 'A master of the Cluster killed (kill -9) during verification load'],
  ['SIGSTOP', '5.2b', 'A master of the Cluster stopped (SIGSTOP: its connections stay) during verification load'],
] as const)(
  'a master is lost (%s): its replica serves, other masters’ workspaces notice nothing',
  async (signal, order, fault) => {
    redis = redisNodes();
    const { masters, replicas, url } = await redis.startCluster({
      replicasEach: 1,
      configuration: ['--cluster-require-full-coverage', 'no'],
    });
    const tenants = await openTenants(url, commandTimeoutMs);
    const byMaster = new Map<number, Tenant>();
    while (byMaster.size < masters.length) {
      const tenant = await tenants.createTenant();
      const slot = (await masters[0]!.admin.cluster('KEYSLOT', workspaceKey(tenant.workspaceId))) as number;
      byMaster.set(slot < 5461 ? 0 : slot < 10_923 ? 1 : 2, tenant);
    }
    const [stricken, ...others] = [0, 1, 2].map((index) => byMaster.get(index)!) as [Tenant, ...Tenant[]];

    const lose = () => masters[0]!.process.kill(signal);
    const replica = replicas[0]!;
    await loseMaster({ order, fault, tenants, commandTimeoutMs, lose, replica, stricken, others });
  },
  90_000,
);
