// vitest's setupFiles: each test file begins with an empty database. Records of earlier files would appear in tests
// that read all names (KEYS, SCAN), and reading them took a sixth of the suite's time.

import { once } from 'node:events';
import { connect } from 'node:net';
import { inject } from 'vitest';
import { testRedisUrl } from './redisUrl.ts';

if (!inject('redisUrl').includes('+cluster:')) {
  const { pathname, hostname, port, protocol, searchParams } = new URL(testRedisUrl());
  const isSocket = protocol === 'unix:';
  const database = isSocket ? searchParams.get('db') : pathname.slice(1);
  const socket = isSocket ? connect(pathname) : connect(Number(port), hostname);
  socket.write(`SELECT ${database}\r\nFLUSHDB ASYNC\r\n`);
  let replies = '';
  while (replies !== '+OK\r\n+OK\r\n') {
    const [chunk] = (await once(socket, 'data')) as [Buffer];
    replies += chunk;
    if (replies.includes('-')) throw new Error(replies);
  }
  socket.destroy();
}
