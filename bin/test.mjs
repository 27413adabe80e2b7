// npm test: makes everything ready on a fresh clone, then runs vitest with the arguments given. The last line counts.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { hasRedis, prepare, runLocal } from './prepare.mjs';

const dockerAnswers = () => spawnSync('docker', ['version'], { stdio: 'ignore' }).status === 0;

prepare({ dev: true, needsRedis: () => !hasRedis() && !dockerAnswers() });

const dir = mkdtempSync(join(tmpdir(), 'tollgate-report-'));
const report = join(dir, 'report.json');
const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${report}`];
const exitCode = runLocal('vitest', ['run', ...reporters, ...process.argv.slice(2)]);
const { passed, failed } = count(report);
rmSync(dir, { recursive: true });

// A run that failed without a failed test (an error outside of all tests, no tests at all) is one failure.
console.log(`${passed} passed, ${exitCode !== 0 && failed === 0 ? 1 : failed} failed`);
process.exitCode = exitCode;

function count(file) {
  try {
    const { numPassedTests, numFailedTests, testResults } = JSON.parse(readFileSync(file, 'utf8'));
    const hasFailedTest = ({ assertionResults }) => assertionResults.some(({ status }) => status === 'failed');
    const brokenFiles = testResults.filter((result) => result.status === 'failed' && !hasFailedTest(result));
    return { passed: numPassedTests, failed: numFailedTests + brokenFiles.length };
  } catch {
    return { passed: 0, failed: 0 };
  }
}
