// Prints results as tables and stores them in bench/results/, without the figures of single runs. Generates
// bench/RESULTS.md from all stored results. Every result has its command, machine, date and versions.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { cpus, release, tmpdir, totalmem } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));

/** Bounds for the figures of benches, by key: the required minimum `least` or maximum `most`, and the goal `aim`. */
const goals = [
  { key: 'tollgateToBare', figure: '`tollgate` / `bare`, requests/s at 64 connections', least: 0.45, aim: 0.6 },
  { key: 'tollgateToFastify', figure: '`tollgate` / `fastify`', least: 2.5, aim: 4 },
  { key: 'tollgateToExpress', figure: '`tollgate` / `express-rlf`', least: 10, aim: 20 },
  { key: 'redisMicros', figure: 'Redis CPU µs per verification at 64 connections', most: 8, aim: 4 },
  { key: 'p99ToBare', figure: '`tollgate` p99 / `bare` p99 at 64 connections', most: 3, aim: 2 },
  { key: 'heavyToTollgate', figure: '`tollgate-heavy` / `tollgate`', least: 0.5, aim: 0.7 },
  {
    key: 'tenantsRedis',
    figure: 'Redis CPU µs per verification at 64 connections, `tollgate-tenants` / `tollgate`',
    most: 1.3,
  },
  { key: 'tenantsServer', figure: 'The same, server CPU µs', most: 1.2 },
  {
    key: 'leasesToBareAtOne',
    figure: '`tollgate-leases` / `bare`, requests/s at 1 connection',
    least: 0.7,
    aim: 0.85,
  },
  { key: 'leasesToBare', figure: 'The same at 64 connections', least: 0.6, aim: 0.75 },
  { key: 'leasesOf1000ToBare', figure: '`tollgate-1000` / `bare`, requests/s at 64 connections', least: 0.5 },
  { key: 'leasesCostAtOne', figure: '`tollgate-leases` p50 / `tollgate-hot` p50 at 1 connection', most: 0.25 },
  { key: 'leasesAboveBareAtOne', figure: 'The same, of each what it is above `bare`', most: 0.25 },
  { key: 'leasesCpuAtOne', figure: 'The same, CPU µs of server and Redis', most: 0.25 },
  {
    key: 'leasesRedisMicros',
    figure: 'Redis CPU µs per verification, `tollgate-leases` at 64 connections',
    most: 1,
  },
  {
    key: 'tagsCpu',
    figure: 'CPU µs of server and Redis per verification of one key with 1,000 tags, `LEASE_MS=100` / `LEASE_MS=0`',
    most: 1.1,
  },
  { key: 'leasesFarP50AtOne', figure: '`tollgate-leases-far` p50 / `bare` p50 at 1 connection', most: 1.5 },
  { key: 'leasesFarP50', figure: 'The same at 64 connections', most: 1.5 },
  { key: 'farHot', figure: '`tollgate-far`: part of the decisions without Redis, hot key, 80 ms away', least: 0.9 },
  { key: 'farHotAt20', figure: 'The same, 20 ms away', least: 0.95 },
  {
    key: 'manyKeysStored',
    figure: 'Requests/s with 1,000,000 keys stored / 1,000, requests for 1,000 of them',
    least: 0.9,
    aim: 0.97,
  },
  { key: 'manyKeysSkewed', figure: 'The same, requests for all of them, skewed', least: 0.9, aim: 0.97 },
  { key: 'manyKeysAtRandom', figure: 'The same, requests for all of them, uniform', least: 0.9, aim: 0.97 },
  {
    key: 'leasesOfColdKeys',
    figure: 'Requests/s for 1,000,000 keys, uniform, `LEASE_MS=100` / `LEASE_MS=0`',
    least: 0.97,
  },
  { key: 'bytesOwnIdentity', figure: 'Redis bytes per typical key, one identity each', most: 900, aim: 500 },
  { key: 'bytesSharedIdentity', figure: 'Redis bytes per typical key, ten keys per identity', most: 900, aim: 500 },
  {
    key: 'usageQuery',
    figure: 'Longest median of a query of usage, 20,000 of 1,000,000 keys used on 90 days, ms',
    most: 1000,
  },
  { key: 'billSeconds', figure: 'Bill of a month, 1,000,000 used keys of 300,000 customers, s', most: 30 },
  { key: 'billTop', figure: 'The first ten of these customers, again, s', most: 1 },
  { key: 'billScript', figure: 'Longest script of these, ms', most: 30 },
  { key: 'billP99', figure: 'p99 of verifications during it / before', most: 2 },
  { key: 'usageScript', figure: 'Longest script of these and of the roll-up, ms', most: 30 },
  { key: 'expiringList', figure: 'Longest p95 of a list of keys that expire, of 1,000,000 keys, ms', most: 100 },
  { key: 'expiringScript', figure: 'Longest script of these, ms', most: 30 },
  { key: 'consoleScreen', figure: 'Console: longest p95 from a click to the first data of a screen, ms', most: 300 },
  { key: 'consoleLive', figure: 'Verifications/s with Live in ten tabs / without tabs', least: 0.99 },
  { key: 'migrationSeconds', figure: 'Migration of 1,000,000 keys, s', most: 60 },
  { key: 'migrationScript', figure: 'Its longest script, ms', most: 30 },
  { key: 'migrationP99', figure: 'p99 of verifications during it / before', most: 2 },
  { key: 'holdCost', figure: 'Redis CPU µs of a hold and its settlement / of a verification', most: 2.2 },
  { key: 'memoryGrowth', figure: 'Server memory after 10 million requests / after 1 million', most: 1.1 },
  {
    key: 'workersCost',
    figure: '`WORKERS=2` / `WORKERS=1`, CPU time per request, 64 connections in all',
    most: 1.1,
  },
  {
    key: 'ratesCost',
    figure: 'CPU time of server and Redis per verification, default / `LEASE_MS=0`, at any rate of a key',
    most: 1,
  },
  { key: 'workersCostEach', figure: 'The same, 64 connections per process', most: 1.1 },
];

