/** Parses REDIS_URL for the settings and the store, so that both accept the same. */

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
 * Accepts `redis://…`, `rediss://…` and `unix:/path/to/socket`, optionally with `?db=n`;
 * `redis+cluster://a:6379,b:6379` with some nodes of a Cluster; and `redis+sentinel://a:26379,b:26379/mymaster` with
 * Sentinels and the name of the master. `rediss+` uses TLS. Returns undefined for anything ambiguous.
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

/** Whether ioredis reads the URL as intended. */
function isServer(text: string): boolean {
  if (/^rediss?:\/\/$/.test(text) || !URL.canParse(text)) return false;
  const { username, password, port, pathname, searchParams, search, hash } = new URL(text);
  // In a password, `/`, `?` and `#` must be encoded. If they are not, the URL has a wrong host, and an @ after it, or a
  // fragment.
  const isWhole = hash === '' && !search.includes('@') && /^(\/\d{0,9})?$/.test(pathname);
  return isWhole && port !== '0' && isDb(searchParams.get('db')) && [username, password].every(isEncoded);
}

const defaultPort = { cluster: 6379, sentinel: 26_379 };

function parseMany(text: string): RedisUrl | undefined {
  // The last @ is the end of user and password, so an @ in a password need not be encoded.
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

function parseAddress(text: string, portIfNone: number): Address | undefined {
  // An IPv6 address is in brackets, which are not part of it.
  const [, address, name, digits] = /^(?:\[([^[\]\s]+)\]|([^:[\]\s]+))(?::(\d{1,5}))?$/.exec(text) ?? [];
  const host = address ?? name;
  const port = Number(digits ?? portIfNone);
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
