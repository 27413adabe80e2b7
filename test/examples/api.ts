// The API behind the gateways: it records what reaches it, and accepts more protocols than a gateway may pass.

import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type IncomingMessage } from 'node:http';
import { createServer as createHttp2Server } from 'node:http2';
import type { AddressInfo, Socket } from 'node:net';

export interface Reached {
  method: string;
  url: string;
  headers: IncomingHttpHeaders;
  bytes: number;
  /** SHA-256 of the body. */
  digest: string;
}

/** Headers of every response: none of them may be lost, doubled or changed by a gateway. */
const page = {
  'content-type': 'text/html; charset=utf-8',
  'cache-control': 'private, max-age=5',
  etag: '"1"',
  'set-cookie': ['a=1; Path=/', 'b=2; Path=/'],
  vary: 'Accept',
  'access-control-allow-origin': '*',
  'x-of-the-api': 'yes',
};

const nothing = { bytes: 0, digest: '' };

export type Api = Awaited<ReturnType<typeof startApi>>;

export async function startApi(reached: Reached[]) {
  let accepted = 0;
  /** After `Upgrade: h2c`, as Vert.x, Jetty and hypercorn have it. */
  const http2 = createHttp2Server().on('stream', (stream, headers) => {
    reached.push({ method: 'HTTP/2', url: String(headers[':path']), headers, ...nothing });
    stream.respond({ ':status': 200 });
    stream.end('from the API');
  });
  http2.on('sessionError', () => {});

  const server = createServer(async (request, response) => {
    const { method, url, headers } = request;
    const hash = createHash('sha256');
    let bytes = 0;
    try {
      for await (const chunk of request) {
        bytes += chunk.length;
        hash.update(chunk);
      }
    } catch {
      return; // The connection was closed within the body.
    }
    reached.push({ method: method!, url: url!, headers, bytes, digest: hash.digest('hex') });
    const status = /^\/status\/(\d+)/.exec(url!)?.[1];
    response.writeHead(Number(status ?? 200), page);
    response.end('from the API');
  });
  server.on('connection', () => accepted++);
  /** Bytes that no gateway has checked. */
  const tunnel = (socket: Socket) => {
    socket.on('error', () => {});
    socket.on('data', (data) =>
      reached.push({ method: 'TUNNEL', url: data.toString('latin1'), headers: {}, ...nothing }),
    );
  };
  server.on('upgrade', ({ url, headers }: IncomingMessage, socket: Socket) => {
    reached.push({ method: 'UPGRADE', url: url!, headers, ...nothing });
    const protocol = String(headers.upgrade);
    const accept = createHash('sha1')
      .update(`${headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
      .digest('base64');
    const switching = `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade:`;
    if (/h2c/i.test(protocol)) {
      socket.write(`${switching} h2c\r\n\r\n`);
      http2.emit('connection', socket);
    } else if (/^websocket$/i.test(protocol)) {
      socket.write(`${switching} websocket\r\nSec-WebSocket-Accept: ${accept}\r\n\r\nhello `);
      socket.on('data', (data) => socket.write(data)).on('error', () => {});
      socket.on('end', () => socket.end());
    } else {
      socket.write(`${switching} ${protocol}\r\n\r\n`);
      tunnel(socket);
    }
  });
  server.on('connect', ({ url, headers }: IncomingMessage, socket: Socket) => {
    reached.push({ method: 'CONNECT', url: url!, headers, ...nothing });
    socket.write('HTTP/1.1 200 OK\r\n\r\n');
    tunnel(socket);
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');

  return {
    host: '127.0.0.1',
    port: (server.address() as AddressInfo).port,
    /** Connections that it has accepted so far. */
    accepted: () => accepted,
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}
