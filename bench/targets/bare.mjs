// The lower bound: uWebSockets.js parses the body and prints a response of the same shape and size as Tollgate's. With
// REDIS_SOCKET every request also waits for an empty script: the lower bound of a server with one Redis call per
// request.
import { Redis } from 'ioredis';
import { uws } from '../../dist/http/uws.js';
import { limit, meta, name } from './typicalKey.mjs';

const redis = process.env.REDIS_SOCKET ? new Redis({ path: process.env.REDIS_SOCKET }) : undefined;
redis?.defineCommand('noop', { numberOfKeys: 1, lua: 'return 1' });

let sequence = 0;
const print = (requestId) =>
  `{"meta":{"requestId":"${requestId}"},"data":{"valid":true,"code":"VALID","keyId":"key_1pA5qXSJTBSDECGqTBSDECGn",` +
  `"enabled":true,"name":"${name}","meta":${JSON.stringify(meta)},"credits":${1e12 - sequence},"ratelimits":[{` +
  `"id":"rl_1pA5qXSJTBSDECGs","name":"${limit.name}","limit":${limit.limit},"duration":${limit.duration},` +
  `"autoApply":true,"exceeded":false,"remaining":${limit.limit - (sequence % 1000)},"reset":${Date.now()}}]}}`;

function respond(native) {
  sequence++;
  const requestId = `req_${String(sequence).padStart(16, '1')}`;
  native.cork(() => {
    native.writeStatus('200 OK');
    native.writeHeader('Content-Type', 'application/json');
    native.writeHeader('X-Request-Id', requestId);
    native.end(print(requestId));
  });
}

uws()
  .App()
  .post('/v2/keys.verifyKey', (native, head) => {
    const rootKey = head.getHeader('authorization');
    let aborted = false;
    native.onAborted(() => {
      aborted = true;
    });
    native.onData((chunk, isLast) => {
      if (!isLast) throw new Error('the bodies of this bench come in one piece');
      const { key } = JSON.parse(Buffer.from(chunk).toString());
      if (!key || !rootKey) throw new Error('no key');
      if (!redis) respond(native);
      else redis.noop('bench', key).then(() => aborted || respond(native));
    });
  })
  .listen('127.0.0.1', 0, (socket) => process.send({ port: uws().us_socket_local_port(socket) }));
process.on('disconnect', () => process.exit());
