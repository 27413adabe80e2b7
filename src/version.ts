// The version of Tollgate, which only package.json states.

import { readFileSync } from 'node:fs';

// The path is the same from src/ and dist/.
const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as {
  version: string;
};

export { version };
