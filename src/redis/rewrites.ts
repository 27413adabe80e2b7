/**
 * Lets the embedded Redis rewrite its append-only file less often where much is written. By itself Redis rewrites it
 * when it is larger than 64 MB and has doubled: with few keys and 20,000 verifications a second that is every ten
 * seconds, and each rewrite forks the process. A longer file takes longer to load after a restart, so its growth is
 * bounded.
 */
import { statfs } from 'node:fs/promises';
import { Redis } from 'ioredis';
import { fieldsOf } from './facts.ts';
import { connectionName } from './names.ts';

const setting = 'auto-aof-rewrite-min-size';
const megabyte = 1024 * 1024;
const lookMs = 30_000;
/** The file may grow for this long between two rewrites. */
const growsForMs = 600_000;
/** As Redis's own default: a smaller file is not rewritten. */
const leastBytes = 64 * megabyte;
/** 1.4 million verifications, which Redis loads in about half a minute (`npm run bench -- restart`). */
const growthMaxBytes = 512 * megabyte;
/** The part of the free disk that the growth may take. The rewrite needs room for another copy of the data. */
const diskShare = 1 / 4;

interface RewriteFacts {
  /** Bytes after the last rewrite. */
  baseBytes: number;
  /** Bytes now. */
  sizeBytes: number;
  /** Growth per millisecond. */
  rate: number;
  /** Free bytes of the disk. */
  freeBytes: number;
}

/** The size below which Redis should not rewrite the file (`auto-aof-rewrite-min-size`), in bytes. */
export function rewriteMinBytes({ baseBytes, sizeBytes, rate, freeBytes }: RewriteFacts): number {
  const room = (freeBytes + Math.max(0, sizeBytes - baseBytes)) * diskShare;
  const growth = Math.min(rate * growsForMs, growthMaxBytes, room);
  return Math.max(leastBytes, Math.round((baseBytes + growth) / megabyte) * megabyte);
}

/**
 * Looks at the file, and sets the size. The rate is that of the fastest of the last looks: it falls by a tenth with
 * each. Durations are those of the process's monotonic clock.
 */
export function rewritePacer(redis: Pick<Redis, 'info' | 'config'>, dataDir: string, nowMs = () => performance.now()) {
  let last: { sizeBytes: number; at: number } | undefined;
  let rate = 0;
  return async () => {
    const info = fieldsOf(await redis.info('persistence'));
    const sizeBytes = Number(info.get('aof_current_size'));
    const baseBytes = Number(info.get('aof_base_size'));
    if (Number.isNaN(sizeBytes + baseBytes)) return;
    const at = nowMs();
    // After a rewrite the file is smaller, so that interval does not change the rate.
    if (last && at > last.at) rate = Math.max(rate * 0.9, (sizeBytes - last.sizeBytes) / (at - last.at));
    last = { sizeBytes, at };
    const { bavail, bsize } = await statfs(dataDir);
    const wanted = String(rewriteMinBytes({ baseBytes, sizeBytes, rate, freeBytes: bavail * bsize }));
    // Read each time: a Redis that was restarted has the size of its configuration again.
    const [, current] = (await redis.config('GET', setting)) as string[];
    if (current !== wanted) await redis.config('SET', setting, wanted);
  };
}

/** Starts looking at the Redis of a socket. Returns what stops it. */
export function paceRewrites(url: string, dataDir: string): () => void {
  const redis = new Redis({
    path: url.replace(/^unix:/, ''),
    connectionName,
    lazyConnect: true,
    maxRetriesPerRequest: 0,
  });
  // Redis is restarted by embedded.ts; the next look finds it again.
  redis.on('error', () => {});
  const look = rewritePacer(redis, dataDir);
  const timer = setInterval(() => look().catch(() => {}), lookMs).unref();
  return () => {
    clearInterval(timer);
    redis.disconnect();
  };
}