export const median = (values) => {
  const sorted = values.filter((value) => !Number.isNaN(value)).sort((a, b) => a - b);
  if (sorted.length === 0) return Number.NaN;
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
};

/** Three significant digits, whole numbers from 1000 on; – for a figure that could not be measured. */
export function number(value) {
  if (!Number.isFinite(value)) return '–';
  return Math.abs(value) >= 1000 ? Math.round(value).toLocaleString('en') : String(Number(value.toPrecision(3)));
}

export const micros = (value) => (value >= 1000 ? `${number(value / 1000)} ms` : `${number(value)} µs`);

/** A Markdown table with aligned columns, so that it is readable on a terminal too. */
export function table(head, rows) {
  const cells = [head, ...rows].map((row) => row.map(String));
  const widths = head.map((_, column) => Math.max(...cells.map((row) => row[column].length)));
  const line = (row) => `| ${row.map((cell, column) => cell.padEnd(widths[column])).join(' | ')} |`;
  const [first, ...rest] = cells;
  return [line(first), `|${widths.map((width) => '-'.repeat(width + 2)).join('|')}|`, ...rest.map(line)].join('\n');
}

const outputOf = (command, ...args) =>
  (spawnSync(command, args, { cwd: root, encoding: 'utf8' }).stdout ?? '').trim() || undefined;

const versionOf = (name) => {
  const file = join(root, 'node_modules', name, 'package.json');
  return existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')).version : '–';
};

function conditions(packages) {
  const redis = / v=(\S+)/.exec(outputOf('redis-server', '--version') ?? outputOf('valkey-server', '--version') ?? '');
  const commit = outputOf('git', 'rev-parse', '--short', 'HEAD') ?? '–';
  const changed = outputOf('git', 'status', '--porcelain', '--', 'src', 'lua') ? ' and changes' : '';
  const processor = cpus()[0]?.model.trim() ?? 'unknown processor';
  return {
    date: new Date().toISOString().slice(0, 16).replace('T', ' '),
    machine: `${cpus().length} × ${processor}, ${Math.round(totalmem() / 2 ** 30)} GiB, ${process.platform} ${release()}`,
    versions: [
      `Tollgate ${commit}${changed}`,
      `Node ${process.versions.node}`,
      `Redis ${redis?.[1] ?? '–'}`,
      ...packages.map((name) => `${name} ${versionOf(name)}`),
    ].join(', '),
  };
}

