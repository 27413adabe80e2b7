// Migrates the stored data by hand, or prints what a migration would do.

import { setTimeout as delay } from 'node:timers/promises';
import { blockersAsText, type Plan, type Progress } from '../migrations/migration.ts';
import type { Store } from '../store.ts';
import { type Progress as CommandProgress, withProgress } from './progress.ts';
import type { CommandResult } from './result.ts';
import type { Terminal } from './terminal.ts';

interface Options {
  dryRun?: true | undefined;
  wait?: true | undefined;
  force?: true | undefined;
}

const lookMs = 1_000;
/** Records that are migrated in a second in addition to other work: docs/upgrade.md. */
const recordsPerSecond = 20_000;

const count = (number: number, noun: string) => `${number.toLocaleString('en')} ${noun}${number === 1 ? '' : 's'}`;

export async function migrate(
  store: Pick<Store, 'migrations' | 'dataVersion'>,
  terminal: Terminal,
  { dryRun, wait, force }: Options,
): Promise<CommandResult> {
  const plan = await store.migrations.plan();
  if (plan.steps.length === 0) return { lines: [nothingToDo(plan)], json: { ...plan, outcome: 'migrated' } };
  if (dryRun) return { lines: described(plan), json: { ...plan, seconds: secondsOf(plan) } };
  const startedAt = performance.now();
  const run = async (progress: CommandProgress) => {
    const onProgress = ({ done }: Pick<Progress, 'done'>) => progress.update(done, done);
    for (;;) {
      const outcome = await store.migrations.migrate({ byHand: true, force: force === true, onProgress });
      if (!wait || (outcome !== 'busy' && outcome !== 'blocked')) return outcome;
      if (store.dataVersion.migration) onProgress(store.dataVersion.migration);
      await delay(lookMs);
    }
  };
  const outcome = await withProgress(run, terminal.stderr, 'Migrating', Math.max(plan.records, 1), 'records');
  if (outcome === 'migrated') {
    const line = `The stored data has version ${plan.newest}, after ${Math.round((performance.now() - startedAt) / 1000)} s.`;
    return { lines: [line], json: { ...plan, version: plan.newest, outcome } };
  }
  const lines =
    outcome === 'busy' ? busy(store) : [...blockersAsText((await store.migrations.plan()).blockers), remedy];
  return { lines, json: { ...plan, outcome }, failed: true };
}

const remedy =
  'Nothing was changed. Stop or upgrade these servers, and run the command again (--wait waits for them). ' +
  'If connections without a name are those of other programs, add --force.';

function busy({ dataVersion }: Pick<Store, 'dataVersion'>): string[] {
  const { done = 0, total = 0 } = dataVersion.migration ?? {};
  const far = `${count(done, 'record')} of ${total.toLocaleString('en')}`;
  return [`Another process migrates the stored data: ${far}. With --wait the command waits for its end.`];
}

const nothingToDo = ({ version }: Plan) => `The stored data has version ${version}, the newest of this release.`;

const secondsOf = ({ records }: Plan) => Math.ceil(records / recordsPerSecond) + 2;

function described(plan: Plan): string[] {
  const { version, newest, steps, workspaces, records, blockers } = plan;
  const size = `${count(records, 'record')} in ${count(workspaces, 'workspace')}`;
  return [
    `The stored data has version ${version}. This release migrates it to version ${newest}:`,
    ...steps.map((step) => `  ${step}`),
    `${size}: about ${secondsOf(plan)} s. Servers serve meanwhile.`,
    ...blockersAsText(blockers),
  ];
}
