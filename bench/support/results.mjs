// Where figures go: printed as a table, kept as JSON in bench/results/, and gathered from there in bench/RESULTS.md. A
// figure never stands without its command, machine, date and versions.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { cpus, release, tmpdir, totalmem } from 'node:os';
import { join } from 'node:path';
import { root } from './processes.mjs';

/** Issue 4's figures. `reached` of a bench's result names them; `most` where less is better. */
const goals = [
  { key: 'tollgateToBare', figure: '`tollgate` / `bare`, requests/s at 64 connections', least: 0.45, aim: 0.6 },
  { key: 'tollgateToFastify', figure: '`tollgate` / `fastify`', least: 2.5, aim: 4 },
  { key: 'tollgateToExpress', figure: '`tollgate` / `express-rlf`', least: 10, aim: 20 },
  { key: 'redisMicros', figure: 'Redis CPU µs per verification at 64 connections', most: 8, aim: 4 },
  { key: 'p99ToBare', figure: '`tollgate` p99 / `bare` p99 at 64 connections', most: 3, aim: 2 },
  { key: 'heavyToTollgate', figure: '`tollgate-heavy` / `tollgate`', least: 0.5, aim: 0.7 },
  { key: 'manyKeysStored', figure: '1 000 000 keys stored / 1 000, the same 1 000 asked for', least: 0.9, aim: 0.97 },
  { key: 'manyKeysSkewed', figure: 'the same, all asked for, the n-th a n-th as often', least: 0.9, aim: 0.97 },
  { key: 'manyKeysAtRandom', figure: 'the same, all asked for, each as often', least: 0.9, aim: 0.97 },
  { key: 'bytesOwnIdentity', figure: 'Redis bytes per typical key, an identity each', most: 900, aim: 500 },
  { key: 'bytesSharedIdentity', figure: 'Redis bytes per typical key, ten keys an identity', most: 900, aim: 500 },
  { key: 'memoryGrowth', figure: 'Server memory after 10 million requests / after 1 million', most: 1.1 },
  {
    key: 'workersCost',
    figure: '`WORKERS=2` / `WORKERS=1`, CPU seconds per request, 64 connections in all',
    most: 1.1,
  },
  { key: 'workersCostEach', figure: '`WORKERS=2` / `WORKERS=1`, the same, 64 connections a process', most: 1.1 },
];

export const median = (values) => {
  const sorted = values.filter((value) => !Number.isNaN(value)).sort((a, b) => a - b);
  if (sorted.length === 0) return Number.NaN;
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
};

/** Three digits, in whole numbers from 1000 on; – for what could not be measured. */
export function number(value) {
  if (!Number.isFinite(value)) return '–';
  return Math.abs(value) >= 1000 ? Math.round(value).toLocaleString('en') : String(Number(value.toPrecision(3)));
}

export const micros = (value) => (value >= 1000 ? `${number(value / 1000)} ms` : `${number(value)} µs`);

/** A table in Markdown, its columns aligned so that it also reads well on a terminal. */
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

/** The command as one would type it again. */
function commandOf(bench) {
  const args = [...(bench === 'compare' || bench === 'against' ? [] : [bench]), ...process.argv.slice(2)];
  // The keys of an installation are nobody's business.
  const secret = (index) => /^--(root-)?key$/.test(args[index - 1] ?? '');
  const shown = args.map((arg, index) => (secret(index) ? '…' : arg.replace(/^(--(root-)?key=).*/, '$1…')));
  return ['npm run bench', ...(shown.length > 0 ? ['--', ...shown] : [])].join(' ');
}

/** Results that are `kept` lie in the repository; those of a run that is short or of a part only, below /tmp. */
const placeOf = (kept) => {
  const dir = kept ? join(root, 'bench') : join(tmpdir(), 'tollgate-bench');
  mkdirSync(join(dir, 'results'), { recursive: true });
  return { dir: join(dir, 'results'), page: join(dir, 'RESULTS.md') };
};

/** Answers its path as seen from RESULTS.md. */
export function writePicture(name, svg, { kept }) {
  writeFileSync(join(placeOf(kept).dir, `${name}.svg`), svg);
  return `results/${name}.svg`;
}

/** Prints a result and writes it down. */
export function report({ bench, title, markdown, reached = {}, raw, packages = [] }, { json, kept }) {
  const result = { bench, title, command: commandOf(bench), ...conditions(packages), markdown, reached, raw };
  const { dir, page: ownPage } = placeOf(kept);
  writeFileSync(join(dir, `${bench}.json`), `${JSON.stringify(result, null, 1)}\n`);
  // What somebody's installation does is not a figure of ours.
  const page = bench === 'against' ? join(dir, 'against.md') : ownPage;
  writeFileSync(page, bench === 'against' ? `${sectionOf(result)}\n` : pageOf(dir));
  const goalsOfIt = goalTable([result]);
  console.log(json ? JSON.stringify(result) : ['', markdown, ...(goalsOfIt ? [goalsOfIt] : []), ''].join('\n\n'));
  console.error(`Written to ${page}`);
}

const order = ['compare', 'memory', 'endurance', 'workers', 'growth', 'parts'];

const sectionOf = ({ title, command, date, machine, versions, markdown }) =>
  [`## ${title}`, `\`${command}\`, ${date} UTC, on ${machine}. ${versions}.`, markdown].join('\n\n');

function pageOf(dir) {
  const results = order
    .map((bench) => join(dir, `${bench}.json`))
    .filter((file) => existsSync(file))
    .map((file) => JSON.parse(readFileSync(file, 'utf8')));
  const parts = ['# Results', 'Written by `npm run bench`; not by hand. Compare ratios within a run, not runs.'];
  const goalsOfAll = goalTable(results);
  if (goalsOfAll) parts.push('## To reach', goalsOfAll);
  parts.push(...results.map(sectionOf));
  return `${parts.join('\n\n')}\n`;
}

/** The goals that these results have a figure for, or undefined. */
function goalTable(results) {
  const measured = Object.assign({}, ...results.map(({ reached }) => reached));
  const rows = goals
    .filter(({ key }) => Number.isFinite(measured[key]))
    .map(({ key, figure, least, most, aim }) => {
      const value = measured[key];
      const holds = (bound) => (most === undefined ? value >= bound : value <= bound);
      const verdict = aim !== undefined && holds(aim) ? 'aim reached' : holds(least ?? most) ? 'reached' : 'missed';
      return [figure, most === undefined ? least : `at most ${most}`, aim ?? '', number(value), verdict];
    });
  return rows.length > 0 ? table(['Figure', 'at least', 'aim', 'measured', ''], rows) : undefined;
}

/** A line that is overwritten on a terminal, and on stderr so that what is printed stays clean. */
export function progress(text) {
  if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${text}`);
}

export function progressDone() {
  if (process.stderr.isTTY) process.stderr.write('\r\x1b[K');
}
