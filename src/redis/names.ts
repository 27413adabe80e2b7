// The names of keys in Redis. lua/include/nameOf.lua makes them for scripts, and this file those that are read without
// a script: workspaces, usage, the audit stream. src/redis/keyspace.md describes each.
//
// The braces are the hash tag of Redis Cluster: all keys of a workspace are in one slot, so a script may use any of
// them.

/** The name of a workspace's own record, and the prefix of all its names. */
export const workspaceKey = (workspaceId: string): string => `tg:{${workspaceId}}`;

/** The key of a script: a workspace by its id, or a record outside of workspaces by its name. */
export const scriptKey = (id: string): string => (id.startsWith('ws_') ? workspaceKey(id) : id);

/**
 * The name of a key that never exists. In a Cluster a script gets it besides the workspace: while a slot moves, its
 * keys are on two nodes, and a node refuses a command with several keys if it does not have all of them. With the
 * workspace alone, a node would run the script on a part of the keys.
 */
export const absentKey = (workspace: string): string =>
  workspace.includes('{') ? `${workspace}:-` : `{${workspace}}:-`;

/** The name of all connections to Redis (CLIENT LIST). Those of servers that read version 4 only have none. */
export const connectionName = 'tollgate';

/** Every workspace id, by time of creation. Zset. The only names outside of a workspace: */
export const workspacesKey = 'tg:workspaces';
/** The workspaces whose keys may read themselves (`GET /v2/me`), see records/holders.ts. Set. */
export const holdersKey = 'tg:holders';
/** A lock, for some seconds, of the server that creates the first workspace. String, expires. */
export const setupKey = 'tg:setup';
/** The version of all data, and the progress of its migration, see dataVersion.ts. Hash. */
export const dataKey = 'tg:data';
/** The version of all data, for servers that read version 4 only: they refuse to start with another one. String. */
export const formKey = 'tg:form';
/** The server processes that use the data, see migrations/heartbeat.ts. Hash of the process to its versions. */
export const serversKey = 'tg:servers';

/** The time of the last complete sweep, written every ten seconds (sweeper.ts). String. */
export const sweptKey = 'tg:swept';
/** Written to find out whether Redis accepts writes (writeProbe.ts). Empty string. */
export const probeKey = 'tg:probe';
/** In a Cluster one for each master, whose number is chosen by its slot. */
export const probeKeyOf = (number: number): string => `${probeKey}:{${number}}`;

/**
 * The streams of decisions that processes listen to (tail/registry.ts), while any does. Hash of the process to JSON,
 * expires.
 */
export const tailsKey = 'tg:tails';
/** The channel of decisions of a workspace, while another process listens to them. */
export const tailChannel = (workspaceId: string): string => `tg:tail:${workspaceId}`;
/** The channel on which a process publishes echoes to itself (subscriber.ts). */
export const echoChannel = (id: string): string => `tg:echo:${id}`;

/** The channels of recalls of leases between servers (leases/recalls.ts), and of their acknowledgements to a server. */
export const recallChannel = 'tg:recall';
export const recalledChannel = (server: string): string => `tg:recalled:${server}`;

/** All channels, as a rule of an ACL. */
export const channelPattern = 'tg:*';

// In a workspace (`workspace` is a result of workspaceKey). lua/include/nameOf.lua makes the same names.
export const rootKeyRecordKey = (workspace: string, digest: Buffer): Buffer =>
  Buffer.concat([Buffer.from(`${workspace}:rk:`), digest]);
export const adminRootKeysKey = (workspace: string): string => `${workspace}:rkfull`;
export const auditKey = (workspace: string): string => `${workspace}:audit`;
export const apisKey = (workspace: string): string => `${workspace}:apis`;
export const apiKey = (workspace: string, apiId: string): string => `${workspace}:api:${apiId.slice(-8)}`;
export const identitiesKey = (workspace: string): string => `${workspace}:identities`;
export const deletedKeysKey = (workspace: string, apiId: string): string => `${workspace}:kd:${apiId.slice(-8)}`;
export const keysKey = (workspace: string, apiId: string): string => `${workspace}:keys:${apiId.slice(-8)}`;
export const permissionNumbersKey = (workspace: string): string => `${workspace}:pn`;
export const permissionSlugsKey = (workspace: string): string => `${workspace}:ps`;
export const keyRecordKey = (workspace: string, digest: Buffer): Buffer =>
  Buffer.concat([Buffer.from(`${workspace}:k:`), digest]);
export const namespaceNamesKey = (workspace: string): string => `${workspace}:nsid`;
export const usedKeysKey = (workspace: string, api8: string, kind: 'day' | 'week', number: number): string =>
  `${workspace}:${kind === 'day' ? 'ux' : 'uw'}:${api8}:${number}`;
export const rollupQueueKey = (workspace: string): string => `${workspace}:rollup`;
export const formerMembersKey = (workspace: string, externalId: string): string => `${workspace}:ui:${externalId}`;
export const refusalRowsKey = (workspace: string, hour: number): string => `${workspace}:rh:${hour}`;
/** Refusals of a day as earlier versions wrote them. Nothing writes it now. */
export const refusalsOfDayKey = (workspace: string, day: number): string => `${workspace}:rf:${day}`;
export const apiUsageKey = (workspace: string, api8: string, day: number): string => `${workspace}:ua:${api8}:${day}`;
export const namespaceUsageKey = (workspace: string, id16: string, day: number): string =>
  `${workspace}:ul:${id16}:${day}`;
export const formerKeysKey = (workspace: string, api8: string): string => `${workspace}:uz:${api8}`;
export const tagUsageKey = (workspace: string, apiId: string, day: string): string =>
  `${workspace}:ut:${apiId.slice(-8)}:${day}`;

/** The names of windows with records of their own: a pattern for SCAN, and what a name says. */
export const windowNames = (workspace: string) => ({
  // The braces of a name are no special characters in a pattern.
  pattern: `${workspace}:w:*`,
  parse(name: string): { owner: string; duration: number; name: string } {
    const [owner = '', duration = '', ...rest] = name.slice(`${workspace}:w:`.length).split(':');
    return { owner, duration: Number(duration), name: rest.join(':') };
  },
});
/** Names of windows of all workspaces. */
export const allWindowNames = {
  pattern: 'tg:{ws_*}:w:*',
  /** Undefined for a name that only looks like one: digests in names may have any byte. */
  workspaceOf: (name: string): string | undefined => /^tg:\{(ws_\w{16})\}:w:/.exec(name)?.[1],
};
/** Names of what `api move` of earlier commits stored (scripts/moves.ts), and of root keys: it created some. */
export const formerMoveNames = {
  pattern: 'tg:{ws_????????????????}:[mr][vpsoik]:*',
  /** The workspace, `mv` and so on or `rk`, and what follows: the last 8 characters of an API's id, or a digest. */
  parse: (name: Buffer): string[] | undefined =>
    /^tg:\{(ws_\w{16})\}:(m[vpsoik]|rk):(.*)$/s.exec(name.toString('latin1'))?.slice(1),
};
export const identifierUsageKey = (workspace: string, id16: string, day: string): string =>
  `${workspace}:ud:${id16}:${day}`;
