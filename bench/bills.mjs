// Measures the bill of a month and the ranking of its customers where very many keys were used: how long the command
// takes, its memory and that of the server, the longest script, and verifications of another workspace meanwhile. First
// with days that were rolled up only, and then after all keys were used today.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, cpSync, existsSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { unpackId } from '../dist/domain/keyString.js';
import { dayMs } from '../dist/domain/time.js';
import { keysKey, workspaceKey } from '../dist/redis/names.js';
import { countPlaces, spentPlace } from '../dist/scripts/layout.js';
import { asking, neighbour, percentile, quantiles, slowestScript } from './support/neighbour.mjs';
import { numbersOf, readOptions } from './support/options.mjs';
import {
  cpuSecondsOf,
  residentBytesOf,
  root,
  run,
  startRedis,
  startTollgate,
  temporaryDir,
  treeOf,
  untilNoRewrite,
} from './support/processes.mjs';
import { number, progress, progressDone, report, table } from './support/results.mjs';
import { openSeed } from './support/seed.mjs';

const help = `npm run bench -- bills [options]
  --keys n       keys that were used, 1000000 by default (takes some minutes and 3 GB)
  --customers n  customers that have them, 300000 by default
  --days n       days of the month on which each key was used, 4 by default
  --data dir     keep the stored data in this directory, or use what it has: of today, and of the same numbers
  --quick        small numbers, to see that the bench works
  --json         print the result as JSON on standard output`;
const options = readOptions(help, {
  keys: { type: 'string' },
  customers: { type: 'string' },
  days: { type: 'string' },
  data: { type: 'string' },
  quick: { type: 'boolean' },
  json: { type: 'boolean' },
});
const [keys] = numbersOf(options.keys, [options.quick ? 3000 : 1_000_000], help);
const [customers] = numbersOf(options.customers, [options.quick ? 1000 : 300_000], help);
const [usedDays] = numbersOf(options.days, [4], help);

const today = Math.floor(Date.now() / dayMs);
const month = new Date(today * dayMs).toISOString().slice(0, 7);
const firstDay = Date.parse(`${month}-01`) / dayMs;
/** Days before today in this month; on the first ones of a month there are fewer. */
const days = Array.from({ length: Math.min(usedDays, today - firstDay) }, (_, at) => {
  const between = today - firstDay;
  return firstDay + Math.floor((at * between) / Math.min(usedDays, between));
});
const customerOf = (index) => `customer_${index % customers}`;
const perDay = (index) => 1 + (index % 97);
const counts = (valid, credits) =>
  Array.from({ length: countPlaces }, (_, place) => (place === 0 ? valid : place === spentPlace ? credits : 0));

async function measure() {
  const { redis, rootKey, othersKey, seed } = await storedData();
  const server = await startTollgate({ redis, env: { LEASE_MS: '0' } });
  await redis.client.config('SET', 'slowlog-log-slower-than', '1000', 'slowlog-max-len', '10000');
  const other = neighbour(server.url, othersKey);
  await other(options.quick ? 0.5 : 2);
  const alone = await other(options.quick ? 1 : 10);
  const rows = [];
  const reached = { billSeconds: 0, billScript: 0, billP99: 0, billTop: 0 };
  const counted = Array.from({ length: keys }, (_, index) => perDay(index)).reduce((sum, each) => sum + each, 0);
  const expected = { rows: customers, sum: counted * days.length };
  const at = { server, redis, rootKey, other, reached, alone: percentile(alone, 99) };
  await bill(at, rows, 'rolled up', expected);
  await ranking(at, rows, 'rolled up');
  progress('verifying all keys');
  const indices = Array.from({ length: keys }, (_, index) => index);
  for (let from = 0; from < keys; from += 500) await seed.verify(indices.slice(from, from + 500));
  await untilNoRewrite(redis, 500);
  await bill(at, rows, 'all keys used today, too', { ...expected, sum: expected.sum + keys });
  await ranking(at, rows, 'all keys used today, too');
  await seed.close();
  progressDone();
  const markdown = [
    table(
      [
        'question',
        's',
        'CPU s: server, Redis, command',
        'server, MB more',
        'command, MB',
        'longest script, ms',
        'verification of another workspace, ms',
      ],
      rows,
    ),
    `${number(keys)} keys of ${number(customers)} customers, each used on ${days.length} days before today. The last ` +
      `column has p50, p99 and the longest of 200 verifications a second meanwhile; alone they took ` +
      `${quantiles(alone)}. The server decides without leases.`,
  ].join('\n\n');
  const kept = !options.quick && keys >= 1_000_000 && customers >= 300_000;
  report(
    { bench: 'bills', title: 'Bills of very many customers', markdown, reached: kept ? reached : {}, raw: { rows } },
    { json: options.json, kept },
  );
}

