// Packages of the npm registry, checked by the SHA-512 that package-lock.json or the registry states for them.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { root } from './prepare.mjs';

const archiveBytesMax = 2 ** 26;
const npmTimeoutMs = 120_000;

/** The hash of a file as package-lock.json writes it. */
export const sha512 = (bytes) => `sha512-${createHash('sha512').update(bytes).digest('base64')}`;
export const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');

/** The SHA-512 that the registry states for a package, such as `ajv@8.20.0`. Undefined if it does not have it. */
export function statedIntegrity(spec) {
  const [found] = /^sha512-\S+$/m.exec(npm('view', spec, 'dist.integrity').stdout) ?? [];
  return found;
}

/** The files of these names in a package, whose archive has this SHA-512. Throws if it has another, or lacks a file. */
export function filesOf(spec, integrity, names) {
  const dir = mkdtempSync(join(tmpdir(), 'tollgate-package-'));
  try {
    const { status, stdout } = npm('pack', spec, '--json', '--ignore-scripts', '--pack-destination', dir);
    if (status !== 0) throw new Error(`npm could not get ${spec} from the registry.`);
    const archive = join(dir, JSON.parse(stdout)[0].filename);
    if (statSync(archive).size > archiveBytesMax) throw new Error(`${spec} is larger than ${archiveBytesMax} bytes.`);
    const found = sha512(readFileSync(archive));
    if (found !== integrity) throw new Error(`${spec} has the SHA-512 ${found}, not ${integrity}.`);
    return new Map(names.map((name) => [name, fileIn(archive, spec, name)]));
  } finally {
    rmSync(dir, { recursive: true });
  }
}

function fileIn(archive, spec, name) {
  const { status, stdout } = spawnSync('tar', ['-xzOf', archive, `package/${name}`], { maxBuffer: archiveBytesMax });
  if (status !== 0 || stdout.length === 0) throw new Error(`${spec} does not contain ${name}.`);
  return stdout;
}

export function npm(...args) {
  const options = { cwd: root, encoding: 'utf8', timeout: npmTimeoutMs };
  const { status, stdout } = spawnSync('npm', [...args, '--loglevel=silent', '--fetch-retries=1'], options);
  return { status, stdout: stdout ?? '' };
}
