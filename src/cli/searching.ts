// Displays on a terminal how many records a search has examined: with many keys it takes seconds.

import type { Call } from './client.ts';
import type { Terminal } from './terminal.ts';

const lineEnd = '\u001b[K';

/**
 * Wraps calls so that each page of a list after the first writes the number of examined records on one line, which
 * `clear` removes.
 */
export function reporting(call: Call, stderr: Terminal['stderr']): { call: Call; clear(): void } {
  let isWritten = false;
  let looked = 0;
  const clear = () => {
    if (isWritten) stderr.write(`\r${lineEnd}`);
    isWritten = false;
  };
  const reported: Call = async (name, input, next) => {
    const answer = await call(name, input, next);
    looked = (next === undefined ? 0 : looked) + (answer.looked ?? 0);
    if (stderr.isTTY && answer.next !== undefined && answer.total !== undefined) {
      isWritten = true;
      stderr.write(`\rExamined ${looked.toLocaleString('en')} of ${answer.total.toLocaleString('en')} …${lineEnd}`);
    }
    return answer;
  };
  return { call: reported, clear };
}
