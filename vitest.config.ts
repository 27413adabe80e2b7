import { configDefaults, defineConfig } from 'vitest/config';

/** npm run test:faults: the fault programs alone, the long ones too, one at a time so that their figures are their own. */
const faultsOnly = process.env.FAULTS_RESULTS !== undefined;

export default defineConfig({
  test: {
    include: faultsOnly ? ['test/faults/**/*.test.ts'] : ['test/**/*.test.ts'],
    exclude: faultsOnly ? configDefaults.exclude : [...configDefaults.exclude, '**/*.long.test.ts'],
    globalSetup: 'test/support/redis.ts',
    pool: 'forks',
    maxWorkers: faultsOnly ? 1 : 2,
    testTimeout: 20_000,
    hookTimeout: 30_000,
  },
});
