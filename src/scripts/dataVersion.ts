// The version of the data in Redis. It increases whenever something is stored differently. A server reads and writes
// the versions from `oldestDataVersion` to `dataVersion`, and refuses all others: it would read only a part of the
// data, find some keys and not others, and write data of its own version.

import { orStoreError, type RedisClient } from '../redis/connection.ts';
import { dataKey, formKey, workspacesKey } from '../redis/names.ts';
import { dataVersion, oldestDataVersion } from './layout.ts';

/** Exit code of a server that cannot use the data: starting it again does not help (EX_CONFIG of sysexits.h). */
const unsupportedDataExitCode = 78;

/** A migration that is running, or that a process began and another one will continue. */
export interface RunningMigration {
  from: number;
  to: number;
  /** Migrated records, and all as far as known. */
  done: number;
  total: number;
  /** Unix milliseconds by Redis's clock. */
  startedAt: number;
}

export interface StoredData {
  version: number;
  migration: RunningMigration | undefined;
}

/** The data version of a store, as it was read last. */
export interface DataVersion {
  readonly current: number;
  readonly migration: RunningMigration | undefined;
}

/** The versions that a program supports. */
export interface Supported {
  oldest: number;
  newest: number;
  /** Version of Tollgate. */
  release: string;
}

export const supportedBy = (release: string): Supported => ({
  oldest: oldestDataVersion,
  newest: dataVersion,
  release,
});

export const unsupported = (message: string) =>
  Object.assign(new Error(message), { exitCode: unsupportedDataExitCode });

/** The exit code of a program that an error ends. */
export const exitCodeOf = (error: unknown): number => (error as { exitCode?: number }).exitCode ?? 1;

export const isUnsupported = (error: unknown): boolean => exitCodeOf(error) === unsupportedDataExitCode;

const fields = ['version', 'release', 'target', 'by', 'done', 'total', 'started'] as const;

/**
 * Reads the version of the data. Rejects with the exit code 78 if it is not supported. Writes the version if Redis has
 * none, as an empty one.
 */
export async function readData(redis: RedisClient, supported: Supported): Promise<StoredData> {
  const [[version, release, target, by, ...numbers], form] = await Promise.all([
    orStoreError(redis.hmget(dataKey, ...fields)),
    orStoreError(redis.get(formKey)),
  ]);
  const stored = version ?? form ?? (await unwrittenVersion(redis));
  const found = Number(stored ?? supported.newest);
  const largest = Math.max(found, Number(target ?? 0));
  const writer = target ? by : release;
  const needed = writer ? `Tollgate ${writer}` : 'the release that wrote it';
  if (largest > supported.newest) throw refused(largest, supported, `Run ${needed} or a later one`);
  const moving = 'Export it with the version that wrote it, and import it into an empty Redis';
  if (!(found >= supported.oldest)) throw refused(String(stored), supported, moving);
  if (version === null || version === undefined || form === null)
    await write(redis, found, stored ? '' : supported.release);
  const [done, total, startedAt] = numbers.map(Number) as [number, number, number];
  return {
    version: found,
    migration: target ? { from: found, to: Number(target), done, total, startedAt } : undefined,
  };
}

/** The error of data with a version that is not supported. */
function refused(found: number | string, { release, oldest, newest }: Supported, remedy: string) {
  const read = oldest === newest ? `version ${newest}` : `versions ${oldest} to ${newest}`;
  return unsupported(
    `The data in Redis has version ${found}, and Tollgate ${release} reads ${read}. ${remedy}: docs/upgrade.md.`,
  );
}

/** A full Redis or a replica may refuse it: then the next start writes it. */
async function write(redis: RedisClient, version: number, release: string) {
  await Promise.all([
    redis.hsetnx(dataKey, 'version', String(version)),
    release && redis.hsetnx(dataKey, 'release', release),
    redis.set(formKey, String(version), 'NX'),
  ]).catch(() => {});
}

/** The version of data without a stored version, as early servers stored none; undefined for an empty Redis. */
const unwrittenVersion = async (redis: RedisClient): Promise<string | undefined> =>
  (await orStoreError(redis.exists(workspacesKey))) > 0 ? '1 or 2' : undefined;
