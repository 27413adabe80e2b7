// What a Redis runs, by MONITOR on a connection without ioredis: that fails if a command is reported in the same packet
// as the reply to MONITOR.

import { once } from 'node:events';
import { connect } from 'node:net';
import { createInterface } from 'node:readline';

/** Calls `ran` with the words of each command, also of those in scripts, until the returned function is called. */
export async function monitorOf(url: string, ran: (words: string[]) => void): Promise<() => void> {
  const path = url.startsWith('unix:') ? url.slice('unix:'.length).replace(/\?.*/, '') : undefined;
  const { hostname, port } = path ? { hostname: '', port: '' } : new URL(url);
  const socket = path ? connect(path) : connect(Number(port), hostname);
  const lines = createInterface({ input: socket });
  const begun = once(lines, 'line');
  socket.write('MONITOR\r\n');
  const [reply] = await begun;
  if (reply !== '+OK') throw new Error(`MONITOR: ${reply}`);
  lines.on('line', (line) => ran([...line.matchAll(/"((?:[^"\\]|\\.)*)"/g)].map(([, word]) => word!)));
  return () => socket.destroy();
}
