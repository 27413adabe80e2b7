// npm run pin: adds missing pins to the repository. Run it after a change of dependencies, or with a registry that has
// more builds.
//
// 1. package-lock.json: the sha512 of every package without one. A package that the registry does not have gets the
//    sha512 of empty input, which no package matches: npm then skips it (all of these are optional) instead of
//    installing it unchecked.
// 2. src/http/uwsPins.ts: the SHA-256 of every build of uWebSockets.js, read from the packages whose sha512 was
//    checked.
//
// npm run pin -- images: pins the images of the Dockerfile and of compose.yaml in their place (images.mjs).
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pinImages } from './images.mjs';
import { fail, refused, root } from './prepare.mjs';
import { filesOf, sha256, statedIntegrity } from './registry.mjs';

const lockFile = join(root, 'package-lock.json');
const pinsFile = join(root, 'src', 'http', 'uwsPins.ts');

const lock = JSON.parse(readFileSync(lockFile, 'utf8'));
const nameOf = (path) => lock.packages[path].name ?? path.split('node_modules/').at(-1);

const [what] = process.argv.slice(2);
if (what === 'images') await pinImages().catch((error) => fail(`nothing was changed: ${error.cause ?? error}`));
else if (what === undefined) pinPackages();
else fail(`npm run pin pins packages, npm run pin -- images pins images; there is no ${what}.`);

function pinPackages() {
  addOptional();
  complete();
  writeFileSync(lockFile, `${JSON.stringify(lock, null, 2)}\n`);
  writePins();
}

/**
 * Adds builds that the registry lacks to the lock file. npm omits them, and then npm ci would report them as missing.
 */
function addOptional() {
  for (const [path, { dev, optionalDependencies = {} }] of Object.entries(lock.packages)) {
    for (const [name, version] of Object.entries(optionalDependencies)) {
      const places = [`node_modules/${name}`, `${path}/node_modules/${name}`];
      const isBuild = /^\d/.test(version);
      if (!isBuild || places.some((place) => lock.packages[place]?.version === version)) continue;
      const [, os, cpu] = /(aix|android|darwin|freebsd|linux|netbsd|openbsd|sunos|win32)-([a-z0-9]+)/.exec(name) ?? [];
      const place = places.find((free) => !lock.packages[free]);
      lock.packages[place] = { version, optional: true, ...(dev && { dev }), ...(os && { os: [os], cpu: [cpu] }) };
    }
  }
}

/** Asks the registry for the sha512 of each package that has none. */
function complete() {
  for (const [path, entry] of Object.entries(lock.packages)) {
    if (path === '' || (entry.integrity && entry.integrity !== refused)) continue;
    const spec = `${nameOf(path)}@${entry.version}`;
    const found = statedIntegrity(spec);
    if (!found && !entry.optional) fail(`the registry does not have ${spec}, which Tollgate needs.`);
    entry.integrity = found ?? refused;
    console.log(`${spec}: ${found ?? 'not in the registry, so it will not be installed'}`);
  }
}

/** Reads the binary of each build of uWebSockets.js. */
function writePins() {
  const builds = Object.keys(lock.packages).filter((path) => /\/@uwsjs\/(?!core$)[\w-]+$/.test(path));
  const pins = builds
    .filter((path) => lock.packages[path].integrity !== refused)
    .map((path) => {
      const spec = `${nameOf(path)}@${lock.packages[path].version}`;
      return `  '${spec}': '${sha256OfBinary(spec, lock.packages[path].integrity)}',\n`;
    });
  const text = [
    '// The SHA-256 of uws.node in each package that has a build of uWebSockets.js. Written by npm run pin; SECURITY.md',
    '// states what they were compared with.',
    '',
    'export const uwsPins: Readonly<Record<string, string>> = {',
  ];
  writeFileSync(pinsFile, `${text.join('\n')}\n${pins.sort().join('')}};\n`);
  console.log(`src/http/uwsPins.ts: ${pins.length} of ${builds.length} builds.`);
}

function sha256OfBinary(spec, integrity) {
  try {
    return sha256(filesOf(spec, integrity, ['uws.node']).get('uws.node'));
  } catch (error) {
    fail(error.message);
  }
}
