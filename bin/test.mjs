// npm test: installs and builds what is missing, then runs vitest with the given arguments. The last line has the
// counts. Without arguments it leaves out the files that start other programs (vitest.config.ts: `programs`); --all
// runs them too. Both leave out fault programs, and the larger sizes of tests, unless the files that they are about have
// changed (test/support/aside.ts).
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { hasRedis, prepare, root, runLocal } from './prepare.mjs';

const dockerAnswers = () => spawnSync('docker', ['version'], { stdio: 'ignore' }).status === 0;

await prepare({ dev: true, needsRedis: () => !hasRedis() && !dockerAnswers() });

const dir = mkdtempSync(join(tmpdir(), 'tollgate-report-'));
const report = join(dir, 'report.json');
const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${report}`];
const args = process.argv.slice(2);
const isAll = args.includes('--all');
const chosen = args.filter((arg) => arg !== '--all');
const isWhole = chosen.length === 0;
if (isWhole && !isAll) chosen.push('--project=!programs*');
const env = isWhole ? { ...process.env, TEST_SCOPE: 'whole' } : process.env;
const exitCode = runLocal('vitest', ['run', ...reporters, ...chosen], { env });
const { passed, failed, skipped } = read(report);
rmSync(dir, { recursive: true });

// With -t, tests are skipped on purpose, so they are not counted.
if (isWhole)
  for (const [name, count] of skipped) console.log(`skipped: ${name}${count > 1 ? ` (${count} tests)` : ''}`);
const skippedCount = [...skipped.values()].reduce((sum, count) => sum + count, 0);
// A run that fails without a failed test (an error outside of tests, or no tests) counts as one failure.
const counts = [`${passed} passed`, `${exitCode !== 0 && failed === 0 ? 1 : failed} failed`];
if (isWhole && skippedCount > 0) counts.push(`${skippedCount} skipped`);
if (isWhole) console.log('Not run: fault programs and larger sizes of tests: npm run test:faults');
if (isWhole && !isAll) console.log('Not run: tests that start browsers, gateways and Clusters: npm test -- --all');
console.log(counts.join(', '));
process.exitCode = exitCode;

/** The counts, and the number of skipped tests by their outermost title, which contains the reason. */
function read(file) {
  const skipped = new Map();
  try {
    const { numPassedTests, numFailedTests, testResults } = JSON.parse(readFileSync(file, 'utf8'));
    const hasFailedTest = ({ assertionResults }) => assertionResults.some(({ status }) => status === 'failed');
    const brokenFiles = testResults.filter((result) => result.status === 'failed' && !hasFailedTest(result));
    for (const { name, assertionResults } of testResults) {
      for (const { status, ancestorTitles, title } of assertionResults) {
        if (status === 'passed' || status === 'failed') continue;
        const group = `${relative(root, name)}: ${ancestorTitles[0] ?? title}`;
        skipped.set(group, (skipped.get(group) ?? 0) + 1);
      }
    }
    return { passed: numPassedTests, failed: numFailedTests + brokenFiles.length, skipped };
  } catch {
    return { passed: 0, failed: 0, skipped };
  }
}
