// npm run examples: sends the documented requests of test/support/examples.ts to a real server and writes its responses
// to src/http/examples.json, for /openapi.json, to docs/README.md the names of all operations, and to README.md the response
// of the first verification. Run it after a change of schemas or responses; npm test compares.
import { prepare, runLocal } from './prepare.mjs';

await prepare({ dev: true });
const update = (...test) => runLocal('vitest', ['run', ...test, '--update']);
process.exitCode = update('test/http/examples.test.ts') || update('test/readme.test.ts', '-t', 'the first key respond');
