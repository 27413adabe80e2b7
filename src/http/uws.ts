// Selects, checks and loads uWebSockets.js. Its native builds depend on the Node version, and no release covers all of
// ours.

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { pinFileOf, readPins } from './recordedPins.ts';
import { uwsPins } from './uwsPins.ts';

// The types of the newer release fit both: in what we use, they differ only in `listen` with host and options.
export type Uws = typeof import('uws-node22-26');

export type { HttpRequest, HttpResponse } from 'uws-node22-26';

const packages: Readonly<Record<number, readonly string[]>> = {
  20: ['uws-node20-22'],
  // The newer one needs glibc 2.38; on an older system (Debian 12) the older one still loads.
  22: ['uws-node22-26', 'uws-node20-22'],
  23: ['uws-node20-22'],
  24: ['uws-node22-26'],
  26: ['uws-node22-26'],
};

/** The packages with a build for this Node, best first. */
export const packagesFor = (nodeMajor: number): readonly string[] => packages[nodeMajor] ?? [];

interface Build {
  /** Its package with the version, as in the pins. */
  name: string;
  file: string;
  load: () => unknown;
}

/** Returns the native build of a package for this Node. Throws if it is not installed. */
function findBuild(packageName: string, nodeMajor: number, from: string): Build {
  const require = createRequire(createRequire(from).resolve(packageName));
  const manifest = require.resolve(`@uwsjs/${process.platform}-${process.arch}-${nodeMajor}/package.json`);
  const { name, version } = require(manifest) as { name: string; version: string };
  // Not through the JavaScript of the package: only the checked file may run.
  const file = join(dirname(manifest), 'uws.node');
  return { name: `${name}@${version}`, file, load: () => require(file) };
}

/** Throws unless the file of a build has its pinned hash. A pin of the repository comes before a recorded one. */
function check({ name, file }: Build, { pins, dataDir }: Pins) {
  const found = createHash('sha256').update(readFileSync(file)).digest('hex');
  const recorded = pins[name] === undefined && dataDir !== undefined ? readPins(dataDir)[name]?.sha256 : undefined;
  const pinned = pins[name] ?? recorded;
  if (found === pinned) return;
  const places = recorded ? pinFileOf(dataDir!) : 'src/http/uwsPins.ts';
  const change = pinned
    ? 'Delete node_modules and start again. If the file still differs, do not trust its source.'
    : 'Start Tollgate with `npm start`, which pins the build that the npm registry states, or run `npm run pin`.';
  throw new Error(
    `${file} is not loaded: its SHA-256 is ${found}, and ${places} has ${pinned ?? 'none'} for ${name}. ${change}`,
  );
}

interface Pins {
  pins: Readonly<Record<string, string>>;
  /** The directory of recorded pins. */
  dataDir?: string;
}

/** Loads the build for this version of Node; `from` is the module whose packages are searched. */
export function loadUws(
  nodeMajor: number,
  from: string = import.meta.url,
  pins: Readonly<Record<string, string>> = uwsPins,
  dataDir?: string,
): Uws {
  const failures: string[] = [];
  for (const packageName of packagesFor(nodeMajor)) {
    const attempt = <T>(act: () => T): T | undefined => {
      try {
        return act();
      } catch (cause) {
        const [firstLine] = String((cause as Error).message).split('\n');
        failures.push(`\n  ${packageName}: ${firstLine}`);
        return undefined;
      }
    };
    const build = attempt(() => findBuild(packageName, nodeMajor, from));
    if (!build) continue;
    check(build, { pins, dataDir });
    const uws = attempt(build.load);
    if (uws) return uws as Uws;
  }
  throw new Error(reason(nodeMajor, failures));
}

function reason(nodeMajor: number, failures: readonly string[]): string {
  if (failures.length === 0) {
    return `uWebSockets.js has no build for Node ${nodeMajor}. Run Tollgate on Node 20, 22, 24 or 26 (22 runs on the most systems).`;
  }
  return (
    `uWebSockets.js does not load on Node ${nodeMajor}, ${process.platform} ${process.arch}:${failures.join('')}\n` +
    'It needs glibc (Alpine has none): 2.27 or later with Node 20 and 22, 2.38 or later (Debian 13, Ubuntu 24.04) with Node 24 ' +
    'and 26. On an older system use Node 22.\n' +
    'If a module cannot be found: the builds are optional dependencies, so run `npm ci` with the Node that will run Tollgate, and ' +
    'without `--omit=optional`. If it is still missing, the repository pins no build for this system yet: `npm start` takes it ' +
    'from the npm registry, and `npm run pin` pins it in your clone. SECURITY.md describes how to compare it with the release of ' +
    'its author.'
  );
}

let loaded: Uws | undefined;
let dataDirOfPins: string | undefined;

/** Sets the data directory, in which builds that the repository does not pin have their pins. */
export function usePinsOf(dataDir: string): void {
  dataDirOfPins = dataDir;
}

/** uWebSockets.js, loaded when a server first needs it. */
export function uws(): Uws {
  loaded ??= loadUws(Number.parseInt(process.versions.node, 10), undefined, undefined, dataDirOfPins);
  return loaded;
}
