// Finds servers of earlier releases, which do not register (src/migrations/heartbeat.ts): their connections have no
// name.

import { Cluster } from 'ioredis';
import type { RedisClient } from './connection.ts';

/**
 * The commands after which a connection of such a server may be idle. Monitoring and a person at the prompt use others,
 * such as INFO; an application that shares the database may use these.
 */
const used = new Set(
  'eval evalsha fcall function|list function|load get hget hgetall hmget publish script|exists script|load set subscribe waitaof xrange xrevrange zadd zrange'.split(
    ' ',
  ),
);

const fieldsOf = (line: string) =>
  new Map([...line.matchAll(/(\S+?)=(\S*)/g)].map((match) => [match[1]!, match[2]!] as const));

/**
 * The addresses of connections to our database that may be those of servers of earlier releases; undefined if Redis
 * does not list its connections to this account.
 */
export async function earlierClients(redis: RedisClient): Promise<string[] | undefined> {
  const client: unknown = redis;
  const nodes = client instanceof Cluster ? client.nodes('master') : [redis];
  const database = client instanceof Cluster ? '0' : String(redis.options.db ?? 0);
  try {
    const lists = await Promise.all(nodes.map((node) => node.client('LIST') as Promise<string>));
    return lists
      .flatMap((list) => list.trim().split('\n').map(fieldsOf))
      .filter((of) => of.get('name') === '' && of.get('db') === database && used.has(of.get('cmd')!))
      .map((of) => of.get('addr')!);
  } catch (error) {
    // Any other error is one of the connection.
    if ((error as Error).name === 'ReplyError') return undefined;
    throw error;
  }
}
