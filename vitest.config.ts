import { configDefaults, defineConfig } from 'vitest/config';

/** npm run test:faults: only the fault programs, the long ones too, one at a time so that none disturbs another's figures. */
const faultsOnly = process.env.FAULTS_RESULTS !== undefined;

export default defineConfig({
  test: {
    include: faultsOnly ? ['test/faults/**/*.test.ts'] : ['test/**/*.test.ts'],
    exclude: faultsOnly ? configDefaults.exclude : [...configDefaults.exclude, '**/*.long.test.ts'],
    // Lua files are in no module graph: --watch runs everything again when one changes.
    forceRerunTriggers: [...configDefaults.forceRerunTriggers, '**/lua/**/*.lua'],
    globalSetup: 'test/support/redis.ts',
    pool: 'forks',
    maxWorkers: faultsOnly ? 1 : 2,
    testTimeout: 20_000,
    hookTimeout: 30_000,
  },
});
