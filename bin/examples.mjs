// npm run examples: has a real server answer the story of test/support/story.ts again, and writes down what it said, for
// /openapi.json. After a change of what operations take or answer; npm test compares.
import { prepare, runLocal } from './prepare.mjs';

prepare({ dev: true });
process.exitCode = runLocal('vitest', ['run', 'test/examples.test.ts', '--update']);
