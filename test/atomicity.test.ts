// Every write is done completely or not at all. Three questions: Does a refused call change anything? Does a call
// change anything when one of its Redis commands fails? Does any script read after its first write? Redis does not undo
// the writes of a script that fails, so nothing that may fail may follow a write.
//
// In the library of this file a module wraps the scripts' calls of Redis. It records them, and lets a chosen one fail.

import { Redis } from 'ioredis';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { wildcardsMax } from '../src/domain/wildcards.ts';
import type { ErrorCode } from '../src/errors.ts';
import type { AnyOperation } from '../src/operation.ts';
import { type OperationName, operations } from '../src/operations/index.ts';
import { holdersMax } from '../src/records/holders.ts';
import { dataKey, echoChannel, formKey, recallChannel } from '../src/redis/names.ts';
import { buildLibrary, isScript, readLua } from '../src/scripts/library.ts';
import { library, useLibrary } from '../src/scripts/loader.ts';
import { exampleOf, examples, freshName, hash, makeThings, type Things } from './support/examples.ts';
import { type Called, endAllLeases, harness, type InputOf, type OutputOf } from './support/harness.ts';
import { redisOfFile } from './support/ofFile.ts';
import { strict } from './support/strict.ts';
import { sample, testIf } from './support/testIf.ts';

const trace = 'test:trace';
const fault = 'test:fault';

/** The call of a script that is traced. */
const traced = `
local traced = { script = '', is_read = false, fault = false, calls = 0 }
function traced.begin(script, is_read)
  traced.script, traced.is_read, traced.fault, traced.calls = script, is_read, redis.call('GET', '${fault}'), 0
end
local function traced_call(...)
  -- A server registers at any time, which is no part of a call.
  if traced.script == '' then return redis.call(...) end
  local command, key, field = ...
  traced.calls = traced.calls + 1
  if not traced.is_read then
    redis.call('RPUSH', '${trace}', traced.script .. ' ' .. command .. ' ' .. tostring(field) .. ' ' .. tostring(key))
  end
  if traced.fault == traced.script .. ' ' .. traced.calls then
    error({ err = (traced.calls % 2 == 0 and 'OOM' or 'ERR') .. ' injected' })
  end
  return redis.call(...)
end
`;

