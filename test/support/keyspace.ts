// Compares the records in Redis with src/redis/keyspace.md.

import { readFileSync } from 'node:fs';
import { Cluster } from 'ioredis';
import type { RedisClient } from '../../src/redis/connection.ts';
import {
  dataKey,
  formKey,
  holdersKey,
  probeKey,
  serversKey,
  setupKey,
  sweptKey,
  workspacesKey,
} from '../../src/redis/names.ts';
import { keyFixed, keyRecordFields, never } from '../../src/scripts/layout.ts';

export interface KeyspaceEntry {
  /** After `tg:{ws_…}`. */
  name: string;
  type: 'hash' | 'zset' | 'string' | 'list' | 'set' | 'stream';
  holds: string;
  /** All possible fields, if they are a fixed set; `<n>` is a number. */
  fields?: readonly string[] | undefined;
  isOld?: boolean;
  since?: number;
  expires?: string;
}

const fixedFields: Record<string, readonly string[]> = {
  ':data': ['run', 'fence', 'at', 'done'],
  ':k:<digest>': [
    'state',
    'leased',
    'holds',
    'holds<n>',
    'shifted',
    'formerLink',
    'formerPlan',
    'merged',
    ...Object.keys(keyRecordFields),
  ],
};

const page = readFileSync(new URL('../../src/redis/keyspace.md', import.meta.url), 'utf8');

/** The rows of the table. */
export const keyspace: readonly KeyspaceEntry[] = [...page.matchAll(/^\| `…(.*?)` \| (.*) \|$/gm)].map(
  ([, name, cells]) => {
    const [type, holds, expires, since] = cells!.split(/ ?\| ?/);
    return {
      name: name!,
      type: type as KeyspaceEntry['type'],
      holds: holds!,
      fields: fixedFields[name!],
      isOld: since === 'old',
      ...(expires && { expires }),
      ...(Number(since) && { since: Number(since) }),
    };
  },
);

const base58 = '[1-9A-HJ-NP-Za-km-z]';
const parts: Record<string, string> = {
  digest: '[\\s\\S]{32}',
  api8: `${base58}{8}`,
  id16: `${base58}{16}`,
  key24: `${base58}{24}`,
  owner: `(?:${base58}{16}|${base58}{24})`,
  externalId: '[a-zA-Z0-9_.-]{1,255}',
  planId: '[a-zA-Z0-9_.-]{1,64}',
  number: '[1-9][0-9]*',
  duration: '[1-9][0-9]{3,}',
  name: '[\\s\\S]+',
  bound: '[\\s\\S]*',
  day: '[0-9]{5}',
  hour: '[0-9]{6}',
  week: '[0-9]{4}',
  month: '[0-9]{3}',
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
  { name: holdersKey, type: 'set', holds: '', pattern: new RegExp(`^${holdersKey}$`) },
  { name: dataKey, type: 'hash', holds: '', pattern: new RegExp(`^${dataKey}$`) },
  { name: formKey, type: 'string', holds: '', pattern: new RegExp(`^${formKey}$`), isOld: true },
  { name: serversKey, type: 'hash', holds: '', pattern: new RegExp(`^${serversKey}$`) },
  { name: sweptKey, type: 'string', holds: '', pattern: new RegExp(`^${sweptKey}$`) },
  { name: probeKey, type: 'string', holds: '', pattern: new RegExp(`^${probeKey}(:\\{\\d+\\})?$`) },
  { name: setupKey, type: 'string', holds: '', expires: 'in seconds', pattern: new RegExp(`^${setupKey}$`) },
];
const entries = [...outside, ...keyspace.map((entry) => ({ ...entry, pattern: patternOf(entry) }))];

/** The names of all entries, with placeholders. */
export const entryNames: readonly string[] = entries.map(({ name }) => name);

/** All names in the database; of a Cluster those on all masters. */
export async function namesIn(redis: RedisClient | Cluster): Promise<Buffer[]> {
  const names: Buffer[] = [];
  for (const node of redis instanceof Cluster ? redis.nodes('master') : [redis]) {
    let cursor = '0';
    do {
      const [next, found] = await node.scanBuffer(cursor, 'COUNT', 1000);
      names.push(...found);
      cursor = next.toString();
    } while (cursor !== '0');
  }
  return names;
}

