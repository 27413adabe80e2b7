// npm run examples: sends the documented requests of test/support/examples.ts to a real server and writes its responses
// to src/http/examples.json, for /openapi.json, and the names of all operations to README.md. Run it after a change of
// schemas or responses; npm test compares.
import { prepare, runLocal } from './prepare.mjs';

await prepare({ dev: true });
process.exitCode = runLocal('vitest', ['run', 'test/http/examples.test.ts', '--update']);