/** A file of lua/ whose calls are traced. */
function withTrace(path: string, text: string): string {
  // What follows a change is outside of its script, and only reads.
  if (path === 'include/change' || path === 'library') return text;
  const calls = text.replaceAll('redis.call(', 'traced_call(');
  if (!isScript(path)) return calls;
  const [, flags = '', rest] = /^(#!.*\n)?([\s\S]*)$/.exec(calls)!;
  const name = path.startsWith('data/') ? '' : path;
  return `${flags}traced.begin('${name}', ${flags.includes('no-writes')})\n${rest}`;
}

const files = new Map([...readLua()].map(([path, text]) => [path, withTrace(path, text)]));
useLibrary(buildLibrary(files.set('include/traced', traced), strict));

const { scripts } = library();
/** Names of scripts by the function that is called. */
const nameOf = new Map([...scripts].map(([name, { functionName }]) => [functionName, name]));

/** Records what the store sends during a call, as names of scripts or commands. It can let one of them fail. */
const sent = {
  armed: false,
  names: [] as string[],
  failAt: -1,
  workspaceId: '',
  decides: false,
  hasDecided: true,
};
const sendCommand = Redis.prototype.sendCommand;
vi.spyOn(Redis.prototype, 'sendCommand').mockImplementation(function (this: Redis, command, stream) {
  const { name, args } = command;
  const script = name === 'fcall' ? nameOf.get(`${args[0]}`.replace(/^full_/, '')) : undefined;
  if (script === 'decide') sent.hasDecided = true;
  if (!sent.armed || isUnawaited(name, args)) return sendCommand.call(this, command, stream);
  sent.names.push(script ?? name);
  if (sent.failAt !== sent.names.length - 1) return sendCommand.call(this, command, stream);
  command.reject(new Error('Connection is closed.'));
  // A command of a pipeline is sent anyway, because the pipeline would wait for it. Pipelines only read.
  return stream ? sendCommand.call(this, command, stream) : command.promise;
});

/** Commands that a new connection sends by itself, and one that is sent after the response. */
const unawaited = new Set(['client', 'hello', 'info', 'select', 'hdel']);

/** Whether the call does not wait for a command: one of those, an echo, or one of leases. */
function isUnawaited(name: string, args: readonly unknown[]): boolean {
  const [first, , workspace] = args.map(String);
  const isEcho = name === 'publish' && first!.startsWith(echoChannel(''));
  const hearsRecalls = name === 'subscribe' && args.includes(recallChannel);
  // The heartbeat of a server registers, and reads the version of the data.
  const isHeartbeat = nameOf.get(first!) === 'data/beat' || args.includes(dataKey) || args.includes(formKey);
  if (unawaited.has(name) || isEcho || hearsRecalls || isHeartbeat) return true;
  // With TEST_LEASE_MS, a settlement of an earlier call: of another workspace, or while this call decides nothing.
  if (!workspace?.startsWith('tg:{')) return false;
  return !workspace.includes(sent.workspaceId) || (nameOf.get(first!) === 'decide' && !sent.decides);
}

const tollgate = harness();
const { call, createWorkspace } = tollgate;
const redis = await redisOfFile();

/**
 * Reads the records of a workspace in Redis: a command for each of them from here took a third of this file's time. Its
 * result has the name of each record, and its expiry with the digest of its value.
 */
const readContents = `
local found = {}
for _, name in ipairs(redis.call('KEYS', ARGV[1])) do
  if name:find(':rk:', 1, true) then
    local fields, all = {}, redis.call('HGETALL', name)
    for at = 1, #all, 2 do
      if all[at] ~= 'used' then fields[#fields + 1] = all[at] .. '\\0' .. all[at + 1] end
    end
    table.sort(fields)
    found[#found + 1] = { name, redis.sha1hex(table.concat(fields, '\\0')) }
  elseif not name:find(':leases$') then
    local digest = redis.sha1hex(redis.call('DUMP', name))
    found[#found + 1] = { name, redis.call('PEXPIRETIME', name) .. ' ' .. digest }
  end
end
return found`;

/**
 * All records of a workspace by Redis key, without its registry of leases and the times at which its root keys were
 * last used.
 */
async function contents(workspaceId: string): Promise<Record<string, string>> {
  await endAllLeases();
  const found = (await redis.callBuffer('EVAL', readContents, 0, `tg:{${workspaceId}}*`)) as [Buffer, Buffer][];
  // As latin1, because names contain digests.
  return Object.fromEntries(found.map(([name, value]) => [name.toString('latin1'), value.toString('latin1')]));
}

/** What KEYS looks through is only what a test itself has created. */
afterEach(async () => {
  const names = await redis.keysBuffer('tg:{ws_*');
  const others = names.filter((name) => !name.includes(tollgate.workspaceId));
  if (others.length > 0) await redis.unlink(...others);
});

interface Workspace {
  workspaceId: string;
  rootKey: string;
}

/**
 * Calls an operation with one failure: of the n-th command that the store sends, or of the n-th call within a script.
 */
async function callWithFault<Name extends OperationName>(
  name: Name,
  input: InputOf<Name>,
  { rootKey, workspaceId }: Workspace,
  where: { command?: number; inScript?: string } = {},
): Promise<Called<OutputOf<Name>> & { sent: string[]; trace: string[] }> {
  // Decisions keep state between calls. The library is loaded again, so that all calls do the same.
  if (sent.hasDecided) await redis.function('LOAD', 'REPLACE', library().text);
  sent.hasDecided = false;
  // A status has facts that it reads once a second: here just before, unless the machine is busy.
  const startedMs = performance.now();
  if (name === 'system.getStatus') await call(name, input, rootKey);
  await redis.del(trace);
  if (where.inScript) await redis.set(fault, where.inScript);
  const decides = operations.find((operation) => operation.name === name)!.kind === 'decides';
  Object.assign(sent, { armed: true, names: [], failAt: where.command ?? -1, workspaceId, decides });
  const answer = await call(name, input, rootKey).finally(() => {
    sent.armed = false;
  });
  await redis.del(fault);
  if (name === 'system.getStatus' && performance.now() - startedMs >= 1000)
    return callWithFault(name, input, { rootKey, workspaceId }, where);
  // With leases, an earlier test may still settle some.
  const traced = (await redis.lrange(trace, 0, -1)).filter((line) => line.includes(workspaceId));
  return { ...answer, sent: [...sent.names], trace: traced };
}

const reads = new Set(
  'HGET HMGET HGETALL HEXISTS GET EXISTS ZRANGE ZREVRANGEBYLEX ZCARD SCARD SISMEMBER LINDEX LLEN LPOS TIME ZSCORE ZLEXCOUNT STRLEN'.split(
    ' ',
  ),
);
const writes = new Set(
  'RENAME HSET HSETNX HDEL HINCRBY SET APPEND UNLINK PEXPIRE ZADD ZPOPMIN ZREM ZREMRANGEBYSCORE SADD SREM RPUSH LREM LPOP XADD'.split(
    ' ',
  ),
);

/**
 * The calls of a script in order: `r` or `w` for each, without the note at the beginning that the root key was used.
 */
function stepsOf(traced: readonly string[], script: string): string {
  return traced
    .map((line) => line.split(' '))
    .filter(([name]) => name === script)
    .map(([_name, command, field]) => {
      if (command === 'HSET' && field === 'used') return 'r';
      if (reads.has(command!)) return 'r';
      if (writes.has(command!)) return 'w';
      throw new Error(`Does ${command} read or write?`);
    })
    .join('');
}

/**
 * Operations whose scripts return numbers, which are looked up afterwards. A fault there is an error for a change that
 * was made completely.
 */
const readAfterwards: readonly OperationName[] = [
  'keys.addPermissions',
  'keys.removePermissions',
  'keys.setPermissions',
  'keys.addRoles',
  'keys.removeRoles',
  'keys.setRoles',
  'permissions.setRolePermissions',
  'plans.updatePlan',
];

const everyName = operations.map(({ name }) => name);
const inputOf = <Name extends OperationName>(name: Name, things: Things) =>
  exampleOf(name).input(things) as InputOf<Name>;

const areFailed = new Set(sample(everyName));

describe.each(everyName)('%s', (name) => {
  test('no script reads after its first write', async () => {
    const done = await rehearse(name);
    expect(done.status).toBe(200);
    for (const script of new Set(done.sent)) {
      // A lease (TEST_LEASE_MS) is granted after its decision was written. If that fails, the decision is returned.
      const isLeased = script === 'decide' && done.trace.some((line) => line.startsWith('decide HGETALL'));
      expect(stepsOf(done.trace, script), script).toMatch(isLeased ? /^r*w*r*w*$/ : /^r*w*$/);
    }
  });

  testIf(areFailed.has(name))(
    'a failing Redis command anywhere gives an error in the envelope and changes nothing',
    async () => {
      while (!(await failsAnywhere())) {}
    },
  );

  /** Returns false if a server of another test has removed the library meanwhile: its load is one of the commands. */
  async function failsAnywhere(): Promise<boolean> {
    const workspace = await createWorkspace();
    const input = inputOf(name, await makeThings(call, workspace.rootKey));
    const before = await contents(workspace.workspaceId);
    expect(Object.keys(before).length).toBeGreaterThan(20);
    const isReloaded = ({ sent }: Done) => name !== 'system.getStatus' && sent.includes('function');
    const check = async (answer: Done, statuses: readonly number[], where: string) => {
      expect(statuses, where).toContain(answer.status);
      expect(answer.error, where).toMatchObject({
        title: expect.any(String),
        detail: expect.any(String),
        status: answer.status,
        type:
          answer.status === 503 ? expect.stringMatching(/^\/errors\/store_(unavailable|full)$/) : '/errors/internal',
      });
      expect(JSON.stringify(answer.error), where).not.toContain('injected');
      expect(await contents(workspace.workspaceId), where).toEqual(before);
    };

    // The commands and scripts of the call up to the one that writes: a fault after it cannot undo the write. A
    // message to tails follows the change of a root key, and may be lost.
    const [authenticates, ...others] = partsOf(await rehearse(name)).filter(
      (item) => item.script !== 'publish' && (!readAfterwards.includes(name) || item.writes >= 0),
    );
    const parts = [authenticates!, ...others];
    expect(parts.length).toBeGreaterThan(0);
    let faults = 0;
    for (const [index, { script }] of parts.entries()) {
      const answer = await callWithFault(name, input, workspace, { command: index });
      if (isReloaded(answer)) return false;
      await check(answer, [503], `${script} not sent`);
      faults++;
    }
    for (const [index, { script, isScript, steps }] of parts.entries()) {
      if (!isScript) continue;
      // Faults up to and including the first write. A script that only reads is not traced: the faults continue until
      // the call succeeds or sends its next command.
      const until = steps === '' ? 200 : steps.includes('w') ? steps.indexOf('w') + 1 : steps.length;
      for (let n = 1; n <= until; n++) {
        const next = steps === '' ? { command: index + 1 } : {};
        const answer = await callWithFault(name, input, workspace, { inScript: `${script} ${n}`, ...next });
        if (isReloaded(answer)) return false;
        if (steps === '' && (answer.status === 200 || answer.sent.length > index + 1)) break;
        await check(answer, [n % 2 === 0 ? 503 : 500], `${script}, call ${n}`);
        faults++;
      }
    }
    expect(faults).toBeGreaterThanOrEqual(3);
    return true;
  }
});

type Done = Awaited<ReturnType<typeof callWithFault>>;
const rehearsals = new Map<OperationName, Promise<Done>>();

/** A successful call, made once for the tests of an operation. */
function rehearse(name: OperationName): Promise<Done> {
  const rehearsal = async () => {
    for (;;) {
      const workspace = await createWorkspace();
      const done = await callWithFault(name, inputOf(name, await makeThings(call, workspace.rootKey)), workspace);
      // A server of another test has removed this library, and the call loaded it again: others do not.
      if (name === 'system.getStatus' || !done.sent.includes('function')) return done;
    }
  };
  if (!rehearsals.has(name)) rehearsals.set(name, rehearsal());
  return rehearsals.get(name)!;
}

/** The commands that a call sent, and the calls within its scripts. */
const partsOf = (done: Done) =>
  done.sent.map((script) => {
    const steps = stepsOf(done.trace, script);
    return { script, steps, writes: steps.indexOf('w'), isScript: scripts.has(script) };
  });

interface Refusal<Name extends OperationName> {
  because: string;
  code: ErrorCode;
  input(things: Things): InputOf<Name>;
  /** The grants of the caller; all if omitted. */
  as?: string[];
  /** Creates further records. */
  given?(things: Things, workspace: Workspace): Promise<unknown>;
}

const mayAdd = 'rbac.*.add_permission_to_role';
const unknownPlan = { planId: 'unknown' };
const tooManyWithPlan = ({ planId }: Things) => ({
  planId,
  ratelimits: Array.from({ length: 26 }, (_, at) => ({ name: `own ${at}`, limit: 1, duration: 1000 })),
});
const noSlug = { because: 'a permission may not be created', code: 'insufficient_permissions' } as const;
const updating = ['api.*.update_key', 'rbac.*.add_permission_to_key', 'rbac.*.remove_permission_from_key'];
const over = (count: number) => Array.from({ length: count }, (_, index) => `over.${index}`);
const lastRootKey = { because: 'the last root key that may do everything', code: 'precondition_failed' } as const;
const notCovered = {
  because: 'it holds more than the caller',
  code: 'insufficient_permissions',
  as: ['root_key.*.update_root_key', 'root_key.*.delete_root_key', 'root_key.*.create_root_key'],
} as const;

/** The id of the workspace's own root key. */
const ownId = async ({ rootKey }: Workspace) =>
  (await call('rootKeys.listRootKeys', {}, rootKey)).data.find(({ permissions }) => permissions.includes('*'))!
    .rootKeyId;
let own = '';

const refusal = <Name extends OperationName>(
  because: string,
  code: ErrorCode,
  input: Refusal<Name>['input'],
  more: Pick<Refusal<Name>, 'as' | 'given'> = {},
): Refusal<Name> => ({ because, code, input, ...more });

/** Refusals of valid requests, besides plainRefusals, for the operations that change something. */
const refusals: { [Name in OperationName]?: Refusal<Name>[] } = {
  'workspace.updateSettings': [
    refusal('too many workspaces have `me`', 'precondition_failed', () => ({ name: 'refused', me: {} }), {
      given: async () => {
        for (let made = 0; made < holdersMax; made++)
          await tollgate.store.holders.add(`ws_${String(made).padStart(16, 'a')}`);
      },
    }),
  ],
  'apis.deleteApi': [
    refusal('it is protected', 'precondition_failed', ({ apiId }) => ({ apiId, confirm: 'another' }), {
      given: (_things, { rootKey }) => call('workspace.updateSettings', { protectApis: true }, rootKey),
    }),
  ],
  'keys.createKey': [
    refusal('the last of its roles is unknown', 'role_not_found', (things) => ({
      ...examples['keys.createKey'].input(things),
      roles: [things.name, 'unknown'],
    })),
    { ...noSlug, as: ['api.*.create_key'], input: examples['keys.createKey'].input },
    refusal('its plan is unknown', 'plan_not_found', (things) => ({
      ...examples['keys.createKey'].input(things),
      ...unknownPlan,
    })),
    refusal('its plan allows fewer limits', 'precondition_failed', (things) => ({
      ...examples['keys.createKey'].input(things),
      ...tooManyWithPlan(things),
    })),
    refusal('the API is gone', 'api_not_found', examples['keys.createKey'].input, {
      given: ({ apiId }, { rootKey }) => call('apis.deleteApi', { apiId }, rootKey),
    }),
  ],
  'keys.verifyKey': [
    refusal('the last limit it names is nowhere', 'precondition_failed', ({ key }) => ({
      key,
      ratelimits: [{ name: 'tokens' }, { name: 'nowhere' }],
      tags: ['new'],
    })),
    refusal('the query does not parse', 'permissions_query_syntax', ({ key }) => ({ key, permissions: 'a AND' })),
    refusal('the caller may not', 'insufficient_permissions', examples['keys.verifyKey'].input, {
      as: ['api.*.read_key'],
    }),
    refusal(
      'its own id was used for other costs',
      'conflict',
      ({ key }) => ({ key, credits: { cost: 2 }, hold: { ttl: 60_000, id: 'own' } }),
      { given: ({ key }, { rootKey }) => call('keys.verifyKey', { key, hold: { ttl: 60_000, id: 'own' } }, rootKey) },
    ),
  ],
  'keys.settleHold': [
    refusal('the hold has no units of the last limit it names', 'precondition_failed', ({ holdId }) => ({
      holdId,
      credits: { cost: 9 },
      ratelimits: [
        { name: 'requests', cost: 0 },
        { name: 'nowhere', cost: 1 },
      ],
    })),
    refusal('it was settled with other amounts', 'conflict', ({ holdId }) => ({ holdId, credits: { cost: 9 } }), {
      given: ({ holdId }, { rootKey }) => call('keys.settleHold', { holdId }, rootKey),
    }),
    refusal('the caller may not', 'insufficient_permissions', ({ holdId }) => ({ holdId }), { as: ['api.*.read_key'] }),
  ],
  'keys.extendHold': [
    refusal('it was given back', 'conflict', ({ holdId }) => ({ holdId, ttl: 60_000 }), {
      given: ({ holdId }, { rootKey }) => call('keys.releaseHold', { holdId }, rootKey),
    }),
  ],
  'keys.releaseHold': [
    refusal('it was settled', 'conflict', ({ holdId }) => ({ holdId }), {
      given: ({ holdId }, { rootKey }) => call('keys.settleHold', { holdId }, rootKey),
    }),
  ],
  'keys.updateKey': [
    refusal('the last of its roles is unknown', 'role_not_found', (things) => ({
      ...examples['keys.updateKey'].input(things),
      roles: [things.name, 'unknown'],
    })),
    { ...noSlug, as: updating, input: examples['keys.updateKey'].input },
    refusal('its plan is unknown', 'plan_not_found', (things) => ({
      ...examples['keys.updateKey'].input(things),
      ...unknownPlan,
    })),
    refusal('its plan allows fewer limits', 'precondition_failed', (things) => ({
      ...examples['keys.updateKey'].input(things),
      ...tooManyWithPlan(things),
    })),
    refusal(
      'an unlimited key has nothing to refill',
      'invalid_input',
      (things) => ({
        ...examples['keys.updateKey'].input(things),
        credits: { refill: { interval: 'daily', amount: 1 } },
      }),
      {
        given: ({ keyId }, { rootKey }) =>
          call('keys.updateCredits', { keyId, operation: 'set', value: null }, rootKey),
      },
    ),
    refusal('the key is gone', 'key_not_found', examples['keys.updateKey'].input, {
      given: ({ keyId }, { rootKey }) => call('keys.deleteKey', { keyId }, rootKey),
    }),
  ],
  'keys.changeKeys': [
    refusal('the plan is unknown', 'plan_not_found', ({ keyId }) => ({ keyIds: [keyId], change: unknownPlan })),
    refusal('the caller may not', 'insufficient_permissions', examples['keys.changeKeys'].input, {
      as: ['api.*.delete_key'],
    }),
  ],
  'keys.updateCredits': [
    refusal(
      'an unlimited key cannot be raised',
      'invalid_input',
      ({ keyId }) => ({ keyId, operation: 'increment', value: 1 }),
      {
        given: ({ keyId }, { rootKey }) =>
          call('keys.updateCredits', { keyId, operation: 'set', value: null }, rootKey),
      },
    ),
    refusal('the sum is beyond what JSON keeps', 'invalid_input', ({ keyId }) => ({
      keyId,
      operation: 'increment',
      value: Number.MAX_SAFE_INTEGER,
    })),
  ],
  'keys.restoreKey': [
    refusal('it is not deleted', 'key_not_found', ({ keyId }) => ({ keyId })),
    refusal('its API is gone', 'key_not_found', ({ deletedKeyId }) => ({ keyId: deletedKeyId }), {
      given: ({ apiId }, { rootKey }) => call('apis.deleteApi', { apiId }, rootKey),
    }),
  ],
  'keys.migrateKeys': [
    refusal('a role of the last key is unknown', 'role_not_found', (things) => {
      const { keys, ...rest } = examples['keys.migrateKeys'].input(things);
      return { ...rest, keys: [...keys, { hash: hash(), roles: ['unknown'] }] };
    }),
    { ...noSlug, as: ['api.*.create_key'], input: examples['keys.migrateKeys'].input },
    refusal('the last hash is none', 'invalid_input', (things) => {
      const { keys, ...rest } = examples['keys.migrateKeys'].input(things);
      return { ...rest, keys: [...keys, { hash: 'none' }] };
    }),
  ],
  'keys.addPermissions': [
    { ...noSlug, as: updating, input: examples['keys.addPermissions'].input },
    refusal('they would be more than a thousand', 'invalid_input', ({ keyId }) => ({ keyId, permissions: over(1000) })),
  ],
  'keys.removePermissions': [
    refusal('the last is unknown', 'permission_not_found', ({ keyId, name }) => ({
      keyId,
      permissions: [`${name}.direct`, 'unknown'],
    })),
  ],
  'keys.setPermissions': [{ ...noSlug, as: updating, input: examples['keys.setPermissions'].input }],
  'keys.addRoles': [
    refusal('the last is unknown', 'role_not_found', ({ keyId, name }) => ({ keyId, roles: [name, 'unknown'] })),
  ],
  'keys.removeRoles': [
    refusal('the last is unknown', 'role_not_found', ({ keyId, name }) => ({ keyId, roles: [name, 'unknown'] })),
  ],
  'keys.setRoles': [
    refusal('the last is unknown', 'role_not_found', ({ keyId, name }) => ({ keyId, roles: [name, 'unknown'] })),
  ],
  'ratelimits.limit': [
    refusal(
      'the namespace may not be created',
      'insufficient_permissions',
      (things) => ({ ...examples['ratelimits.limit'].input(things), namespace: freshName() }),
      { as: ['ratelimit.*.limit'] },
    ),
  ],
  'ratelimits.multiLimit': [
    refusal('the last namespace has no such id', 'namespace_not_found', (things) => [
      { ...examples['ratelimits.limit'].input(things), namespace: freshName() },
      ...examples['ratelimits.multiLimit'].input(things),
      { ...examples['ratelimits.limit'].input(things), namespace: 'rlns_unknown' },
    ]),
    refusal(
      'the last namespace may not be created',
      'insufficient_permissions',
      (things) => [
        ...examples['ratelimits.multiLimit'].input(things),
        { ...examples['ratelimits.limit'].input(things), namespace: freshName() },
      ],
      { as: ['ratelimit.*.limit'] },
    ),
  ],
  'ratelimits.setOverride': [
    refusal(
      'the namespace may not be created',
      'insufficient_permissions',
      (things) => ({ ...examples['ratelimits.setOverride'].input(things), namespace: freshName() }),
      { as: ['ratelimit.*.set_override'] },
    ),
    refusal('it would have ended', 'invalid_input', (things) => ({
      ...examples['ratelimits.setOverride'].input(things),
      namespace: freshName(),
      until: 1,
    })),
    {
      because: 'it is one wildcard too many',
      code: 'invalid_input',
      // One after the other: on a busy machine, so many concurrent requests would wait too long and be refused.
      given: async (things, { rootKey }) => {
        for (let index = 0; index < wildcardsMax.stars; index++) {
          const override = { ...examples['ratelimits.setOverride'].input(things), identifier: `${index}*` };
          await call('ratelimits.setOverride', override, rootKey);
        }
      },
      input: examples['ratelimits.setOverride'].input,
    },
  ],
  'ratelimits.deleteOverride': [
    refusal('there is none for exactly this', 'override_not_found', ({ namespaceId }) => ({
      namespace: namespaceId,
      identifier: 'user_1',
    })),
  ],
  'identities.updateIdentity': [
    refusal('a limit is named twice', 'invalid_input', ({ identityId }) => ({
      identity: identityId,
      meta: { b: 2 },
      ratelimits: [
        { name: 'twice', limit: 1, duration: 1000 },
        { name: 'twice', limit: 2, duration: 1000 },
      ],
    })),
    refusal('its plan is unknown', 'plan_not_found', ({ identityId }) => ({
      identity: identityId,
      meta: { b: 2 },
      ratelimits: [],
      ...unknownPlan,
    })),
    refusal('its plan allows fewer limits', 'precondition_failed', (things) => ({
      identity: things.identityId,
      meta: { b: 2 },
      ...tooManyWithPlan(things),
    })),
  ],
  'identities.createIdentity': [
    refusal('its plan is unknown', 'plan_not_found', () => ({ externalId: freshName(), ...unknownPlan })),
    refusal('its plan allows fewer limits', 'precondition_failed', (things) => ({
      externalId: freshName(),
      ...tooManyWithPlan(things),
    })),
  ],
  'plans.createPlan': [
    { ...noSlug, as: ['plan.*.create_plan', mayAdd], input: examples['plans.createPlan'].input },
    refusal('permissions may not be added', 'insufficient_permissions', examples['plans.createPlan'].input, {
      as: ['plan.*.create_plan', 'rbac.*.create_permission'],
    }),
  ],
  'plans.updatePlan': [
    {
      ...noSlug,
      as: ['plan.*.update_plan', mayAdd, 'rbac.*.remove_permission_from_role'],
      input: examples['plans.updatePlan'].input,
    },
    refusal('permissions may not be removed', 'insufficient_permissions', examples['plans.updatePlan'].input, {
      as: ['plan.*.update_plan', mayAdd, 'rbac.*.create_permission'],
    }),
    refusal('the last of its roles is unknown', 'role_not_found', (things) => ({
      ...examples['plans.updatePlan'].input(things),
      roles: [things.name, 'unknown'],
    })),
  ],
  'plans.deletePlan': [
    refusal('a key has it', 'precondition_failed', ({ planId }) => ({ planId }), {
      given: ({ keyId, planId }, { rootKey }) => call('keys.updateKey', { keyId, planId }, rootKey),
    }),
    refusal(
      'the plan for its identities is unknown',
      'plan_not_found',
      ({ planId }) => ({ planId, replaceWith: 'unknown' }),
      {
        given: ({ identityId, planId }, { rootKey }) =>
          call('identities.updateIdentity', { identity: identityId, planId }, rootKey),
      },
    ),
  ],
  'permissions.createRole': [
    {
      ...noSlug,
      as: ['rbac.*.create_role', 'rbac.*.add_permission_to_role'],
      input: examples['permissions.createRole'].input,
    },
    refusal(
      'permissions may not be added to roles',
      'insufficient_permissions',
      examples['permissions.createRole'].input,
      { as: ['rbac.*.create_role', 'rbac.*.create_permission'] },
    ),
  ],
  'permissions.updatePermission': [
    refusal('another one has its slug', 'permission_already_exists', ({ name }) => ({
      permission: name,
      slug: `${name}.direct`,
      description: 'new',
    })),
  ],
  'permissions.updateRole': [
    refusal(
      'another one has its name',
      'role_already_exists',
      ({ name }) => ({ role: name, name: `${name}.other`, description: 'new' }),
      { given: ({ name }, { rootKey }) => call('permissions.createRole', { name: `${name}.other` }, rootKey) },
    ),
  ],
  'identities.restoreIdentity': [
    refusal('it is not deleted', 'identity_not_found', ({ identityId }) => ({ identityId })),
    refusal(
      'another one has its externalId since',
      'identity_already_exists',
      ({ deletedIdentityId }) => ({ identityId: deletedIdentityId }),
      {
        given: async (_, { rootKey }) => {
          const { data } = await call('identities.listIdentities', { deleted: true }, rootKey);
          return call('identities.createIdentity', { externalId: data[0]!.externalId }, rootKey);
        },
      },
    ),
  ],
  'permissions.setRolePermissions': [
    {
      ...noSlug,
      as: ['rbac.*.add_permission_to_role', 'rbac.*.remove_permission_from_role'],
      input: examples['permissions.setRolePermissions'].input,
    },
  ],
  'rootKeys.createRootKey': [
    { ...notCovered, as: [...notCovered.as], input: () => ({ permissions: ['root_key.*.create_root_key', '*'] }) },
  ],
  'rootKeys.updateRootKey': [
    { ...lastRootKey, input: () => ({ rootKeyId: own, name: 'new', enabled: false }) },
    { ...lastRootKey, input: () => ({ rootKeyId: own, name: 'new', expires: 4_102_444_800_000 }) },
    { ...lastRootKey, input: () => ({ rootKeyId: own, permissions: ['api.*.read_api'] }) },
    { ...notCovered, as: [...notCovered.as], input: ({ rootKeyId }) => ({ rootKeyId, name: 'new' }) },
  ],
  'rootKeys.deleteRootKey': [
    { ...lastRootKey, input: () => ({ rootKeyId: own }) },
    { ...notCovered, as: [...notCovered.as], input: ({ rootKeyId }) => ({ rootKeyId }) },
  ],
};

/** Of an example: with the ids of another workspace, and what it creates for the second time. */
function plainRefusals(name: OperationName): Refusal<OperationName>[] {
  const { changes, elsewhere, input } = exampleOf(name);
  if (!changes) return [];
  const { errors = [] } = operations.find((operation) => operation.name === name) as AnyOperation;
  // What is restored for the second time is no longer deleted, and what was renamed is not found by its former name.
  const exists = /\.(restore|update)/.test(name) ? undefined : errors.find((code) => code.endsWith('_already_exists'));
  let elsewhereThings: Things;
  let first: InputOf<OperationName>;
  const made: Refusal<OperationName>[] = [];
  const inputElsewhere = () => input(elsewhereThings) as InputOf<OperationName>;
  if (elsewhere)
    made.push(
      refusal('ids of another workspace', elsewhere, inputElsewhere, {
        given: async () => {
          elsewhereThings = await makeThings(call, (await createWorkspace()).rootKey);
        },
      }),
    );
  if (exists)
    made.push(
      refusal('it exists', exists, () => first, {
        given: (things, { rootKey }) => {
          first = input(things) as InputOf<OperationName>;
          return call(name, first, rootKey);
        },
      }),
    );
  return made;
}

const everyRefusal = everyName.flatMap((name) =>
  [...plainRefusals(name), ...((refusals[name] ?? []) as Refusal<OperationName>[])].map((refusal) => ({
    ...refusal,
    name,
  })),
);

test('every operation that may refuse a change does it below', () => {
  // test/operations/records.test.ts tests too_many_records for every operation that has it.
  const changing = (operations as readonly AnyOperation[]).filter(
    ({ name, errors = [] }) =>
      errors.some((code) => code !== 'too_many_records') && !/\.(get|list|whoami|explain)/.test(name),
  );
  const refused = new Set<string>(everyRefusal.map(({ name }) => name));
  expect(changing.filter(({ name }) => !refused.has(name)).map(({ name }) => name)).toEqual([]);
});

describe('a refused call changes nothing', () => {
  test.each(everyRefusal)('$name: $because', async ({ name, input, code, as = ['*'], given }) => {
    const workspace = await createWorkspace();
    const things = await makeThings(call, workspace.rootKey);
    await given?.(things, workspace);
    own = await ownId(workspace);
    // A caller with these grants, in that workspace.
    const rootKey =
      as[0] === '*'
        ? workspace.rootKey
        : (await call('rootKeys.createRootKey', { permissions: as }, workspace.rootKey)).data.key;
    const before = await contents(workspace.workspaceId);
    expect(await call(name, input(things), rootKey)).toMatchObject({ code });
    expect(await contents(workspace.workspaceId)).toEqual(before);
  });
});