/**
 * The entries that have records in Redis, and the faults, such as a name without an entry or a type other than the
 * entry's.
 */
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
      if (!entry) return says('is not in keyspace.md');
      seen.add(entry.name);
      if (more.length > 0) says(`is also ${more.map((other) => other.name)}`);
      if (type !== entry.type) says(`is a ${type} and not a ${entry.type}`);
      if (entry.fields) {
        for (const field of await redis.hkeys(bytes))
          if (!entry.fields.includes(field.replace(/\d+$/, '<n>')) && !entry.fields.includes(field))
            says(`has a field ${field}`);
      }
      // Lists that are read by member (BYLEX) need the same score for all members.
      const isLexical = / in order: /.test(entry.holds);
      // The sweeper may remove members meanwhile, so two counts of all members would differ.
      if (isLexical && (await redis.zcount(bytes, '-inf', '(0')) + (await redis.zcount(bytes, '(0', '+inf')) > 0)
        says('has a score that is not 0');
      const mayStay = !entry.expires || entry.expires.startsWith('once ');
      // A TTL of -1 is never.
      if (ttl === -1 ? !mayStay : !entry.expires) says(`expires in ${ttl} ms: should ${entry.expires ?? 'never'}`);
    }),
  );
  wrong.push(...(await startFaults(redis)), ...(await expiryFaults(redis)));
  return { seen, wrong };
}

/**
 * Compares the index of starts with the keys of all APIs that exist, of one workspace while others are changed. An API
 * that is being removed may have a part of both.
 */
export async function startFaults(redis: RedisClient, workspaceId = ''): Promise<string[]> {
  const names = (await namesIn(redis)).filter((name) => name.toString('latin1').includes(workspaceId));
  const membersOf = async (prefix: string, read: (name: Buffer) => Promise<Buffer[]>) => {
    const found = names.filter((name) => name.toString('latin1').startsWith(prefix));
    return (await Promise.all(found.map(read))).flat();
  };
  const wrong: string[] = [];
  for (const name of names) {
    const [, workspace, api8] = /^(tg:\{ws_\w{16}\}):api:(\w{8})$/.exec(name.toString('latin1')) ?? [];
    if (!workspace) continue;
    const indexed = await membersOf(`${workspace}:sl:${api8}:`, (leaf) => redis.lrangeBuffer(leaf, '0', '-1'));
    const expected: string[] = [];
    for (const list of ['keys', 'kd']) {
      for (const member of await redis.zrangeBuffer(`${workspace}:${list}:${api8}`, '0', '-1')) {
        const start = await redis.hgetBuffer(
          Buffer.concat([Buffer.from(`${workspace}:k:`), member.subarray(12)]),
          'start',
        );
        if (start?.length) expected.push(`${start.toString('latin1')}\0${member.toString('latin1', 0, 12)}`);
      }
    }
    const has = indexed.map((entry) => entry.toString('latin1')).sort();
    if (JSON.stringify(has) !== JSON.stringify(expected.sort()))
      wrong.push(`the index of starts of ${api8} has ${has.length} entries: expected ${expected.length}`);
  }
  return wrong;
}

/**
 * Compares the index of keys by expiry with the states of all keys, of one workspace while others are changed: members
 * and their scores, also of deleted APIs that can be restored, and that APIs that do not exist have none.
 */
export async function expiryFaults(redis: RedisClient, workspaceId = ''): Promise<string[]> {
  const names = (await namesIn(redis)).map((name) => name.toString('latin1'));
  const wrong: string[] = [];
  for (const name of names.filter((name) => name.includes(workspaceId))) {
    const [, workspace, kind, api8] = /^(tg:\{ws_\w{16}\}):(api|da|ke):(\w{8})$/.exec(name) ?? [];
    const ofApi = ['api', 'da'].map((record) => `${workspace}:${record}:${api8}`);
    if (kind === 'ke' && !ofApi.some((record) => names.includes(record))) wrong.push(`${name} is of no API`);
    if (kind !== 'api' && kind !== 'da') continue;
    const expected: [id: string, expires: number][] = [];
    for (const member of await redis.zrangeBuffer(`${workspace}:keys:${api8}`, '0', '-1')) {
      const record = Buffer.concat([Buffer.from(`${workspace}:k:`), member.subarray(12)]);
      const state = (await redis.hgetBuffer(record, 'state'))!;
      const expires = state.readUIntBE(keyFixed.at.expires, 6);
      if (expires !== never) expected.push([member.toString('hex', 0, 12), expires]);
    }
    const stored = await redis.zrangeBuffer(`${workspace}:ke:${api8}`, '0', '-1', 'WITHSCORES');
    const indexed = stored.flatMap((id, at) => (at % 2 === 0 ? [[id.toString('hex'), Number(stored[at + 1])]] : []));
    const [has, wants] = [indexed, expected].map((list) => JSON.stringify(list.sort()));
    if (has !== wants) wrong.push(`the index by expiry of ${api8} is ${has}: expected ${wants}`);
  }
  return wrong;
}
