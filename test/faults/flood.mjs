// A process that sends the same request on many connections at full rate, one at a time on each connection. Reads its
// settings as JSON from the first argument and prints the number of responses by status.
//
//   port, path, connections, seconds
//   method     POST by default
//   bodyFile   the body of every request; without it they have none
//   rootKey    the root key of every request; without it each request names another workspace, which does not exist
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';

const { port, path, method = 'POST', connections, seconds, bodyFile, rootKey } = JSON.parse(process.argv[2]);
const body = bodyFile ? readFileSync(bodyFile) : Buffer.alloc(0);
const base58 = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz';
const noRootKey = () => `root_${Array.from({ length: 16 }, () => base58[Math.floor(Math.random() * 58)]).join('')}_x`;

const byStatus = {};
const until = performance.now() + seconds * 1000;

function request() {
  const head = `${method} ${path} HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer ${rootKey ?? noRootKey()}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n`;
  return Buffer.concat([Buffer.from(head), body]);
}

function open() {
  const socket = connect(port, '127.0.0.1');
  let received = '';
  const send = () => {
    if (performance.now() > until) socket.destroy();
    else socket.write(request());
  };
  socket.setEncoding('latin1').setNoDelay(true);
  socket.on('connect', send);
  socket.on('data', (text) => {
    received += text;
    const end = received.indexOf('\r\n\r\n');
    if (end < 0) return;
    const length = Number(/\r\ncontent-length: (\d+)/i.exec(received)?.[1] ?? 0);
    if (received.length < end + 4 + length) return;
    const status = received.slice(9, 12);
    byStatus[status] = (byStatus[status] ?? 0) + 1;
    received = '';
    send();
  });
  // A connection that ends, for any reason, is replaced until the time is over.
  socket.on('error', () => {});
  socket.on('close', () => performance.now() < until && setTimeout(open, 10));
}

for (let count = 0; count < connections; count++) open();
setTimeout(
  () => {
    console.log(JSON.stringify(byStatus));
    process.exit();
  },
  seconds * 1000 + 500,
);