/** Fills a Redis, or starts one with the data of an earlier run. */
async function storedData() {
  const made = { today, keys, customers, days };
  const file = options.data && join(options.data, 'bills.json');
  if (file && existsSync(file)) {
    const { of, othersKey, ...stored } = JSON.parse(readFileSync(file, 'utf8'));
    if (JSON.stringify(of) !== JSON.stringify(made)) throw new Error(`${options.data} has other data`);
    progress('copying and loading the data');
    const dir = temporaryDir();
    cpSync(options.data, dir, { recursive: true });
    const redis = await startRedis(dir);
    return { redis, othersKey, rootKey: stored.rootKey, seed: await openSeed(redis, stored) };
  }
  const dir = temporaryDir();
  const redis = await startRedis(dir);
  const seed = await openSeed(redis);
  const others = await seed.createWorkspace();
  progress('creating keys');
  const apiId = await seed.createApi({
    count: keys,
    fieldsOf: (index) => ({ remaining: 1e9, externalId: customerOf(index) }),
  });
  await importUsage(redis, seed, apiId);
  const stored = { workspaceId: seed.workspaceId, rootKey: seed.rootKey, othersKey: others.rootKey };
  if (!file) return { redis, ...stored, seed };
  progress('keeping the data');
  await untilNoRewrite(redis, 500);
  await redis.client.bgrewriteaof();
  await untilNoRewrite(redis, 500);
  await seed.close();
  await redis.stop();
  cpSync(dir, options.data, { recursive: true });
  writeFileSync(file, JSON.stringify({ of: made, ...stored }));
  return storedData();
}

/** Imports the usage of the days before today, with their sums. */
async function importUsage({ client }, seed, apiId) {
  const list = keysKey(workspaceKey(seed.workspaceId), apiId);
  const api8 = apiId.slice(-8);
  const importFrom = async (from) => {
    const members = await client.zrangeBuffer(list, from, from + 499);
    const all = members.map((member, at) => {
      const externalId = customerOf(from + at);
      const sums = counts(perDay(from + at), perDay(from + at));
      const ofDays = days.map((day) => ({ day, externalId, sums, hours: undefined }));
      return { keyId: `key_${unpackId(member)}${api8}`, part: 1, externalId, days: ofDays };
    });
    await seed.store.usageImport.keys(seed.workspaceId, api8, all, false);
  };
  for (let from = 0; from < keys; from += 2000) {
    progress(`importing usage, ${number(from)} of ${number(keys)}`);
    await Promise.all([0, 500, 1000, 1500].map((at) => importFrom(from + at)));
  }
  progress('rolling up');
  await seed.rollUp();
}

/** Runs `work` beside verifications of the other workspace. */
async function beside({ server, redis, other }, work) {
  await redis.client.slowlog('RESET');
  const before = residentBytesOf([server.pid]);
  let most = before;
  const watch = setInterval(() => (most = Math.max(most, residentBytesOf([server.pid]))), 100);
  let isOver = false;
  const running = other(600, () => isOver);
  const cpu = () => [cpuSecondsOf(treeOf(server.pid, redis.pid)), cpuSecondsOf([redis.pid])];
  const cpuBefore = cpu();
  const begunAt = performance.now();
  const found = await work();
  const seconds = (performance.now() - begunAt) / 1000;
  const cpuSeconds = cpu().map((each, index) => each - cpuBefore[index]);
  isOver = true;
  const meanwhile = await running;
  clearInterval(watch);
  const slowest = await slowestScript(redis);
  return { found, seconds, cpuSeconds, moreMb: (most - before) / 2 ** 20, slowest, meanwhile };
}

