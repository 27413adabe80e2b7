// Measures what other versions of Redis (or Valkey) and of Node.js change: the same load on each, in alternating rounds.
import { execFileSync } from 'node:child_process';
import { mkdirSync, symlinkSync } from 'node:fs';
import { delimiter, join, resolve } from 'node:path';
import { openLoad } from './support/load.mjs';
import { numbersOf, readOptions, refuse } from './support/options.mjs';
import { costOf, program, run, temporaryDir } from './support/processes.mjs';
import { median, number, progress, progressDone, report, table } from './support/results.mjs';
import { targets } from './targets/index.mjs';

const help = `npm run bench -- versions [options]
  --redis a,b          programs to compare with the redis-server of the PATH
  --node a,b           programs to compare with this Node.js
  --connections a,b    numbers of connections, 8,64 by default
  --rounds n           alternating rounds of each, 4 by default; figures are medians of the rounds
  --seconds s          seconds of a run, 3 by default
  --quick              a short run, to see that the bench works
  --json               print the result, with every run, as JSON on standard output`;
const options = readOptions(help, {
  redis: { type: 'string' },
  node: { type: 'string' },
  connections: { type: 'string' },
  rounds: { type: 'string' },
  seconds: { type: 'string' },
  quick: { type: 'boolean' },
  json: { type: 'boolean' },
});
const levels = numbersOf(options.connections, options.quick ? [8] : [8, 64], help);
const [rounds] = numbersOf(options.rounds, [options.quick ? 1 : 4], help);
const [seconds] = numbersOf(options.seconds, [options.quick ? 1 : 3], help);
/** All decided by Redis; one key decided by leases. */
const names = ['tollgate', 'tollgate-leases'];

const programsOf = (text) => (text ? text.split(',').map((path) => resolve(path)) : []);

/** What a program says of its version: `v24.1.0`, or `v=7.0.15` in a longer line. */
function versionOf(path) {
  const text = execFileSync(path, ['--version'], { encoding: 'utf8' });
  const name = /valkey/i.test(text) ? 'Valkey' : /redis/i.test(text) ? 'Redis' : 'Node';
  const version = / v=(\S+)/.exec(text)?.[1] ?? /v?(\d\S+)/.exec(text)?.[1];
  return version ? `${name} ${version}` : refuse(`${path} names no version.`, help);
}

/** A PATH on which redis-server is this program. */
function pathWith(server) {
  const folder = join(temporaryDir(), 'bin');
  mkdirSync(folder);
  symlinkSync(server, join(folder, 'redis-server'));
  return folder + delimiter + process.env.PATH;
}

async function versions() {
  const usual = { path: process.env.PATH, node: process.execPath };
  const variants = [
    { ...usual, name: `${versionOf('redis-server')}, Node ${process.versions.node}` },
    ...programsOf(options.redis).map((server) => ({ ...usual, path: pathWith(server), name: versionOf(server) })),
    ...programsOf(options.node).map((node) => ({ ...usual, node, name: versionOf(node) })),
  ];
  const [rows, raw] = [[], []];
  for (const name of names) {
    const open = [];
    for (const { path, node } of variants) {
      process.env.PATH = path;
      program.node = node;
      const target = await targets[name].open(options.quick ? 100 : 1000);
      await target.check();
      const load = openLoad(target);
      await load({ connections: 8, seconds: options.quick ? 1 : 3 });
      open.push({ target, load });
    }
    for (const connections of levels) {
      const runs = await alternated(name, open, variants, connections);
      raw.push({ name, connections, runs });
      for (const [index, variant] of variants.entries()) rows.push(rowOf(name, connections, variant, runs, index));
    }
    for (const { target } of open) {
      await target.check();
      target.redis.client.disconnect();
      await target.stop();
    }
  }
  progressDone();
  const head = ['load', 'connections', 'with', 'requests/s', '/ the first', 'server CPU µs', 'Redis CPU µs'];
  const text = `${rounds} alternating rounds of ${seconds} s. Each variant has its own server and its own Redis.`;
  const markdown = `${table(head, rows)}\n\n${text}`;
  const kept = !options.quick;
  report({ bench: 'versions', title: 'Versions of Redis and Node.js', markdown, raw }, { json: options.json, kept });
}

/** The runs of each variant, by round. */
async function alternated(name, open, variants, connections) {
  const runs = variants.map(() => []);
  for (let round = 1; round <= rounds; round++) {
    for (let turn = 0; turn < open.length; turn++) {
      // The one that begins alternates, too.
      const index = (turn + round) % open.length;
      progress(`${name}, ${connections} connections, round ${round} of ${rounds}, ${variants[index].name}`);
      const { target, load } = open[index];
      const found = await costOf(target, () => load({ connections, seconds }));
      const { requests, serverCpu, redisCpu, refused, broken } = found;
      if (refused + broken > 0) throw new Error(`${name}: ${refused} refused, ${broken} broken`);
      runs[index].push({
        perSecond: requests / found.seconds,
        server: (serverCpu / requests) * 1e6,
        redis: (redisCpu / requests) * 1e6,
      });
    }
  }
  return runs;
}

function rowOf(name, connections, variant, runs, index) {
  const of = (figure) => number(median(runs[index].map((each) => each[figure])));
  const ratio = median(runs[index].map(({ perSecond }, round) => perSecond / runs[0][round].perSecond));
  return [name, connections, variant.name, of('perSecond'), ratio.toFixed(2), of('server'), of('redis')];
}

await run(versions);
