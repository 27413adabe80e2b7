// npm run examples: records the responses of a real server to test/support/story.ts, as examples for /openapi.json. Run it
// after a change of what an operation takes or returns; npm test compares.
import { prepare, runLocal } from './prepare.mjs';

prepare({ dev: true });
process.exitCode = runLocal('vitest', ['run', 'test/examples.test.ts', '--update']);
