// `npm start` on a system whose builds of uWebSockets.js the repository does not pin: they are taken from the npm
// registry and pinned in the data directory. The folder is made to look like such a system; npm is the real one, the
// registry one of this process.

import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { readPins, writePins } from '../../src/http/recordedPins.ts';
import { packagesFor } from '../../src/http/uws.ts';
import { installedOrPacked } from '../support/packed.ts';
import { addressOf, atEnd, build, endAll, type Program, run, runRedis, temporaryDir } from '../support/processes.ts';
import { isThorough, thoroughTest } from '../support/testIf.ts';

const nodeMajor = Number.parseInt(process.versions.node, 10);
const packageName = `@uwsjs/${process.platform}-${process.arch}-${nodeMajor}`;
const refused = `sha512-${createHash('sha512').digest('base64')}`;
const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');
const sha512 = (bytes: Buffer) => `sha512-${createHash('sha512').update(bytes).digest('base64')}`;

/** Tollgate's folder, without the build and without its pins. */
let dir: string;
let dataDir: string;
let pinFile: string;
/** Where the build is installed. */
let installed: string;
let build1: Buffer;
/** The archive of this build, which takes half a second to pack. */
let archive1: Buffer | undefined;
let name: string;

/** The registry: what it serves and states, and how often it was asked. */
const registry = { archive: Buffer.alloc(0), stated: '', url: '', requests: 0 };
const server = createServer((request, response) => {
  registry.requests++;
  const version = name.slice(packageName.length + 1);
  const dist = { tarball: `${registry.url}/archive.tgz`, integrity: registry.stated };
  const known = {
    name: packageName,
    'dist-tags': { latest: version },
    versions: { [version]: { name: packageName, version, dist } },
  };
  if (request.url === '/archive.tgz') response.end(registry.archive);
  else if (request.url === `/${packageName.replace('/', '%2f')}`) response.end(JSON.stringify(known));
  else response.writeHead(404).end('{}');
});

/** The archive of a package with this build. */
function archiveOf(bytes: Buffer): Buffer {
  const place = temporaryDir();
  mkdirSync(join(place, 'package'));
  writeFileSync(join(place, 'package', 'uws.node'), bytes);
  writeFileSync(join(place, 'package', 'package.json'), JSON.stringify({ name: packageName, version: '1.0.0' }));
  return spawnSync('tar', ['-I', 'gzip -1', '-cf', '-', '-C', place, 'package'], { maxBuffer: 2 ** 26 }).stdout;
}

function serve(archive: Buffer, stated = sha512(archive)) {
  Object.assign(registry, { archive, stated, requests: 0 });
}

const changed = (bytes: Buffer) => {
  const other = Buffer.from(bytes);
  other[1_000_000]! ^= 1;
  return other;
};

beforeAll(async () => {
  build();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  registry.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});

afterAll(() => new Promise((resolve) => server.close(resolve)));

beforeEach(() => {
  dir = realpathSync(mkdtempSync(join(tmpdir(), 'tollgate-test-')));
  dataDir = join(dir, 'data');
  pinFile = join(dataDir, 'uws-pins.json');
  for (const copied of ['bin', 'dist'])
    cpSync(copied, join(dir, copied), {
      recursive: true,
      preserveTimestamps: true,
      filter: (path) => !path.includes('packed'),
    });
  for (const linked of ['lua', 'package.json', 'src', 'tsconfig.json', 'tsconfig.build.json'])
    symlinkSync(resolve(linked), join(dir, linked));
  mkdirSync(join(dir, 'node_modules'));
  for (const each of readdirSync('node_modules'))
    if (each.startsWith('uws-'))
      cpSync(join('node_modules', each), join(dir, 'node_modules', each), { recursive: true });
    else if (each !== '@uwsjs') symlinkSync(installedOrPacked(each), join(dir, 'node_modules', each));

  // Only the release that this Node takes last is left, whose build is next to the other packages.
  const lock = JSON.parse(readFileSync('package-lock.json', 'utf8'));
  const path = `node_modules/${packageName}`;
  for (const each of Object.keys(lock.packages))
    if (each.endsWith(packageName) && each !== path) delete lock.packages[each];
  name = `${packageName}@${lock.packages[path].version}`;
  lock.packages[path].integrity = refused;
  writeFileSync(join(dir, 'package-lock.json'), JSON.stringify(lock));
  writeFileSync(join(dir, 'dist/http/uwsPins.js'), 'export const uwsPins = {};\n');
  installed = join(dir, path, 'uws.node');
  build1 = readFileSync(join(path, 'uws.node'));
  expect(packagesFor(nodeMajor)).toContain('uws-node20-22');
  archive1 ??= archiveOf(build1);
  serve(archive1);
});

