// Findings of the fault programs, one line per fault. `npm run test:faults` collects the lines into
// test/faults/RESULTS.md.

import { appendFileSync } from 'node:fs';

/** A row of test/faults/RESULTS.md. `order` is its place in the table: the number of the fault, such as "1.2". */
export interface Finding {
  order: string;
  fault: string;
  /** The promise: a statement that can be false. */
  expected: string;
  /** Figures with their units. */
  measured: string;
}

/**
 * Call it after the assertions, because a row in the page is a kept promise. Without FAULTS_RESULTS (npm test) it does
 * nothing.
 */
export function report(finding: Finding): void {
  const file = process.env.FAULTS_RESULTS;
  if (file) appendFileSync(file, `${JSON.stringify(finding)}\n`);
}
