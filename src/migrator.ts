// The background task that migrates the stored data when all servers support the next version. Any number of servers
// may run it; one at a time migrates.

import type { Logger } from 'pino';
import { repeat } from './domain/repeat.ts';
import { blockersAsText, type Progress } from './migrations/migration.ts';
import type { Store } from './store.ts';

/** How often a server looks. Two looks in a row must find no server that would be cut off. */
const lookMs = 5_000;
/** How often progress is logged. */
const logMs = 5_000;

interface MigratorOptions {
  log: Logger;
  /** Shorter in tests. */
  intervalMs?: number;
}

export function startMigrator(
  { migrations, dataVersion }: Pick<Store, 'migrations' | 'dataVersion'>,
  { log, intervalMs = lookMs }: MigratorOptions,
) {
  let wasFree = false;
  let lastBlockers = '';
  let loggedAt = Number.NEGATIVE_INFINITY;

  function onProgress({ to, done, total }: Progress) {
    if (performance.now() - loggedAt < logMs) return;
    loggedAt = performance.now();
    log.info({ to, done, total }, 'Migrating the stored data.');
  }

  /** Logs what prevents the migration, once. */
  function logBlockers(blockers: string[]) {
    const text = blockers.join(' ');
    if (text !== lastBlockers && text !== '') {
      const remedy = 'It starts when there are none, or by hand: `tollgate migrate`.';
      log.warn({ blockers }, `The stored data is not migrated yet, because of other servers. ${remedy}`);
    }
    lastBlockers = text;
  }

  async function look() {
    const blockers = blockersAsText(await migrations.blockers());
    logBlockers(blockers);
    const isFree = blockers.length === 0;
    const mayStart = isFree && wasFree;
    wasFree = isFree;
    if (!mayStart || looks.isStopped) return;
    const startedAt = performance.now();
    const { current: from } = dataVersion;
    const outcome = await migrations.migrate({ isStopped: () => looks.isStopped, onProgress });
    if (outcome !== 'migrated') return;
    const durationMs = Math.round(performance.now() - startedAt);
    log.info({ from, to: dataVersion.current, durationMs }, 'Migrated the stored data.');
  }

  async function run() {
    try {
      if (migrations.isDue) await look();
    } catch (error) {
      if (!looks.isStopped)
        log.error({ err: error }, 'The migration of the stored data was interrupted. It will continue.');
    }
  }

  const looks = repeat(intervalMs, run);
  return looks;
}