afterEach(async () => {
  await endAll();
  rmSync(dir, { recursive: true });
});

function start(settings: Record<string, string> = {}, command = ['bin/start.mjs']): Program {
  const npm = {
    npm_config_registry: registry.url,
    npm_config_cache: join(dir, 'cache'),
    HOME: dir,
    npm_config_fetch_retry_mintimeout: '1',
  };
  // A busy machine may take longer than the default for the first command.
  const env = { PATH: process.env.PATH, PORT: '0', REDIS_TIMEOUT_MS: '10000', ...npm, ...settings };
  const program = run(process.execPath, command, { cwd: dir, env });
  atEnd(() => program.stop('SIGINT'));
  return program;
}

/** Starts a server, waits until it serves, and stops it. Returns what it printed on standard error. */
async function serves(settings: Record<string, string> = {}, command?: string[]): Promise<string> {
  const program = start(settings, command);
  try {
    const response = await fetch(`${await addressOf(program)}/v2/liveness`);
    expect(response.status).toBe(200);
  } finally {
    await program.stop('SIGINT');
  }
  return program.err;
}

/** Starts a server that must not start. Returns its message. */
async function refuses(settings: Record<string, string> = {}, command?: string[]): Promise<string> {
  const program = start(settings, command);
  const code = await Promise.race([program.ended, addressOf(program).catch(() => program.ended)]);
  expect([code, program.out]).toEqual([1, '']);
  return program.err;
}

