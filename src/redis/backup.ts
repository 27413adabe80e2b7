// A copy of all data of one Redis, as a replica would get it: a file in the format RDB. It works through any
// connection, including a Sentinel or TLS, and needs no access to the files of Redis.

import type { Socket } from 'node:net';
import type { RedisClient } from './connection.ts';

/** `$EOF:` and 40 bytes, which follow the file; or `$` and its length. */
const header = /^\$(?:EOF:(.{40})|(\d+))$/s;
/** Before the file, Redis sends an empty line a second while it writes it. */
const headerBytesMax = 4096;
const markBytes = 40;

/**
 * Yields the file as it arrives, in order. Takes over the connection of the client, which must be disconnected
 * afterwards. Throws if Redis refuses or the file is not complete.
 */
export async function* backupOf(redis: RedisClient): AsyncGenerator<Buffer> {
  // Redis 6 and some services refuse one or the other; SYNC then sends the length first, and changes after the file.
  for (const capability of ['capa eof', 'rdb-only 1'])
    await redis.call('REPLCONF', ...capability.split(' ')).catch(() => {});
  const socket = redis.stream as Socket;
  socket.pause();
  socket.removeAllListeners('data');
  socket.write('SYNC\r\n');
  const chunks = socket[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
  const { line, rest } = await readHeader(chunks);
  const [, mark, length] = header.exec(line)!;
  yield* mark === undefined ? untilLength(chunks, rest, Number(length)) : untilMark(chunks, rest, mark);
}

const ended = () => new Error('Redis closed the connection before the end of the backup. Its log has the reason.');

async function nextOf(chunks: AsyncIterator<Buffer>): Promise<Buffer> {
  const next = await chunks.next();
  if (next.done) throw ended();
  return next.value;
}

async function readHeader(chunks: AsyncIterator<Buffer>): Promise<{ line: string; rest: Buffer }> {
  let read = Buffer.alloc(0);
  for (;;) {
    read = Buffer.concat([read, await nextOf(chunks)]);
    const from = read.findIndex((byte) => byte !== 10 && byte !== 13);
    const to = from < 0 ? -1 : read.indexOf('\r\n', from);
    if (to >= 0) {
      const line = read.toString('latin1', from, to);
      if (header.test(line)) return { line, rest: read.subarray(to + 2) };
      throw new Error(
        `Redis refuses SYNC, by which a replica gets the data: ${line.slice(0, 200)} The account needs +sync and ` +
          '+replconf. A managed Redis may have backups of its own instead.',
      );
    }
    read = read.subarray(Math.max(0, from));
    if (from < 0) read = Buffer.alloc(0);
    if (read.length > headerBytesMax) throw new Error('Redis replies to SYNC in a form that is not known.');
  }
}

async function* untilLength(chunks: AsyncIterator<Buffer>, first: Buffer, length: number): AsyncGenerator<Buffer> {
  let left = length;
  for (let chunk = first; ; chunk = await nextOf(chunks)) {
    // Changes since follow the file.
    yield chunk.subarray(0, left);
    left -= Math.min(left, chunk.length);
    if (left === 0) return;
  }
}

async function* untilMark(chunks: AsyncIterator<Buffer>, first: Buffer, mark: string): AsyncGenerator<Buffer> {
  let held = first;
  for (;;) {
    const end = held.length - markBytes;
    if (end >= 0 && held.toString('latin1', end) === mark) {
      yield held.subarray(0, end);
      return;
    }
    // The end of the bytes may be the beginning of the mark, and is kept.
    if (end > 0) {
      yield held.subarray(0, end);
      held = held.subarray(end);
    }
    held = Buffer.concat([held, await nextOf(chunks)]);
  }
}
