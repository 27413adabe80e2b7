/** What a REDIS_URL says. It is read here alone, so that what the settings accept is what the store connects to. */

export interface Address {
  host: string;
  port: number;
}

export interface Account {
  username?: string;
  password?: string;
}

type RedisUrl =
  | { kind: 'server' }
  | { kind: 'socket'; path: string; db: number }
  | { kind: 'cluster'; nodes: Address[]; account: Account }
  | { kind: 'sentinel'; nodes: Address[]; account: Account; master: string };

/**
 * `redis://…`, `rediss://…`, or `unix:/path/to/socket`, with `?db=n` if wanted; `redis+cluster://a:6379,b:6379` names some
 * nodes of a Cluster, `redis+sentinel://a:26379,b:26379/mymaster` Sentinels and the master they watch. `rediss+` is with TLS.
 * Undefined for anything that could be taken for something else than was meant.
 */
export function parseRedisUrl(text: string): RedisUrl | undefined {
  if (text.startsWith('unix:')) return parseSocket(text.slice('unix:'.length));
  if (/^rediss?:\/\//.test(text)) return isServer(text) ? { kind: 'server' } : undefined;
  return parseMany(text);
}

const isDb = (text: string | null) => text === null || /^\d{1,9}$/.test(text);

function parseSocket(text: string): RedisUrl | undefined {
  const [path, query] = text.split('?') as [string, string | undefined];
  const db = new URLSearchParams(query).get('db');
  return /^\/[^/]/.test(path) && isDb(db) ? { kind: 'socket', path, db: Number(db ?? 0) } : undefined;
}

/** Whether it is one that ioredis reads as it was meant. */
function isServer(text: string): boolean {
  if (/^rediss?:\/\/$/.test(text) || !URL.canParse(text)) return false;
  const { username, password, port, pathname, searchParams, search, hash } = new URL(text);
  // An @ behind the host, or a fragment, is of a password with a /, ? or #: the host is none then.
  const isWhole = hash === '' && !search.includes('@') && /^(\/\d{0,9})?$/.test(pathname);
  return isWhole && port !== '0' && isDb(searchParams.get('db')) && [username, password].every(isEncoded);
}

const defaultPort = { cluster: 6379, sentinel: 26_379 };

function parseMany(text: string): RedisUrl | undefined {
  // The last @ ends the account: one of a password's own need not be encoded.
  const parts = /^rediss?\+(cluster|sentinel):\/\/(?:(.*)@)?([^@/?#]+)(?:\/([^/?#]*))?$/s.exec(text);
  if (!parts) return undefined;
  const kind = parts[1] as 'cluster' | 'sentinel';
  const [, , credentials = '', hosts, path = ''] = parts;
  const nodes = hosts!.split(',').map((host) => parseAddress(host, defaultPort[kind]));
  const account = parseAccount(credentials);
  if (!account || !nodes.every((node) => node !== undefined)) return undefined;
  if (kind === 'sentinel') return { kind, nodes, account, master: path || 'mymaster' };
  return path === '' ? { kind, nodes, account } : undefined;
}

function parseAddress(text: string, otherwise: number): Address | undefined {
  // An IPv6 address stands in brackets, which are the URL's.
  const [, address, name, digits] = /^(?:\[([^[\]\s]+)\]|([^:[\]\s]+))(?::(\d{1,5}))?$/.exec(text) ?? [];
  const host = address ?? name;
  const port = Number(digits ?? otherwise);
  return host !== undefined && port >= 1 && port <= 65_535 ? { host, port } : undefined;
}

function parseAccount(text: string): Account | undefined {
  const [, username, password] = /^([^:]*):?(.*)$/s.exec(text)!;
  if (!isEncoded(username!) || !isEncoded(password!)) return undefined;
  return {
    ...(username && { username: decodeURIComponent(username) }),
    ...(password && { password: decodeURIComponent(password) }),
  };
}

function isEncoded(text: string): boolean {
  try {
    decodeURIComponent(text);
    return true;
  } catch {
    return false;
  }
}