/** `tollgate usage --month --csv` over HTTP. */
async function bill(at, rows, what, expected) {
  progress(`the bill, ${what}`);
  const { found, ...of } = await beside(at, async () => {
    const args = ['dist/cli/index.js', 'usage', '--month', month, '--csv'];
    const env = { ...process.env, TOLLGATE_URL: at.server.url, TOLLGATE_ROOT_KEY: at.rootKey };
    // Into a file, which is read afterwards: this process measures verifications meanwhile.
    const file = join(temporaryDir(), 'bill.csv');
    const output = openSync(file, 'w');
    const child = spawn(process.execPath, args, { cwd: root, env, stdio: ['ignore', output, 'pipe'] });
    closeSync(output);
    let [bytes, cpu] = [0, 0];
    const watch = setInterval(() => {
      try {
        bytes = Math.max(bytes, residentBytesOf([child.pid]));
        cpu = Math.max(cpu, cpuSecondsOf([child.pid]));
      } catch {
        // It has ended.
      }
    }, 50);
    let errors = '';
    child.stderr.on('data', (text) => (errors += text));
    const [code] = await once(child, 'close');
    clearInterval(watch);
    if (code !== 0) throw new Error(`the bill failed: ${errors}`);
    return { file, bytes, cpu };
  });
  const lines = readFileSync(found.file, 'utf8').trimEnd().split(/\r?\n/).slice(1);
  const sum = lines.reduce((all, line) => all + Number(line.split(',')[1]), 0);
  if (lines.length !== expected.rows || sum !== expected.sum)
    throw new Error(
      `a bill is wrong: ${JSON.stringify({ rows: lines.length, sum })} instead of ${JSON.stringify(expected)}`,
    );
  note(at, of);
  at.reached.billSeconds = Math.max(at.reached.billSeconds, of.seconds);
  rows.push([`bill of a month, ${what}`, ...cells(of, { mb: found.bytes / 2 ** 20, cpu: found.cpu })]);
}

/** Notes the longest script, and p99 of verifications meanwhile as a multiple of that alone. */
function note({ reached, alone }, { slowest, meanwhile }) {
  reached.billScript = Math.max(reached.billScript, slowest);
  reached.billP99 = Math.max(reached.billP99, percentile(meanwhile, 99) / alone);
}

const cells = ({ seconds, cpuSeconds, moreMb, slowest, meanwhile }, command = {}) => [
  number(seconds),
  [...cpuSeconds, ...(command.cpu ? [command.cpu] : [])].map(number).join(', '),
  number(moreMb),
  command.mb ? number(command.mb) : '–',
  number(slowest),
  quantiles(meanwhile),
];

/** The first ten customers of the month: the first time and again. */
async function ranking(at, rows, what) {
  const ask = asking(at.server.url, at.rootKey);
  const input = { of: 'identities', start: firstDay * dayMs, end: (today + 1) * dayMs, limit: 10 };
  for (const times of ['first', 'again']) {
    progress(`the ranking, ${what}, ${times}`);
    const took = [];
    const { found, ...of } = await beside(at, async () => {
      let top;
      for (let time = 0; time < (times === 'first' ? 1 : 5); time++) {
        const begunAt = performance.now();
        ({ top } = await ask('analytics.getTop', input));
        took.push((performance.now() - begunAt) / 1000);
      }
      return top;
    });
    if (found.length !== 10) throw new Error('a ranking is wrong');
    note(at, of);
    if (times === 'again') at.reached.billTop = Math.max(at.reached.billTop, percentile(took, 50));
    rows.push([`top ten of the month, ${what}, ${times}`, ...cells({ ...of, seconds: percentile(took, 50) })]);
  }
}

await run(measure);
