// Finds servers of earlier releases, which do not register (src/migrations/heartbeat.ts): their connections have no
// name.

import { mastersOf, type RedisClient } from './connection.ts';

/**
 * The last commands of connections of such a server, except those that monitoring and a person at the prompt use, such
 * as INFO. An application that shares the database may use these, too.
 */
const used = new Set(
  (
    'eval evalsha exists fcall function|list function|load get getrange hdel hget hgetall hlen hmget hscan hset llen ' +
    'lrange pexpire publish script|exists script|load set subscribe time unsubscribe waitaof xlen xrange xrevrange zadd ' +
    'zcard zrange zscan zscore'
  ).split(' '),
);

/** A field of a line of CLIENT LIST. A list may have many thousands of lines, so each is searched and not parsed. */
function fieldOf(line: string, name: string): string | undefined {
  const at = line.indexOf(` ${name}=`);
  return at < 0 ? undefined : line.slice(at + name.length + 2).split(' ', 1)[0];
}

/**
 * The addresses of connections to our database that may be those of servers of earlier releases; undefined if Redis
 * does not list its connections to this account.
 */
export async function earlierClients(redis: RedisClient): Promise<string[] | undefined> {
  const database = redis.isCluster ? '0' : String(redis.options.db ?? 0);
  try {
    const lists = await Promise.all(mastersOf(redis).map((node) => node.client('LIST') as Promise<string>));
    return lists
      .flatMap((list) => list.trim().split('\n'))
      .filter((line) => fieldOf(line, 'name') === '')
      .filter((line) => fieldOf(line, 'db') === database && used.has(fieldOf(line, 'cmd')!))
      .map((line) => fieldOf(line, 'addr')!);
  } catch (error) {
    // Any other error is one of the connection.
    if ((error as Error).name === 'ReplyError') return undefined;
    throw error;
  }
}
