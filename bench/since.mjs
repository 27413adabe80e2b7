// Compares this build with that of an earlier commit: the same load on both, in alternating rounds, so that a disturbance
// of the machine affects both.
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { openLoad } from './support/load.mjs';
import { numbersOf, readOptions, refuse } from './support/options.mjs';
import { atEnd, costOf, program, root, run, temporaryDir } from './support/processes.mjs';
import { median, number, progress, progressDone, table } from './support/results.mjs';
import { targets } from './targets/index.mjs';

const help = `npm run bench -- since <commit> [options]     compares with the build of a commit; takes about four minutes
  --rounds n           number of alternating rounds, 4 by default; figures are medians of the rounds
  --seconds s          seconds of a run, 3 by default
  --connections a,b    numbers of connections, 1,8,64 by default
  --quick              run for a few seconds, to see that the bench works; its figures are meaningless`;

const isNamed = /^[^-]/.test(process.argv[2] ?? '');
const [given] = isNamed ? process.argv.splice(2, 1) : [];
const options = readOptions(help, {
  rounds: { type: 'string' },
  seconds: { type: 'string' },
  connections: { type: 'string' },
  quick: { type: 'boolean' },
});
const commit = given ?? (options.quick ? 'HEAD' : refuse('the commit is missing.', help));
const [rounds] = numbersOf(options.rounds, [options.quick ? 1 : 4], help);
const [seconds] = numbersOf(options.seconds, [options.quick ? 1 : 3], help);
const levels = numbersOf(options.connections, options.quick ? [8] : [1, 8, 64], help);
/** All decided by Redis; one key decided by leases; 1,000 keys with leases. */
const names = ['tollgate', 'tollgate-leases', 'tollgate-1000'];

/** A folder with the build of the commit. */
function buildOf(commit) {
  const folder = join(temporaryDir(), 'before');
  const git = (...args) => execFileSync('git', args, { cwd: root, stdio: ['ignore', 'ignore', 'inherit'] });
  git('worktree', 'add', '--detach', '--force', folder, commit);
  atEnd(() => git('worktree', 'remove', '--force', folder));
  const lock = (from) => readFileSync(join(from, 'package-lock.json'), 'utf8');
  const inFolder = { cwd: folder, stdio: ['ignore', 'ignore', 'inherit'] };
  if (lock(folder) === lock(root)) symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'));
  else execFileSync('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'], inFolder);
  execFileSync(join(folder, 'node_modules', '.bin', 'tsc'), ['-p', 'tsconfig.build.json'], inFolder);
  const writeLibrary = join(folder, 'dist', 'scripts', 'writeLibrary.js');
  if (existsSync(writeLibrary)) execFileSync(process.execPath, [writeLibrary], inFolder);
  return folder;
}

async function since() {
  progress(`building ${commit}`);
  const builds = { before: buildOf(commit), now: root };
  const rows = [];
  for (const name of names) {
    const open = {};
    for (const [which, folder] of Object.entries(builds)) {
      program.root = folder;
      const target = await targets[name].open(options.quick ? 100 : 1000);
      await target.check();
      open[which] = { ...target, load: openLoad(target) };
      await open[which].load({ connections: 8, seconds: options.quick ? 1 : 3 });
    }
    for (const connections of levels) rows.push([name, connections, ...(await compared(name, open, connections))]);
    for (const { check, redis, stop } of Object.values(open)) {
      await check();
      redis.client.disconnect();
      await stop();
    }
  }
  progressDone();
  console.log(
    `This build / ${commit}, ${rounds} alternating rounds of ${seconds} s; the range is that of the rounds.\n`,
  );
  console.log(table(['load', 'connections', 'requests/s before', 'now', 'ratio', 'range', 'CPU a request'], rows));
}

/** Requests per second of both, their ratio with its range, and the ratio of the processor time of a request. */
async function compared(name, open, connections) {
  const runs = { before: [], now: [] };
  for (let round = 1; round <= rounds; round++) {
    // The one that begins alternates, too.
    for (const which of round % 2 === 1 ? ['before', 'now'] : ['now', 'before']) {
      progress(`${name}, ${connections} connections, round ${round} of ${rounds}, ${which}`);
      const found = await costOf(open[which], () => open[which].load({ connections, seconds }));
      if (found.refused + found.broken > 0)
        throw new Error(`${name}: ${found.refused} refused, ${found.broken} broken`);
      const { requests, serverCpu, redisCpu } = found;
      runs[which].push({ perSecond: requests / found.seconds, cpu: (serverCpu + redisCpu) / requests });
    }
  }
  const ratios = (figure) => runs.now.map((run, round) => run[figure] / runs.before[round][figure]);
  const perSecond = ratios('perSecond');
  const of = (which) => number(median(runs[which].map((run) => run.perSecond)));
  const range = `${Math.min(...perSecond).toFixed(2)} to ${Math.max(...perSecond).toFixed(2)}`;
  return [of('before'), of('now'), median(perSecond).toFixed(2), range, median(ratios('cpu')).toFixed(2)];
}

await run(since);
