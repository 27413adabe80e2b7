// An API in another network, and the connections of this one.

import { readFileSync } from 'node:fs';
import { addNetwork, within } from '../../bench/support/network.mjs';
import { run } from '../support/processes.ts';

const program = (address: string) => `
let accepted = 0;
const server = require('node:http').createServer((_request, response) => response.end(String(accepted)));
server.on('connection', () => accepted++);
server.listen(0, '${address}', () => console.log(server.address().port));
`;

/** An API in another network, whose responses are the number of connections that it has accepted. */
export async function startRemoteApi() {
  const name = `tollgate-${process.pid}`;
  const network = addNetwork(name);
  const [command, ...words] = within(name);
  const api = run(command, [...words, process.execPath, '-e', program(network.address)]);
  const stop = async () => {
    await api.stop();
    network.remove();
  };
  try {
    return { host: network.address, port: Number((await api.prints(/^(\d+)\n/))[1]), stop };
  } catch (cause) {
    await stop();
    throw cause;
  }
}

/** The connections to a port that is at either end, with those in TIME_WAIT, by the ports at both ends. */
export function connectionsTo(port: number): { ends: string; isTimeWait: boolean }[] {
  const hex = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  return ['/proc/net/tcp', '/proc/net/tcp6']
    .flatMap((file) => readFileSync(file, 'utf8').trim().split('\n').slice(1))
    .map((line) => line.trim().split(/\s+/))
    .map(([, local = '', remote = '', state]) => ({ both: [local, remote], state }))
    .filter(({ both }) => both.some((end) => end.endsWith(hex)) && !both.some((end) => end.endsWith(':0000')))
    .map(({ both, state }) => ({ ends: both.sort().join(), isTimeWait: state === '06' }));
}
