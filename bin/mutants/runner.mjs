// One process of npm run test:mutants. It keeps vitest and a Redis running in one copy of the repository, so that
// vitest transforms each module only once. A message names test files, which it runs in this order until the first
// failure.
//
// in   {files, changed}   paths relative to the copy; `changed` were written since the last message
// out  {ready} | {passed, failure, isUsable}: file, title and message of the first failure, whether it can be used
//      again

import { createConnection } from 'node:net';
import { join } from 'node:path';
import { BaseSequencer, createVitest } from 'vitest/node';

const root = process.cwd();

/** Keeps the given order, cheapest files first. */
class GivenOrder extends BaseSequencer {
  sort = async (files) => files;
}

const vitest = await createVitest(
  'test',
  {
    root,
    watch: false,
    bail: 1,
    maxWorkers: 1,
    testTimeout: 60_000,
    hookTimeout: 60_000,
    reporters: [{}],
    sequence: { sequencer: GivenOrder },
  },
  { logLevel: 'silent', clearScreen: false },
);
const specifications = new Map();
for (const found of await vitest.globTestSpecifications()) specifications.set(found.moduleId, found);

process.on('message', async ({ files, changed }) => {
  for (const file of changed) vitest.invalidateFile(join(root, file));
  const wanted = files.map((file) => {
    const found = specifications.get(join(root, file));
    if (!found) throw new Error(`no test file ${file}`);
    return found;
  });
  // Vitest keeps the results of earlier runs, and counts their failures.
  vitest.state.filesMap.clear();
  vitest.state.idMap.clear();
  const { testModules, unhandledErrors } = await vitest.runTestSpecifications(wanted, false);
  const failure =
    testModules.map(failureOf).find(Boolean) ?? (unhandledErrors[0] && { message: `${unhandledErrors[0]}` });
  const hasRun = testModules.flatMap((module) => [...module.children.allTests()]).some((test) => test.ok());
  if (!failure && !hasRun) throw new Error(`no test of ${files} ran`);
  // Each project has a Redis of its own.
  const urls = new Set(vitest.projects.map((project) => project.getProvidedContext().redisUrl));
  const isUsable = (await Promise.all([...urls].map(emptyRedis))).every(Boolean);
  process.send({ passed: !failure, failure, isUsable });
});
process.on('disconnect', () => vitest.exit(true));
process.send({ ready: true });

function failureOf(module) {
  const file = module.moduleId.slice(root.length + 1);
  for (const test of module.children.allTests()) {
    const { state, errors } = test.result();
    if (state === 'failed') return { file, title: test.fullName, message: errors[0]?.message ?? '' };
  }
  const error = module.errors()[0] ?? [...module.children.allSuites()].flatMap((suite) => suite.errors())[0];
  return error && { file, title: '', message: error.message };
}

/**
 * Removes the libraries that the run loaded. False when an endless script runs: Redis then replies BUSY, or not at all.
 */
function emptyRedis(url) {
  const { pathname } = new URL(url);
  return new Promise((resolve) => {
    const done = (isUsable) => {
      resolve(isUsable);
      socket.destroy();
    };
    const socket = createConnection(pathname, () => socket.write('FUNCTION FLUSH SYNC\r\n'));
    socket.on('data', (reply) => done(`${reply}`.startsWith('+OK')));
    socket.on('error', () => done(false));
    socket.setTimeout(5000, () => done(false));
  });
}
