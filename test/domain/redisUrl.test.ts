import { describe, expect, test } from 'vitest';
import { parseRedisUrl } from '../../src/domain/redisUrl.ts';

const cluster = (nodes: object[], account = {}) => ({ kind: 'cluster', nodes, account });
const sentinel = (nodes: object[], master: string, account = {}) => ({ kind: 'sentinel', nodes, account, master });

describe('how REDIS_URL is read', () => {
  test.each([
    ['redis://localhost:6379/2', { kind: 'server' }],
    ['rediss://:s%40crt@cache.example', { kind: 'server' }],
    ['redis://u:p@[::1]:6379/?family=6&db=3', { kind: 'server' }],
    ['unix:/run/redis.sock', { kind: 'socket', path: '/run/redis.sock', db: 0 }],
    ['unix:/run/redis.sock?db=3', { kind: 'socket', path: '/run/redis.sock', db: 3 }],
    [
      'redis+cluster://a,b:7001/',
      cluster([
        { host: 'a', port: 6379 },
        { host: 'b', port: 7001 },
      ]),
    ],
    [
      'rediss+cluster://[::1]:1,[fe80::1]',
      cluster([
        { host: '::1', port: 1 },
        { host: 'fe80::1', port: 6379 },
      ]),
    ],
    ['redis+sentinel://a', sentinel([{ host: 'a', port: 26_379 }], 'mymaster')],
    [
      'rediss+sentinel://u:p%40@a:1/main',
      sentinel([{ host: 'a', port: 1 }], 'main', { username: 'u', password: 'p@' }),
    ],
  ])('%s', (url, expected) => expect(parseRedisUrl(url)).toEqual(expected));
});

test.each(['cluster', 'sentinel'])('%s: the last @ ends the password', (kind) => {
  expect(parseRedisUrl(`redis+${kind}://default:se:k@r/it@127.0.0.1:7811`)).toMatchObject({
    nodes: [{ host: '127.0.0.1', port: 7811 }],
    account: { username: 'default', password: 'se:k@r/it' },
  });
});

test.each([
  'redis://',
  'redis://h:1/abc',
  'redis://h:1/2/3',
  'redis://h:1?db=abc',
  'redis://h:0',
  'redis://h:65536',
  'redis://:sek%rit@h:1',
  'redis://sek%rit@h:1',
  'redis://default:12?rit@h:1',
  'redis://default:12#rit@h:1',
  'redis://default:12/rit@h:1',
  'unix:run/redis.sock',
  'unix:/run/redis.sock?db=abc',
  'redis+cluster://',
  'redis+cluster://:sek%rit@h:1',
  'redis+sentinel://:sek%rit@h:1/main',
  'redis+cluster://sek%rit@h:1',
  'redis+cluster://a:xyz',
  'redis+cluster://a:',
  'redis+cluster://a:0',
  'redis+cluster://a:99999',
  'redis+sentinel://:99999',
  'redis+cluster://127.0.0.1:1,,',
  'redis+cluster://,a',
  'redis+cluster://a, b',
  'redis+cluster://::1',
  'redis+cluster://host/3',
  'redis+cluster://host?db=3',
  'redis+sentinel://host/main/3',
  'redis+sentinel://host/main?db=3',
  'default:sekrit@h:1',
  'http://h',
])('%s is refused', (url) => expect(parseRedisUrl(url)).toBeUndefined());
