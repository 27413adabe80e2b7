// What there is in Redis, held against what src/store/keyspace.ts says there is.

import { dataVersionKey, type KeyspaceEntry, keyspace, setupKey, workspacesKey } from '../../src/store/keyspace.ts';
import type { RedisClient } from '../../src/store/redis.ts';

const base58 = '[1-9A-HJ-NP-Za-km-z]';
const parts: Record<string, string> = {
  digest: '[\\s\\S]{32}',
  api8: `${base58}{8}`,
  id16: `${base58}{16}`,
  key24: `${base58}{24}`,
  owner: `(?:${base58}{16}|${base58}{24})`,
  externalId: '[a-zA-Z0-9_.-]{1,255}',
  number: '[1-9][0-9]*',
  duration: '[1-9][0-9]{3,}',
  name: '[\\s\\S]+',
  day: '[0-9]{5}',
  month: '20[0-9]{4}',
};

const patternOf = ({ name }: KeyspaceEntry): RegExp =>
  new RegExp(
    `^tg:\\{ws_${base58}{16}\\}${name.replaceAll(/<(\w+)>/g, (whole, part: string) => {
      const pattern = parts[part];
      if (!pattern) throw new Error(`${name}: no pattern for ${whole}`);
      return pattern;
    })}$`,
  );

const outside: (KeyspaceEntry & { pattern: RegExp })[] = [
  { name: workspacesKey, type: 'zset', holds: '', pattern: new RegExp(`^${workspacesKey}$`) },
  { name: dataVersionKey, type: 'string', holds: '', pattern: new RegExp(`^${dataVersionKey}$`) },
  { name: setupKey, type: 'string', holds: '', expires: 'in seconds', pattern: new RegExp(`^${setupKey}$`) },
];
const entries = [...outside, ...keyspace.map((entry) => ({ ...entry, pattern: patternOf(entry) }))];

/** The names of everything there may be. */
export const entryNames: readonly string[] = entries.map(({ name }) => name);

/** Every name in the database. */
export async function namesIn(redis: RedisClient): Promise<Buffer[]> {
  const names: Buffer[] = [];
  let cursor = '0';
  do {
    const [next, found] = await redis.scanBuffer(cursor, 'COUNT', 1000);
    names.push(...found);
    cursor = next.toString();
  } while (cursor !== '0');
  return names;
}

/** What is in Redis: the entries it is of, and what is wrong, such as a name that is of none or a type that is not the entry's. */
export async function survey(redis: RedisClient): Promise<{ seen: Set<string>; wrong: string[] }> {
  const seen = new Set<string>();
  const wrong: string[] = [];
  await Promise.all(
    (await namesIn(redis)).map(async (bytes) => {
      const name = bytes.toString('latin1');
      const [type, ttl] = await Promise.all([redis.type(bytes), redis.pttl(bytes)]);
      if (type === 'none' || ttl === -2) return; // Expired meanwhile.
      const [entry, ...more] = entries.filter(({ pattern }) => pattern.test(name));
      const says = (what: string) => wrong.push(`${JSON.stringify(name)} ${what}`);
      if (!entry) return says('is not in keyspace.ts');
      seen.add(entry.name);
      if (more.length > 0) says(`is also ${more.map((other) => other.name)}`);
      if (type !== entry.type) says(`is a ${type} and not a ${entry.type}`);
      if (entry.fields) {
        for (const field of await redis.hkeys(bytes)) if (!entry.fields.includes(field)) says(`has a field ${field}`);
      }
      // Such lists are read by their members (BYLEX), which needs one score for all.
      const isLexical = / in order: /.test(entry.holds);
      if (isLexical && (await redis.zcount(bytes, '-inf', '+inf')) !== (await redis.zcount(bytes, 0, 0)))
        says('has a score that is not 0');
      const mayStay = !entry.expires || entry.expires.startsWith('once ');
      // -1 is never.
      if (ttl === -1 ? !mayStay : !entry.expires) says(`expires in ${ttl} ms: should ${entry.expires ?? 'never'}`);
    }),
  );
  return { seen, wrong };
}
