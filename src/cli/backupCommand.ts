// `tollgate backup`: writes all data of Redis to a file, while Tollgate runs.

import { open, rename, rm } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import type { Config } from '../config.ts';
import { storeSettings } from '../config.ts';
import { backupOf } from '../redis/backup.ts';
import { connect, mastersOf, type RedisClient } from '../redis/connection.ts';
import { startProgress } from './progress.ts';
import type { CommandResult } from './result.ts';
import type { Terminal } from './terminal.ts';

const megabyte = 1024 * 1024;

/** For a Cluster it writes a file for each master: `file`, then a dot and the number of the master. */
export async function backup(
  { url, config, terminal }: { url: string; config: Config; terminal: Terminal },
  file: string,
): Promise<CommandResult> {
  const { commandTimeoutMs, ...settings } = storeSettings(config);
  const redis = await connect(url, { ...settings, commandTimeoutMs: Math.max(commandTimeoutMs, 30_000) });
  try {
    const masters = mastersOf(redis);
    const written: { file: string; bytes: number }[] = [];
    for (const [at, master] of masters.entries()) {
      const name = masters.length === 1 ? file : `${file}.${at + 1}`;
      written.push({ file: name, bytes: await writeBackup(master, name, terminal) });
    }
    return {
      lines: written.map(({ file, bytes }) => `Wrote ${(bytes / megabyte).toFixed(1)} MB to ${file}.`),
      json: written,
    };
  } finally {
    redis.disconnect();
  }
}

/** The file appears under its name when it is complete and on the disk. Returns its bytes. */
async function writeBackup(redis: RedisClient, file: string, { stderr }: Terminal): Promise<number> {
  const part = `${file}.${process.pid}.part`;
  const progress = startProgress(stderr, 'backup', undefined, 'bytes');
  let bytes = 0;
  const output = await open(part, 'wx', 0o600);
  try {
    for await (const chunk of backupOf(redis)) {
      await output.writeFile(chunk);
      bytes += chunk.length;
      progress.update(0, bytes);
    }
    await output.sync();
    await output.close();
    await rename(part, file);
    await syncDirectory(dirname(resolve(file)));
    return bytes;
  } catch (error) {
    await output.close().catch(() => {});
    await rm(part, { force: true });
    throw error;
  } finally {
    progress.stop();
  }
}

async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r');
  await directory.sync().finally(() => directory.close());
}
