// The library of Redis that the build made of lua/ (library.ts).

import { readFileSync } from 'node:fs';

/** The name of a library is this, and the hash of its text. */
export const libraryPrefix = 'tollgate_';

interface Script {
  /** The name of its function in Redis. */
  functionName: string;
  /** It writes to the audit log. Then it returns its reply, and the sessions that may hold leases. */
  isChange: boolean;
  /** Redis has a second function for it, called while Redis refuses writes (lua/include/fullMemory.lua). */
  hasFull: boolean;
  /** It only reads. Then it returns the microseconds that it took, and its reply (src/scripts/readPace.ts). */
  isRead: boolean;
}

export interface Library {
  /** Its name in Redis, with the hash of its text. */
  name: string;
  text: string;
  /** By their paths in lua/, without extension. */
  scripts: ReadonlyMap<string, Script>;
}

const registration = /^-- lua\/(\S+)\.lua\n.* register(_change|_read|)\('(\w+)', {.*}, (\S+),/gm;

export const libraryOf = (text: string): Library => ({
  name: /name=(\w+)/.exec(text)![1]!,
  text,
  scripts: new Map(
    [...text.matchAll(registration)].map(([, path, kind, functionName, full]) => [
      path!,
      { functionName: functionName!, isChange: kind === '_change', isRead: kind === '_read', hasFull: full !== 'nil' },
    ]),
  ),
});

let used: Library | undefined;

/** The library of this process. It is read once. */
export function library(): Library {
  used ??= libraryOf(readFileSync(new URL('../../dist/tollgate.lua', import.meta.url), 'utf8'));
  return used;
}

/** Tests have a library that is stricter. */
export function useLibrary(text: string) {
  used = libraryOf(text);
}

/** An error message of Redis, with the files and lines of lua/ in place of lines of the library. */
export function locate({ text }: Library, message: string): string {
  return message.replaceAll(/@?user_(?:script|function):(\d+)/g, (place, number: string) => {
    const lines = text.split('\n').slice(0, Number(number));
    const above = lines.findLastIndex((line) => line.startsWith('-- lua/'));
    return above < 0 || lines.length < Number(number)
      ? place
      : `${lines[above]!.slice('-- '.length)}:${lines.length - 1 - above}`;
  });
}
