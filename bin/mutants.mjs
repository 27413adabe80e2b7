// npm run test:mutants: mutation tests of lua/. Changes one place at a time in a copy of the repository,
// and runs the tests that should fail then. Prints each mutant, the survivors, and the score: the share of killed
// mutants, without those in bin/mutants/equivalent.json. The exit code is 1 below 95 %. test/mutants.md explains the
// survivors.
//
//   --count 100     number of mutants, a random sample of all
//   --seed 1        seed of the sample; the same seed gives the same mutants
//   --files a,b,-c  beginnings of paths, or path:line; a minus excludes; lua/ by default
//   --workers 2     mutants at a time
//   --limit 60      timeout for a run of tests in seconds, plus 6 for each file; a mutant that takes longer counts as
//                   killed
//   --near          runs only the tests for the file of a mutant, not further ones: faster, with more survivors
//   --list          prints the mutants instead of running them

import { execFileSync, fork } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { setPriority, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { parseArgs } from 'node:util';
import { luaMutants } from './mutants/lua.mjs';
import { stepsFor } from './mutants/tests.mjs';
import { checkNode, install, root } from './prepare.mjs';

const { values: options } = parseArgs({
  options: {
    count: { type: 'string', default: '100' },
    seed: { type: 'string', default: '1' },
    files: { type: 'string', default: 'lua/' },
    workers: { type: 'string', default: '2' },
    limit: { type: 'string', default: '60' },
    near: { type: 'boolean', default: false },
    list: { type: 'boolean', default: false },
  },
});
const scoreMin = 95;

checkNode();
install({ dev: true });

const repositoryFiles = execFileSync('git', ['ls-files', '-co', '--exclude-standard'], { cwd: root, encoding: 'utf8' })
  .split('\n')
  .filter(Boolean);
const testFiles = repositoryFiles.filter((path) => path.endsWith('.test.ts'));
const equivalents = JSON.parse(readFileSync(join(root, 'bin/mutants/equivalent.json'), 'utf8'));
const keyOf = ({ file, before, after }) => [file, before.trim(), after.trim()].join('\n');
const reasons = new Map(equivalents.map((each) => [keyOf(each), each.reason]));

const sample = sampled(allMutants(options.files.split(',')), Number(options.count), options.seed);
if (options.list) for (const mutant of sample) console.log(describe(mutant));
else process.exitCode = await runAll();

/** All mutants of these files, in their order. */
function allMutants(chosen) {
  const places = chosen.map((each) => /^(.*?)(?::(\d+))?$/.exec(each).slice(1));
  const isChosen = (file, line) =>
    !places.some(([path]) => path.startsWith('-') && file.startsWith(path.slice(1))) &&
    places.some(([path, only]) => file.startsWith(path) && (!only || line === undefined || line === Number(only)));
  const files = repositoryFiles.filter((path) => path.endsWith('.lua') && isChosen(path)).sort();
  return files.flatMap((file) => {
    const source = readFileSync(join(root, file), 'utf8');
    return luaMutants(source)
      .map((change) => mutantOf(file, source, change))
      .filter(({ line }) => isChosen(file, line));
  });
}

function mutantOf(file, source, { start, end, text }) {
  const lineStart = source.lastIndexOf('\n', start - 1) + 1;
  const lineEnd = source.indexOf('\n', end);
  const before = source.slice(lineStart, lineEnd);
  const after = source.slice(lineStart, start) + text + source.slice(end, lineEnd);
  const line = source.slice(0, start).split('\n').length;
  return { file, line, before, after, source: source.slice(0, start) + text + source.slice(end) };
}

/**
 * `count` of them, in their order: those whose hashes come first. A mutant's hash depends only on the mutant, so that
 * most of a sample stays the same when a file is edited.
 */
function sampled(mutants, count, seed) {
  const seen = new Map();
  const ranked = mutants.map((mutant, index) => {
    const key = keyOf(mutant);
    seen.set(key, (seen.get(key) ?? 0) + 1);
    return {
      mutant,
      index,
      rank: createHash('sha1')
        .update(`${seed}\n${key}\n${seen.get(key)}`)
        .digest('hex'),
    };
  });
  ranked.sort((a, b) => (a.rank < b.rank ? -1 : 1));
  const taken = ranked.slice(0, count).sort((a, b) => a.index - b.index);
  return taken.map(({ mutant }) => mutant);
}

function describe({ file, line, before, after }) {
  const lines = (mark, text) =>
    text
      .split('\n')
      .map((each) => `    ${mark} ${each.trim()}\n`)
      .join('');
  return `${file}:${line}\n${lines('-', before)}${lines('+', after)}`.trimEnd();
}

async function runAll() {
  const wanted = sample.filter((mutant) => !reasons.has(keyOf(mutant)));
  console.log(`${sample.length} mutants, ${sample.length - wanted.length} of them listed as equivalent`);
  // What others do on this machine comes first.
  setPriority(10);
  const startedAt = Date.now();
  const results = [];
  const queue = [...wanted];
  const workers = Array.from({ length: Math.min(Number(options.workers), queue.length) }, () => createWorker());
  const isSound = soundness();
  const stop = () => {
    for (const worker of workers) worker.remove();
  };
  process.once('SIGINT', () => {
    stop();
    process.exit(130);
  });
  try {
    await Promise.all(
      workers.map(async (worker) => {
        for (let mutant = queue.shift(); mutant; mutant = queue.shift()) {
          const result = await judge(worker, mutant, isSound);
          results.push(result);
          print(result, `${results.length}/${wanted.length}`);
        }
      }),
    );
  } finally {
    stop();
  }
  return summary(results, sample.length - wanted.length, (Date.now() - startedAt) / 1000);
}

/** Runs the tests for a mutant until one fails. */
async function judge(worker, mutant, isSound) {
  const startedAt = Date.now();
  const result = { mutant, verdict: 'survived', ran: 0 };
  for (const files of stepsFor(mutant.file, testFiles, options.near)) {
    let answer = await worker.run(files, mutant);
    // On a busy machine a test can run out of time without the mutant.
    if (/timed? ?out/i.test(answer.failure?.message ?? '')) answer = await worker.run([answer.failure.file], mutant);
    result.ran += files.length;
    if (answer.passed) continue;
    result.verdict = answer.failure ? 'killed' : 'timeout';
    result.failure = answer.failure;
    if (answer.failure?.file) await isSound(worker, answer.failure.file);
    break;
  }
  return { ...result, seconds: (Date.now() - startedAt) / 1000 };
}

/** Runs each test file that killed a mutant once without any, to know that it passes then. */
function soundness() {
  const known = new Map();
  return async (worker, file) => {
    if (!known.has(file)) known.set(file, worker.run([file], undefined, 10));
    const { passed, failure } = await known.get(file);
    if (!passed)
      throw new Error(
        `${file} fails without a mutant: ${failure ? `${failure.title} ${failure.message}` : 'it takes too long'}`,
      );
  };
}

/** A copy of the repository, and a process that runs tests in it. */
function createWorker() {
  const dir = realpathSync(mkdtempSync(join(tmpdir(), 'tollgate-mutants-')));
  for (const path of repositoryFiles) {
    mkdirSync(join(dir, dirname(path)), { recursive: true });
    cpSync(join(root, path), join(dir, path));
  }
  symlinkSync(join(root, 'node_modules'), join(dir, 'node_modules'));
  let runner;
  /** Files that were written since the runner last heard of them: it reads them again. */
  let changed = new Set();

  /** The next message of the runner; undefined when it ends or time is up. */
  const reply = (files = 10) =>
    new Promise((resolve) => {
      const done = (message) => {
        clearTimeout(timer);
        runner.off('message', done).off('exit', ended);
        resolve(message);
      };
      const ended = () => done(undefined);
      const timer = setTimeout(ended, (Number(options.limit) + 6 * files) * 1000);
      runner.once('message', done).once('exit', ended);
    });

  async function start() {
    runner = fork(join(dir, 'bin/mutants/runner.mjs'), {
      cwd: dir,
      detached: true,
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    });
    let errors = '';
    runner.stderr.on('data', (chunk) => {
      errors = (errors + chunk).slice(-2000);
    });
    if (!(await reply())?.ready) throw new Error(`vitest does not start: ${errors}`);
  }

  /** The whole group: a script without end keeps its Redis busy. */
  function kill() {
    if (!runner) return;
    try {
      process.kill(-runner.pid, 'SIGKILL');
    } catch {
      // It has ended.
    }
    runner = undefined;
  }

  return {
    async run(files, mutant, patience = 1) {
      if (!runner) await start();
      if (mutant) writeFileSync(join(dir, mutant.file), mutant.source);
      const answer = reply(patience * files.length);
      runner.send({ files, changed: [...changed, mutant?.file].filter(Boolean) });
      changed = new Set(mutant && [mutant.file]);
      const message = await answer;
      if (mutant) cpSync(join(root, mutant.file), join(dir, mutant.file));
      if (!message?.isUsable) kill();
      return message ?? { passed: false };
    },
    remove() {
      kill();
      rmSync(dir, { recursive: true, force: true });
    },
  };
}

function print({ mutant, verdict, failure, seconds }, place) {
  console.log(`[${place}] ${verdict}, ${seconds.toFixed(1)} s: ${describe(mutant)}`);
  if (failure)
    console.log(`    ${failure.file ?? ''}: ${failure.title ?? ''}: ${failure.message.split('\n')[0].slice(0, 160)}`);
}

function summary(results, listed, seconds) {
  const survivors = results.filter(({ verdict }) => verdict === 'survived');
  if (survivors.length > 0) console.log('\nSurvivors:');
  for (const { mutant, ran } of survivors) console.log(`${describe(mutant)}\n    passed ${ran} test files`);
  const timeouts = results.filter(({ verdict }) => verdict === 'timeout').length;
  const killed = results.length - survivors.length;
  const score = results.length === 0 ? 100 : (100 * killed) / results.length;
  console.log(
    `\nseed ${options.seed}: ${killed} of ${results.length} killed (${timeouts} by time), ${survivors.length} survived, ` +
      `${listed} equivalent, ${Math.round(seconds)} s: ${score.toFixed(1)} %`,
  );
  return score >= scoreMin ? 0 : 1;
}