/** The command that repeats this run, without secrets. */
function commandOf(bench) {
  const args = [...(bench === 'compare' || bench === 'against' ? [] : [bench]), ...process.argv.slice(2)];
  const secret = (index) => args[index - 1] === '--key';
  const printed = args.map((arg, index) => (secret(index) ? '…' : arg.replace(/^(--key=).*/, '$1…')));
  return ['npm run bench', ...(printed.length > 0 ? ['--', ...printed] : [])].join(' ');
}

/**
 * Results that are `kept` are stored in the repository, those of a short or partial run in the system's temporary
 * folder.
 */
const placeOf = (kept) => {
  const dir = kept ? join(root, 'bench') : join(tmpdir(), 'tollgate-bench');
  mkdirSync(join(dir, 'results'), { recursive: true });
  return { dir: join(dir, 'results'), page: join(dir, 'RESULTS.md') };
};

/** Writes a picture. Returns its path relative to bench/RESULTS.md. */
export function writePicture(name, svg, { kept }) {
  writeFileSync(join(placeOf(kept).dir, `${name}.svg`), svg);
  return `results/${name}.svg`;
}

/**
 * Prints a result and stores it. `raw` has the figures of single runs. They are printed by `--json`, and not stored.
 */
export function report({ bench, title, markdown, reached = {}, raw, packages = [] }, { json, kept }) {
  const lines = markdown.split('\n');
  const result = { bench, title, command: commandOf(bench), ...conditions(packages), reached, markdown: lines };
  const { dir, page: ownPage } = placeOf(kept);
  writeFileSync(join(dir, `${bench}.json`), `${JSON.stringify(result, null, 1)}\n`);
  // The figures of a running installation are not part of Tollgate's own results.
  const page = bench === 'against' ? join(dir, 'against.md') : ownPage;
  writeFileSync(page, bench === 'against' ? `${sectionOf(result)}\n` : pageOf(dir));
  const goalsOfIt = goalTable([result]);
  console.log(
    json ? JSON.stringify({ ...result, raw }) : ['', markdown, ...(goalsOfIt ? [goalsOfIt] : []), ''].join('\n\n'),
  );
  console.error(`Written to ${page}`);
}

const order = [
  'compare',
  'memory',
  'usage',
  'bills',
  'expiring',
  'migration',
  'console',
  'console-live',
  'endurance',
  'workers',
  'versions',
  'rates',
  'far',
  'growth',
  'holds',
  'restart',
  'parts',
  'gateways',
];

const sectionOf = ({ title, command, date, machine, versions, markdown }) =>
  [`## ${title}`, `\`${command}\`, ${date} UTC, on ${machine}. ${versions}.`, markdown.join('\n')].join('\n\n');

/** The text of RESULTS.md for the results of a folder. */
export function pageOf(dir) {
  const results = order
    .map((bench) => join(dir, `${bench}.json`))
    .filter((file) => existsSync(file))
    .map((file) => JSON.parse(readFileSync(file, 'utf8')))
    // A temporary folder may have results of an older format.
    .filter(({ markdown }) => Array.isArray(markdown));
  const parts = [
    '# Results',
    'Generated by `npm run bench` from `bench/results/`. Compare figures of one run with each other, not those of different runs.',
  ];
  const goalsOfAll = goalTable(results);
  if (goalsOfAll) parts.push('## Goals', goalsOfAll);
  parts.push(...results.map(sectionOf));
  return `${parts.join('\n\n')}\n`;
}

/** A table of the goals for which these results have figures; undefined without any. */
function goalTable(results) {
  const measured = Object.assign({}, ...results.map(({ reached }) => reached));
  const rows = goals
    .filter(({ key }) => Number.isFinite(measured[key]))
    .map(({ key, figure, least, most, aim }) => {
      const value = measured[key];
      const holds = (bound) => (most === undefined ? value >= bound : value <= bound);
      const verdict = aim !== undefined && holds(aim) ? 'goal reached' : holds(least ?? most) ? 'reached' : 'missed';
      const required = most === undefined ? `at least ${least}` : `at most ${most}`;
      return [figure, required, aim ?? '', number(value), verdict];
    });
  return rows.length > 0 ? table(['Figure', 'required', 'goal', 'measured', ''], rows) : undefined;
}

/** A progress line on standard error, overwritten by the next one. Without a terminal nothing is printed. */
export function progress(text) {
  if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${text}`);
}

export function progressDone() {
  if (process.stderr.isTTY) process.stderr.write('\r\x1b[K');
}
