// What a fault program found, one line a fault: `npm run test:faults` gathers the lines into docs/reliability.md.

import { appendFileSync } from 'node:fs';

/** A row of docs/reliability.md. `order` is the place in the table: the fault's number in the page, such as "1.2". */
export interface Finding {
  order: string;
  fault: string;
  /** The promise, as a line that can be false. */
  expected: string;
  /** Figures with their units. */
  measured: string;
}

/** Call it after the assertions: a row in the page is a promise kept. Without FAULTS_RESULTS (npm test) it says nothing. */
export function report(finding: Finding): void {
  const file = process.env.FAULTS_RESULTS;
  if (file) appendFileSync(file, `${JSON.stringify(finding)}\n`);
}