describe('the first start', () => {
  test('takes the build that the registry states, pins it in one line, and later ones ask nothing', async () => {
    const err = await serves({ WORKERS: '2' });
    const line = `tollgate: ${name} has no pin in this repository. Took it from the npm registry, which states ${registry.stated}, and pinned its SHA-256 ${sha256(build1)} in ${pinFile}\n`;
    expect(err.split('{')[0]).toBe(line);
    expect(JSON.parse(readFileSync(pinFile, 'utf8'))).toEqual({
      [name]: { integrity: registry.stated, sha256: sha256(build1) },
    });
    expect(statSync(pinFile).mode & 0o777).toBe(0o600);
    expect(statSync(dataDir).mode & 0o777).toBe(0o700);
    expect(sha256(readFileSync(installed))).toBe(sha256(build1));
    expect(readdirSync(dataDir).sort()).toEqual(['redis', 'uws-pins.json']);

    registry.requests = 0;
    expect(await serves({}, ['bin/tollgate.mjs', 'start'])).not.toContain('pin');
    expect(registry.requests).toBe(0);
  });

  thoroughTest('pins in the data directory also for a Redis elsewhere', async () => {
    const redis = await runRedis(temporaryDir());
    try {
      expect(await serves({ REDIS_URL: redis.url })).toContain('pinned its SHA-256');
      expect(readdirSync(dataDir)).toEqual(['uws-pins.json']);
    } finally {
      await redis.stop('SIGKILL');
    }
  });

  thoroughTest('pins an installed build only if it is that of the registry', async () => {
    const version = name.slice(packageName.length + 1);
    mkdirSync(join(installed, '..'), { recursive: true });
    writeFileSync(join(installed, '..', 'package.json'), JSON.stringify({ name: packageName, version }));
    writeFileSync(installed, changed(build1));
    expect(await refuses()).toBe(
      `tollgate: ${installed} differs from ${name} of the npm registry, so it is not pinned. Delete node_modules and start again.\n`,
    );
    expect(existsSync(pinFile)).toBe(false);
    writeFileSync(installed, build1);
    expect(await serves()).toContain('pinned its SHA-256');
  });

  const spoiled: [what: string, spoil: (archive: Buffer) => void, message: string][] = [
    [
      'an archive that differs from what the registry states',
      (archive: Buffer) => serve(archiveOf(changed(build1)), sha512(archive)),
      'npm could not get',
    ],
    [
      'a package without the build',
      () => serve(spawnSync('tar', ['-czf', '-', '-C', 'docs', '--transform', 's,^,package/,', 'settings.md']).stdout),
      'does not contain uws.node',
    ],
    ['no archive', (archive: Buffer) => serve(Buffer.alloc(0), sha512(archive)), 'npm could not get'],
  ];
  test.each(isThorough ? spoiled : spoiled.slice(0, 1))(
    'takes nothing from a registry with %s',
    async (_, spoil, message) => {
      spoil(registry.archive);
      expect(await refuses()).toContain(message);
      expect([existsSync(pinFile), existsSync(installed)]).toEqual([false, false]);
    },
  );

  thoroughTest('names what it needs if the registry does not have it', async () => {
    const wanted = name;
    name = `${packageName}@9.9.9`;
    expect(await refuses()).toBe(
      `tollgate: the npm registry cannot be reached or does not have ${wanted}, which Tollgate needs here.\n`,
    );
  });

  thoroughTest('takes the archive of package-lock.json if that has one, whatever the registry states', async () => {
    const file = join(dir, 'package-lock.json');
    const lock = JSON.parse(readFileSync(file, 'utf8'));
    lock.packages[`node_modules/${packageName}`].integrity = registry.stated;
    writeFileSync(file, JSON.stringify(lock));
    // npm believes that it is installed, so that only bin/builds.mjs asks for it.
    const hidden = JSON.parse(readFileSync('node_modules/.package-lock.json', 'utf8'));
    hidden.packages[`node_modules/${packageName}`] = lock.packages[`node_modules/${packageName}`];
    rmSync(join(dir, 'node_modules/.package-lock.json'));
    writeFileSync(join(dir, 'node_modules/.package-lock.json'), JSON.stringify(hidden));
    serve(archiveOf(changed(build1)));
    expect(await refuses()).toContain('has the SHA-512');
    expect(existsSync(pinFile)).toBe(false);
  });

  thoroughTest('ends if the pin cannot be written', async () => {
    // Not even root can create a folder in /sys.
    expect(await refuses({ TOLLGATE_DATA_DIR: '/sys/tollgate' })).toMatch(
      /^tollgate: The pin of uWebSockets\.js cannot be written to \/sys\/tollgate\/uws-pins\.json: .*npm run pin`\.\n$/,
    );
    expect(existsSync(installed)).toBe(false);
  });
});

describe('after the first start', () => {
  /** What it leaves, as tested above. */
  beforeEach(() => {
    writePins(dataDir, { [name]: { integrity: registry.stated, sha256: sha256(build1) } });
    mkdirSync(join(installed, '..'), { recursive: true });
    writeFileSync(installed, build1);
    const version = name.slice(packageName.length + 1);
    writeFileSync(join(installed, '..', 'package.json'), JSON.stringify({ name: packageName, version }));
  });

  test('a changed build is not loaded, also not one that the registry now states', async () => {
    const other = changed(build1);
    rmSync(installed);
    writeFileSync(installed, other);
    expect(await refuses()).toContain(
      `${installed} is not loaded: its SHA-256 is ${sha256(other)}, and ${pinFile} has ${sha256(build1)} for ${name}.`,
    );
    serve(archiveOf(other));
    rmSync(installed);
    expect(await refuses()).toContain(`has the SHA-512 ${registry.stated}, not `);
    expect(existsSync(installed)).toBe(false);
  });

  thoroughTest('an installation that was deleted is taken again, if it is the same', async () => {
    rmSync(installed);
    await serves();
    expect(sha256(readFileSync(installed))).toBe(sha256(build1));
  });

  thoroughTest('a server without bin/ uses the pin, and none without the file', async () => {
    await serves({}, ['dist/main.js']);
    rmSync(pinFile);
    expect(await refuses({}, ['dist/main.js'])).toContain(
      `src/http/uwsPins.ts has none for ${name}. Start Tollgate with \`npm start\``,
    );
  });

  test('a file that another user may have written is not used, nor one of another form', async () => {
    const text = readFileSync(pinFile, 'utf8');
    const other = 12_345;
    const spoils: [why: string, spoil: () => unknown][] = [
      ['other users may write to it (chmod 600)', () => chmodSync(pinFile, 0o620)],
      ['it has not the form', () => writeFileSync(pinFile, '{"@uwsjs/x@1": {"integrity": "sha512-", "sha256": ""}}')],
      ['it has not the form', () => writeFileSync(pinFile, text.slice(0, -5))],
      ['it is larger than', () => writeFileSync(pinFile, ' '.repeat(70_000))],
      ['it is not a file', () => spawnSync('mkfifo', [without(pinFile)])],
      ['it is not a file', () => mkdirSync(without(pinFile))],
      ['it is a symbolic link', () => symlinkSync(join(dir, 'elsewhere'), without(pinFile))],
      // Only root can give a file to another user.
      ...(process.getuid?.() === 0
        ? ([['it belongs to another user', () => chownSync(pinFile, other, other)]] as [string, () => void][])
        : []),
    ];
    writeFileSync(join(dir, 'elsewhere'), text, { mode: 0o600 });
    for (const [why, spoil] of spoils) {
      rmSync(pinFile, { recursive: true });
      writeFileSync(pinFile, text, { mode: 0o600 });
      spoil();
      const words = `The pins in ${pinFile} are not used: ${why}`;
      expect(() => readPins(dataDir)).toThrow(words);
      // Both programs read the file so.
      if (why === spoils[0]![0])
        for (const command of [['bin/start.mjs'], ['dist/main.js']])
          expect(await refuses({}, command)).toContain(words);
    }
  });

  function without(file: string): string {
    rmSync(file);
    return file;
  }
});
