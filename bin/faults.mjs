// npm run test:faults: runs every program of test/faults/, the long ones included, one at a time, and writes their
// findings as the table in test/faults/RESULTS.md. With arguments of vitest (a file, -t a name) it runs only those and
// leaves the page unchanged.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fail, prepare, root, runLocal } from './prepare.mjs';

await prepare({ dev: true });

const name = 'test/faults/RESULTS.md';
const page = join(root, name);
const [begin, end] = ['<!-- findings: written by npm run test:faults -->', '<!-- end of findings -->'];
const chosen = process.argv.slice(2);

const dir = mkdtempSync(join(tmpdir(), 'tollgate-findings-'));
const file = join(dir, 'findings.jsonl');
writeFileSync(file, '');
process.exitCode = runLocal('vitest', ['run', ...chosen], { env: { ...process.env, FAULTS_RESULTS: file } });
const findings = readFileSync(file, 'utf8')
  .split('\n')
  .filter(Boolean)
  .map((line) => JSON.parse(line));
rmSync(dir, { recursive: true });

findings.sort((a, b) => a.order.localeCompare(b.order, 'en', { numeric: true }));
for (const { order, fault, measured } of findings) console.log(`${order}  ${fault}: ${measured}`);
if (chosen.length > 0) console.log(`${name} is unchanged, as not every program ran.`);
else if (process.exitCode !== 0) fail(`some promises were broken; ${name} is unchanged.`);
else writeTable();

function writeTable() {
  const text = readFileSync(page, 'utf8');
  const [from, to] = [text.indexOf(begin), text.indexOf(end)];
  if (from < 0 || to < 0) fail(`${name} lacks the marks ${begin} and ${end}.`);
  const cell = (value) => value.replaceAll('|', '\\|');
  const rows = findings.map((found) =>
    ['', found.order, cell(found.fault), cell(found.expected), cell(found.measured), ''].join(' | ').trim(),
  );
  const when = new Date().toISOString().slice(0, 10);
  const where = `Node ${process.versions.node}, ${cpus().length} cores (${cpus()[0].model})`;
  const head = [
    '',
    `Measured ${when} on ${where}.`,
    '',
    '| | Fault | Promise | Measured |',
    '| --- | --- | --- | --- |',
  ];
  writeFileSync(
    page,
    `${text.slice(0, from + begin.length)}\n${[...head, ...rows, '', ''].join('\n')}${text.slice(to)}`,
  );
  console.log(`${name}: ${findings.length} findings.`);
}
