// The builds of uWebSockets.js for a system whose builds are not pinned in this repository, as its registry did not
// have them: they are taken from the registry at the first start. What was taken is pinned in the data directory.
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fail, log, refused, root } from './prepare.mjs';
import { filesOf, sha256, statedIntegrity } from './registry.mjs';

/** A file of dist/. Its name is no literal, as the bundler of the tests would look for it before it is built. */
const built = (path) => import(new URL(`../dist/${path}`, import.meta.url).href);

/** Installs the builds for this machine that have no pin in the repository, and pins them. Needs dist/. */
export async function takeBuilds() {
  const { uwsPins } = await built('http/uwsPins.js');
  const builds = buildsHere().filter(({ name }) => !uwsPins[name]);
  if (builds.length === 0) return;
  const { loadConfig } = await built('config.js');
  const { pinFileOf, readPins, writePins } = await built('http/recordedPins.js');
  const missing = [];
  try {
    const { dataDir } = loadConfig();
    const pins = readPins(dataDir);
    // The registry may have only one of two releases. It is not asked again for the other one.
    if (builds.some(({ name, file }) => pins[name] && existsSync(file))) return;
    for (const build of builds) {
      const taken = take(build, pins[build.name]);
      if (!taken) {
        missing.push(build.name);
        continue;
      }
      pins[build.name] = taken.pin;
      writePins(dataDir, pins);
      place(build, taken.bytes);
      log(
        `${build.name} has no pin in this repository. Took it from the npm registry, which states ` +
          `${taken.pin.integrity}, and pinned its SHA-256 ${taken.pin.sha256} in ${pinFileOf(dataDir)}`,
      );
    }
  } catch (error) {
    fail(error.message);
  }
  if (missing.length === builds.length)
    fail(`the npm registry cannot be reached or does not have ${missing.join(', ')}, which Tollgate needs here.`);
}

/** The builds that package-lock.json has for this system and Node. A build may be there in two releases. */
function buildsHere() {
  const ours = `/@uwsjs/${process.platform}-${process.arch}-${process.versions.node.split('.')[0]}`;
  const { packages } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'));
  return Object.entries(packages)
    .filter(([path]) => path.endsWith(ours))
    .map(([path, { version, integrity }]) => ({
      name: `${ours.slice(1)}@${version}`,
      version,
      integrity: integrity === refused ? undefined : integrity,
      file: join(root, path, 'uws.node'),
    }));
}

/**
 * The bytes of a build and its pin, undefined if the registry does not have it. The pin is that of the archive whose
 * SHA-512 was checked, never that of an installed file. Throws if an installed file or an earlier pin differs.
 */
function take({ name, integrity, file }, pinned) {
  const expected = pinned?.integrity ?? integrity ?? statedIntegrity(name);
  if (!expected) return undefined;
  const bytes = filesOf(name, expected, ['uws.node']).get('uws.node');
  const pin = { integrity: expected, sha256: sha256(bytes) };
  if (pinned && pinned.sha256 !== pin.sha256)
    throw new Error(`${name} of the npm registry is not the build that was pinned at the first start.`);
  if (existsSync(file) && sha256(readFileSync(file)) !== pin.sha256)
    throw new Error(
      `${file} differs from ${name} of the npm registry, so it is not pinned. Delete node_modules and start again.`,
    );
  return { bytes, pin };
}

function place({ name, version, file }, bytes) {
  if (existsSync(file)) return;
  const folder = dirname(file);
  mkdirSync(folder, { recursive: true });
  const manifest = { name: name.slice(0, name.lastIndexOf('@')), version };
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(manifest)}\n`);
  // Two starts may do this at the same time.
  writeFileSync(`${file}.${process.pid}`, bytes);
  renameSync(`${file}.${process.pid}`, file);
}
