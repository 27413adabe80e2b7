// The pins of builds of uWebSockets.js that uwsPins.ts lacks. `npm start` takes them from the registry at the first
// start (bin/builds.mjs) and stores them in the data directory. From then on they are checked like the others.

import { randomBytes } from 'node:crypto';
import {
  closeSync,
  constants,
  fstatSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';

interface RecordedPin {
  /** The SHA-512 of the package, as the registry stated it. */
  integrity: string;
  /** The SHA-256 of uws.node in it, as hex. */
  sha256: string;
}

type RecordedPins = Record<string, RecordedPin>;

const fileBytesMax = 65_536;

export const pinFileOf = (dataDir: string): string => join(dataDir, 'uws-pins.json');

/** The recorded pins by package and version; none if there is no file. Throws if another user may have written it. */
export function readPins(dataDir: string): RecordedPins {
  const file = pinFileOf(dataDir);
  const unusable = (why: string) => new Error(`The pins in ${file} are not used: ${why}.`);
  let handle: number;
  try {
    // Not blocking, as the file may be a pipe.
    handle = openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === 'ENOENT') return {};
    throw unusable(code === 'ELOOP' || code === 'EMLINK' ? 'it is a symbolic link' : (cause as Error).message);
  }
  try {
    const { mode, uid, size } = fstatSync(handle);
    if ((mode & constants.S_IFMT) !== constants.S_IFREG) throw unusable('it is not a file');
    if (uid !== process.getuid?.() && uid !== 0) throw unusable('it belongs to another user');
    if ((mode & 0o022) !== 0) throw unusable('other users may write to it (chmod 600)');
    if (size > fileBytesMax) throw unusable(`it is larger than ${fileBytesMax} bytes`);
    return pinsOf(readFileSync(handle, 'utf8')) ?? fail(unusable('it has not the form that Tollgate writes'));
  } finally {
    closeSync(handle);
  }
}

function fail(error: Error): never {
  throw error;
}

function pinsOf(text: string): RecordedPins | undefined {
  let found: unknown;
  try {
    found = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (typeof found !== 'object' || found === null) return undefined;
  const isPin = ([name, pin]: [string, Partial<RecordedPin> | null]) =>
    /^@uwsjs\/[\w-]+@[\w.-]+$/.test(name) &&
    /^sha512-[\w+/]{86}==$/.test(pin?.integrity ?? '') &&
    /^[0-9a-f]{64}$/.test(pin?.sha256 ?? '');
  return Object.entries(found).every(isPin) ? (found as RecordedPins) : undefined;
}

/** Replaces the file as a whole, so that a start that is interrupted leaves the earlier one. */
export function writePins(dataDir: string, pins: RecordedPins): void {
  const file = pinFileOf(dataDir);
  const next = `${file}.${randomBytes(4).toString('hex')}`;
  try {
    mkdirSync(dataDir, { recursive: true, mode: 0o700 });
    const handle = openSync(next, 'wx', 0o600);
    try {
      writeFileSync(handle, `${JSON.stringify(pins, undefined, 2)}\n`);
      fsyncSync(handle);
    } finally {
      closeSync(handle);
    }
    renameSync(next, file);
  } catch (cause) {
    rmSync(next, { force: true });
    throw new Error(
      `The pin of uWebSockets.js cannot be written to ${file}: ${(cause as Error).message}. Set TOLLGATE_DATA_DIR to a ` +
        'directory that this user may write to, or run `npm run pin`.',
      { cause },
    );
  }
}
