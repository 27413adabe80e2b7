// npm run examples: sends the documented requests of test/support/examples.ts to a real server and writes its responses
// to src/http/examples.json, for /openapi.json, and to README.md the names of all operations and the responses of the
// quick start. Run it after a change of schemas or responses; npm test compares.
import { prepare, runLocal } from './prepare.mjs';

await prepare({ dev: true });
const update = (...test) => runLocal('vitest', ['run', ...test, '--update']);
// One after the other, as both write README.md.
process.exitCode =
  update('test/http/examples.test.ts') || update('test/readme.test.ts', '-t', 'the quick start respond');
