// Warnings of dependencies and of Node, which both write to standard error as text. In the log of a server every line
// is JSON.

import { format } from 'node:util';

/** ioredis writes it at each connection of an account that may not use INFO. `tollgate doctor` reports that account. */
const isExpected = (message: string) => message.startsWith('Skipping the ready check');

/** To be called once per process. */
export function forwardWarnings(write: (message: string) => void): void {
  const forward = (...words: unknown[]) => {
    const message = format(...words);
    if (!isExpected(message)) write(message);
  };
  console.warn = forward;
  // Node's own listener prints it. Without one, warnings are switched off.
  if (process.listenerCount('warning') === 0) return;
  process.removeAllListeners('warning');
  process.on('warning', ({ name, message }) => forward(`${name}: ${message}`));
}
