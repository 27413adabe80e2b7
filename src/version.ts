// The version of Tollgate, which only package.json states, and the commit of a build that is no release.

import { existsSync, readFileSync } from 'node:fs';

// The paths are the same from src/ and dist/.
const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as {
  version: string;
};

/** Written by the build: see `versionSuffix` of bin/prepare.mjs. */
const commitFile = new URL('../dist/commit.txt', import.meta.url);
/** As `version` for a release, otherwise such as `1.0.0+g614671f7`. */
const buildVersion = version + (existsSync(commitFile) ? readFileSync(commitFile, 'utf8') : '+unknown');

export { buildVersion, version };
