// npm run check: everything that must hold before a commit. Format and lint, types, tests; it stops at the first that fails.
import { checkNode, install, root, run, runLocal } from './prepare.mjs';

checkNode();
install({ dev: true });
process.exitCode =
  runLocal('biome', ['ci']) ||
  runLocal('tsc', ['--noEmit']) ||
  run(process.execPath, [`${root}/bin/test.mjs`, ...process.argv.slice(2)]);
