// npm run check: all checks before a commit: format and lint (of lua/ too) and types at the same time, and then all
// tests if none of these failed.
// --quick runs only the tests of the folders where most changes are made, after those of rules and tables. Other
// arguments go to vitest.
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { checkNode, install, root, run } from './prepare.mjs';

const args = process.argv.slice(2);
const isQuick = args.includes('--quick');
const quickFolders = ['operations', 'lua', 'decide', 'records', 'usage', 'scripts', 'redis', 'domain', 'http'].map(
  (name) => `test/${name}/`,
);
const quickArgs = [...quickFolders, '--project=!programs*'];
/** Rules and tables, which name what a change lacks, within seconds. */
const firstArgs = ['test/tables.test.ts', 'test/repo.test.ts', 'test/readme.test.ts'];
const chosen = [...args.filter((arg) => arg !== '--quick'), ...(isQuick ? quickArgs : [])];
const testArgs = chosen.length > 0 ? chosen : ['--all'];

checkNode();
install({ dev: true });
const passed = await Promise.all([
  passes('biome', ['ci']),
  passes('stylua', ['--check', 'lua']),
  passes('tsc', ['--noEmit']),
  passes('tsc', ['--noEmit', '-p', 'tsconfig.console.json']),
]);
const test = (testArgs) => run(process.execPath, [`${root}/bin/test.mjs`, ...testArgs]);
process.exitCode = passed.every(Boolean) ? (isQuick && test(firstArgs)) || test(testArgs) : 1;

/** Whether a program of the dependencies ends with 0. Its output is printed at its end, so that outputs do not mix. */
function passes(name, args) {
  return new Promise((resolve) => {
    execFile(join(root, 'node_modules', '.bin', name), args, { cwd: root, maxBuffer: 2 ** 26 }, (error, out, err) => {
      process.stdout.write(out);
      process.stderr.write(err);
      if (error && out === '' && err === '') console.error(`${name}: ${error.message}`);
      resolve(error === null);
    });
  });
}
