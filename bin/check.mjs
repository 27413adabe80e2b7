// npm run check: all checks before a commit: format and lint (of lua/ too), types, tests. It stops at the first that fails.
// --quick runs only the tests of the folders where most changes are made; other arguments go to vitest.
import { checkNode, install, root, run, runLocal } from './prepare.mjs';

const args = process.argv.slice(2);
const isQuick = args.includes('--quick');
const quickFolders = ['operations', 'lua', 'store', 'domain', 'http'].map((name) => `test/${name}/`);
const testArgs = [...args.filter((arg) => arg !== '--quick'), ...(isQuick ? quickFolders : [])];

checkNode();
install({ dev: true });
process.exitCode =
  runLocal('biome', ['ci']) ||
  runLocal('stylua', ['--check', 'lua']) ||
  runLocal('tsc', ['--noEmit']) ||
  run(process.execPath, [`${root}/bin/test.mjs`, ...testArgs]);
