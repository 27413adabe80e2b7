/**
 * Every setting: variable, default, meaning. The only reader of process.env. A setting that contains a secret can also
 * be given as a file, by the variable with `_FILE` (Docker and Kubernetes mount secrets as files). A test compares the
 * documented table of settings with `settings`, so no setting stays undocumented.
 */

import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { leaseMsMax } from './domain/leaseTerms.ts';
import { parseRedisUrl } from './domain/redisUrl.ts';
import { valueIn, withoutMark } from './domain/text.ts';
import { dayMs } from './domain/time.ts';

type Environment = Record<string, string | undefined>;

/**
 * A kind of value. `accepts` follows "must be" in errors. `parse` returns undefined for a value that is not accepted.
 */
interface Kind<T> {
  accepts: string;
  parse(text: string): T | undefined;
  /** The value is never printed. */
  secret?: true;
  /** The value may be read from the file of the variable with `_FILE`. */
  mayBeFile?: true;
  /** Blanks at its ends are a part of the value. */
  hasBlanks?: true;
}

const wholeNumber = (min: number, max: number): Kind<number> => ({
  accepts: `a whole number from ${min} to ${max}`,
  parse: (text) => (/^\d{1,15}$/.test(text) && Number(text) >= min && Number(text) <= max ? Number(text) : undefined),
});

const oneOf = <const Word extends string>(...words: Word[]): Kind<Word> => ({
  accepts: `one of ${words.join(', ')}`,
  parse: (text) => words.find((word) => word === text),
});

const portOrNone: Kind<number | ''> = {
  accepts: 'a whole number from 0 to 65535, or empty',
  parse: (text) => (text === '' ? text : wholeNumber(0, 65_535).parse(text)),
};

/** Brackets of an IPv6 address are those of URLs. */
const hostName: Kind<string> = {
  accepts: 'an address or a host name',
  parse: (text) => text.replace(/^\[(.*)\]$/, '$1') || undefined,
};

/** Tollgate's folder, from src/ and from dist/. */
const root = fileURLToPath(new URL('..', import.meta.url));

/**
 * A relative path must not depend on the folder that a command is run in: server and command line would use other data.
 */
const directory: Kind<string> = {
  accepts: 'a directory, written out: ~ and $ are not expanded',
  parse: (text) => (/^~|\$/.test(text) ? undefined : resolve(root, text)),
};

const anyPath: Kind<string> = { accepts: 'a path, or empty', parse: (text) => text };

const oneOrZero: Kind<boolean> = {
  accepts: '1 or 0',
  parse: (text) => (text === '1' ? true : text === '0' ? false : undefined),
};

const passphrase: Kind<string> = {
  accepts: 'a string',
  parse: (text) => text,
  secret: true,
  mayBeFile: true,
  hasBlanks: true,
};

const redisUrl: Kind<string> = {
  accepts:
    'redis://…, rediss://…, unix:/an/absolute/path, redis+cluster://host:port,…, redis+sentinel://host:port,…/master, or empty; ' +
    'with a port from 1 to 65535 and a numeric database. In a user or password, every character other than letters, digits and -._~ ' +
    'must be percent-encoded: @ as %40, : as %3A, / as %2F, ? as %3F, # as %23, % as %25',
  parse: (text) => (text === '' || parseRedisUrl(text) ? text : undefined),
  mayBeFile: true,
};

const rootKey: Kind<string> = {
  accepts: 'a root key, root_…, or empty',
  parse: (text) => (/^(root_[0-9A-Za-z]+_[0-9A-Za-z]+)?$/.test(text) ? text : undefined),
  secret: true,
  mayBeFile: true,
};

const headerName: Kind<string> = {
  accepts: 'the name of a header other than X-Tollgate-…',
  parse: (text) => (/^(?!x-tollgate-)[\w-]{1,100}$/i.test(text) ? text : undefined),
};

const headerNameOrNone: Kind<string> = {
  accepts: `${headerName.accepts}, or empty`,
  parse: (text) => (text === '' ? text : headerName.parse(text)),
};

const membersMax = 20;
const members: Kind<readonly string[]> = {
  accepts: `at most ${membersMax} different comma-separated names of letters, digits, - and _`,
  parse(text) {
    const names = text === '' ? [] : text.split(',').map((name) => name.trim());
    // Names of headers ignore case, and `_` becomes `-`.
    const different = new Set(names.map((name) => name.toLowerCase().replaceAll('_', '-')));
    const isGood = names.every((name) => /^[\w-]{1,64}$/.test(name)) && different.size === names.length;
    return isGood && names.length <= membersMax ? names : undefined;
  },
};

/** The default is written as in the environment, and parsed like any other value. */
const setting = <T>(variable: string, fallback: string, kind: Kind<T>, meaning: string) => ({
  variable,
  default: fallback,
  meaning,
  ...kind,
});

// One setting per line reads better than the formatter's six.
// biome-ignore format: a table
const table = {
  host: setting('HOST', '127.0.0.1', hostName, 'Address to listen on. `0.0.0.0` means every IPv4 address of the machine.'),
  port: setting('PORT', '8080', wholeNumber(0, 65_535), 'Port to listen on. 0 lets the system choose one. The address is printed at start.'),
  tlsCertFile: setting('TLS_CERT_FILE', '', anyPath, 'PEM file of the TLS certificate, followed by its intermediate certificates. With it, `PORT` accepts HTTPS only; `METRICS_PORT` stays plain HTTP. Read at start and on SIGHUP, as the key.'),
  tlsKeyFile: setting('TLS_KEY_FILE', '', anyPath, 'PEM file of the private key of the certificate.'),
  tlsKeyPassphrase: setting('TLS_KEY_PASSPHRASE', '', passphrase, 'Passphrase of the private key, if it is encrypted.'),
  hstsMaxAge: setting('HSTS_MAX_AGE', '31536000', wholeNumber(0, 63_072_000), 'Seconds for which a browser that has opened a page over `TLS_CERT_FILE` uses only HTTPS for this host name, with any port (`Strict-Transport-Security` in the console, the API reference and their files; not in `/v2`). 0 makes browsers forget it, which is needed before the host is served without HTTPS again.'),
  workers: setting('WORKERS', '1', wholeNumber(1, 64), 'Number of serving processes on the port. A process that ends is restarted.'),
  metricsHost: setting('METRICS_HOST', '127.0.0.1', hostName, 'Address to listen on for `METRICS_PORT`.'),
  metricsPort: setting('METRICS_PORT', '', portOrNone, 'Separate port for `/metrics`. If empty, `/metrics` is served on `PORT` if `HOST` is a loopback address (`127.0.0.1`, `::1` or `localhost`), otherwise nowhere. Set it behind a proxy.'),
  drainMs: setting('DRAIN_MS', '0', wholeNumber(0, 600_000), 'How long the server keeps serving after SIGTERM while `/health/ready` returns 503, so that load balancers stop sending requests.'),
  redisUrl: setting('REDIS_URL', '', redisUrl, 'Redis to connect to: `redis://…`, `rediss://…`, `unix:/path`, `redis+cluster://host:port,…` or `redis+sentinel://host:port,…/master` (`/master` defaults to `/mymaster`). If empty, Tollgate runs its own Redis in `TOLLGATE_DATA_DIR`.'),
  redisCaFile: setting('REDIS_CA_FILE', '', anyPath, 'PEM file of the certificates to trust for TLS to Redis. If empty, those of the system: of `SSL_CERT_FILE`, of the usual place (such as `/etc/ssl/certs/ca-certificates.crt`), or of Node where the system has none. Read at start and on SIGHUP.'),
  dataDir: setting('TOLLGATE_DATA_DIR', './data', directory, 'Data directory of the embedded Redis. A relative path is relative to Tollgate\'s folder. With `REDIS_URL` it has only the [pins](../SECURITY.md#dependencies) of uWebSockets.js, on systems without one in the repository.'),
  durable: setting('TOLLGATE_DURABLE', '0', oneOrZero, '1 acknowledges a change (keys, root keys, credits set by hand, …) only after Redis has written it to disk. Verifications do not wait for that, but `appendfsync always` slows them down. Requires Redis 7.2 or Valkey 8 with `appendfsync always`, and no Cluster; otherwise Tollgate does not start.'),
  redisTimeoutMs: setting('REDIS_TIMEOUT_MS', '1000', wholeNumber(10, 60_000), 'Time to wait for a reply from Redis before responding with 503.'),
  inFlightMax: setting('IN_FLIGHT_MAX', '4096', wholeNumber(1, 1_000_000), 'Verifications and limit checks that may wait for Redis concurrently, per process. The same number applies to management requests, and again to callers whose root key was not accepted recently. Beyond it, verifications, limit checks and gateway checks get 503 immediately, all others 429.'),
  console: setting('CONSOLE', '1', oneOrZero, '1 serves the console at `/console`. It is a client of `/v2`, which has no data without a root key.'),
  leaseMs: setting('LEASE_MS', '100', wholeNumber(0, leaseMsMax), 'How long this server may repeat a decision without asking Redis, in milliseconds; the time of a round trip is added, see [leases](leases.md). 0 asks Redis each time. Set the same value on all servers of a Redis.'),
  leaseLongMs: setting('LEASE_LONG_MS', '1000', wholeNumber(0, leaseMsMax), 'The same in place of `LEASE_MS` for a decision that charges nothing, such as that of a key without limits, and for a limit or a balance with much room, so that a server also decides keys that are verified a few times a second. A change waits for at most this long, and a round trip, if a server does not respond. Values below `LEASE_MS` are raised to it. Set the same value on all servers of a Redis.'),
  leaseCredits: setting('LEASE_CREDITS', '0', oneOrZero, '1 lets a server take credits of keys in advance for local decisions. Credits that it has not given back are lost if it is killed. Credits of identities are never taken in advance.'),
  manageAtOnce: setting('MANAGE_AT_ONCE', '8', wholeNumber(1, 1_000_000), 'Management requests of a workspace that run concurrently, per process, so that one workspace cannot slow down all others. A quarter of it applies to requests with bodies of 32 KB or more, and to lists, searches and analytics. Further ones wait for at most 7 s; then they get 429.'),
  headersBytesMax: setting('HEADERS_LIMIT_BYTES', '16384', wholeNumber(4_096, 65_536), 'Maximum size of the headers of a request. Larger ones are rejected with 431. Cookies of a single-sign-on proxy and headers for tracing may need more than 4096. A connection whose headers have arrived in part takes up to twice as much memory, for 12 seconds at most.'),
  bodyBytesMax: setting('BODY_LIMIT_BYTES', '1048576', wholeNumber(1_024, 67_108_864), 'Maximum size of a request body. A larger one is rejected with 413.'),
  metaBytesMax: setting('META_LIMIT_BYTES', '10240', wholeNumber(64, 65_536), 'Maximum size of the `meta` of a key or an identity, as JSON; at most 65536. Every response of `keys.verifyKey` returns it, except for `NOT_FOUND`: [its cost](moving.md#settings-for-the-move).'),
  errorTypes: setting('ERROR_TYPES', 'tollgate', oneOf('tollgate', 'unkey'), '`unkey` gives errors of `/v2` the `type` and `title` that Unkey has for them, for programs that compare these; see [moving.md](moving.md#settings-for-the-move).'),
  migrate: setting('MIGRATE', 'auto', oneOf('auto', 'manual'), '`manual` leaves stored data as it is until `tollgate migrate` runs, so that the previous release can still be started. Set it on all servers of a Redis; see [Upgrades](upgrade.md).'),
  keyRetentionDays: setting('KEY_RETENTION_DAYS', '30', wholeNumber(0, 3_650), 'Time before a deleted key, API or identity is purged. Until then it can be restored with everything that belongs to it, by `keys.restoreKey`, `apis.restoreApi` or `identities.restoreIdentity`. 0 purges it immediately.'),
  clientAddressHeader: setting('CLIENT_ADDRESS_HEADER', '', headerNameOrNone, 'Header with the address of the caller for audit events, such as `X-Forwarded-For`; the last address in it counts. Set it only behind a proxy that sets or appends to this header. If empty, the address of the connection.'),
  auditEventsMax: setting('AUDIT_EVENTS_MAX', '100000', wholeNumber(0, 100_000_000), 'Audit events kept per workspace. The oldest are removed first.'),
  usageRetentionDays: setting('USAGE_RETENTION_DAYS', '90', wholeNumber(1, 3_650), 'Time that usage counts are kept.'),
  usageHourlyDays: setting('USAGE_HOURLY_DAYS', '7', wholeNumber(1, 3_650), 'Days before today of which the usage counts of keys, identities, tags and identifiers are kept by hour. Earlier days are kept as one sum each. Counts of APIs and namespaces are always kept by hour.'),
  tagsMax: setting('TAGS_MAX', '1000', wholeNumber(0, 1_000_000), 'Number of different tags that are counted per API. Further tags are not counted.'),
  tagBytesMax: setting('TAG_BYTES_MAX', '67108864', wholeNumber(0, 1_000_000_000_000), 'Approximate memory in Redis for the counts by tag of an API, per day. Beyond it, only combinations of key and tag that were already counted in the same hour are counted by tag.'),
  identifiersMax: setting('IDENTIFIERS_MAX', '100000', wholeNumber(0, 1_000_000_000), 'Number of identifiers whose limit checks are counted individually per namespace and day. Further identifiers count for the namespace only, and are limited like all others.'),
  refusalHours: setting('REFUSAL_HOURS', '24', wholeNumber(1, 744), 'Hours that the rows of recent refusals are kept (`refusals`, `analytics.listRefusals`). At most 24 times `USAGE_HOURLY_DAYS` and `USAGE_RETENTION_DAYS`, because the counts of these hours include what has no row. A workspace stores at most about `REFUSAL_HOURS` times `REFUSAL_BYTES_MAX` of them, by default 48 MB (72 MB with what Redis reserves).'),
  refusalBytesMax: setting('REFUSAL_BYTES_MAX', '2097152', wholeNumber(65_536, 67_108_864), 'Bytes of the rows of refusals of a workspace in an hour; 2 MB are about 20 000 rows. Beyond it refusals have no row. They are counted, and each list of refusals states their number.'),
  recordsMax: setting('RECORDS_MAX', '10000000', wholeNumber(0, 1_000_000_000), 'Maximum number of records per workspace: APIs and keys (including deleted ones until they are purged), identities, namespaces, overrides, permissions, roles, plans and root keys. A call that would exceed it is rejected with 403 `too_many_records`. 0 means no maximum.'),
  firstRootKey: setting('FIRST_ROOT_KEY', 'print', oneOf('print', 'none'), '`print` creates a workspace in an empty Redis and prints its root key. `none` leaves both to the command line; use it where standard output is logged.'),
  logLevel: setting('LOG_LEVEL', 'info', oneOf('fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'), 'Lowest level that is logged: `fatal`, `error`, `warn`, `info`, `debug`, `trace`, or `silent` for none.'),
  gatewayKeyHeader: setting('GATEWAY_KEY_HEADER', 'Authorization', headerName, 'Header from which the gateway check reads the key: after `Bearer` if it is `Authorization`, else its whole value.'),
  gatewayIpHeader: setting('GATEWAY_IP_HEADER', '', headerNameOrNone, 'Header from which the gateway check and `GET /v2/me` read the address of the end user, for keys with `allowedIps`, such as `X-Real-IP`; of several addresses the last one counts. The gateway must set it or append to it: otherwise the end user chooses the address. If empty, keys with `allowedIps` are refused.'),
  gatewayRootKey: setting('GATEWAY_ROOT_KEY', '', rootKey, 'Root key of the gateway check. If set, every client that reaches the port can check keys. If empty, each check must send one in `X-Tollgate-Root-Key`.'),
  gatewayMeta: setting('GATEWAY_META', '', members, 'Members of a key\'s `meta` that the gateway check returns as headers, such as `plan,region`.'),
  sweepIntervalMs: setting('SWEEP_INTERVAL_MS', '1000', wholeNumber(10, 3_600_000), 'Interval at which due refills, purges, expired holds and ended overrides are processed. It does not affect the accuracy of refills.'),
};

type AnySetting = Kind<unknown> & { variable: string; default: string; meaning: string };

const fileOf = (variable: string) => `${variable}_FILE`;
const fileMeaning = (variable: string) =>
  `File that contains \`${variable}\`, for example a mounted secret. Blanks and line ends around it are ignored. Not together with \`${variable}\`.`;

export type Config = { [Name in keyof typeof table]: NonNullable<ReturnType<(typeof table)[Name]['parse']>> };

/** For the documented table and its test. */
export const settings = Object.values(table).flatMap(
  ({ variable, default: fallback, meaning, ...kind }: AnySetting) => {
    const own = { variable, default: fallback, meaning };
    return kind.mayBeFile ? [own, { variable: fileOf(variable), default: '', meaning: fileMeaning(variable) }] : [own];
  },
);

/**
 * Keeps a password in a mistyped URL out of the terminal and the log. The password may be anywhere before the last @,
 * or in the query. Before the @, only a known scheme is printed, because it cannot be a part of the password.
 */
export const withoutCredentials = (text: string) =>
  text.replace(/^((?:https?|rediss?(?:\+(?:cluster|sentinel))?):\/\/)?.*@/s, '$1…@').replace(/\?.*/s, '?…');

/**
 * The environment of a worker process. Settings are not passed as arguments, because every user of the machine can read
 * these, and REDIS_URL may have a password.
 */
export const environmentWith = ({ redisUrl, port }: { redisUrl: string; port: number }): NodeJS.ProcessEnv => ({
  ...process.env,
  REDIS_URL: redisUrl,
  REDIS_URL_FILE: '',
  PORT: String(port),
});

function read(setting: AnySetting, env: Environment) {
  const { variable, default: fallback, accepts, parse, secret, mayBeFile } = setting;
  const file = mayBeFile && valueIn(env[fileOf(variable)] ?? '');
  const text = file ? readSecret(setting, file, env) : valueFor(env[variable] ?? '', setting) || fallback;
  const value = parse(text);
  if (value !== undefined) return value;
  if (file) throw new Error(`${fileOf(variable)}=${file}: the content must be ${accepts}`);
  throw new Error(`${variable}=${secret ? '…' : printed(withoutCredentials(text))} must be ${accepts}`);
}

const valueFor = (text: string, { hasBlanks }: AnySetting): string =>
  hasBlanks ? withoutMark(text).replace(/\r?\n$/, '') : valueIn(text);

/** Without characters that are not visible or move the cursor. */
const printed = (text: string): string => (/[^ -~…]/.test(text) ? JSON.stringify(text) : text);

function readSecret(setting: AnySetting, file: string, env: Environment): string {
  const { variable } = setting;
  const name = fileOf(variable);
  if (env[variable]) throw new Error(`${variable} and ${name} must not be set together`);
  let text: string;
  try {
    text = valueFor(readFileSync(file, 'utf8'), setting);
  } catch (cause) {
    throw new Error(`${name}=${file} cannot be read: ${(cause as Error).message}`, { cause });
  }
  // Without REDIS_URL another Redis would be used, so an empty file must not count as unset.
  if (text === '') throw new Error(`${name}=${file}: the file is empty`);
  return text;
}

/** An empty variable counts as unset. Throws one Error that names every variable whose value is not accepted. */
export function loadConfig(env: Environment = process.env): Config {
  const config: Record<string, unknown> = {};
  const wrong: string[] = [];
  for (const [name, setting] of Object.entries<AnySetting>(table)) {
    try {
      config[name] = read(setting, env);
    } catch (error) {
      wrong.push(`  ${(error as Error).message}`);
    }
  }
  if (Boolean(config.tlsCertFile) !== Boolean(config.tlsKeyFile)) {
    wrong.push('  TLS_CERT_FILE and TLS_KEY_FILE must be set together, or neither');
  }
  const { host, port, metricsHost, metricsPort } = config;
  if (port && port === metricsPort && host === metricsHost) {
    wrong.push(`  METRICS_PORT and PORT must differ on one address: both are ${port}`);
  }
  const { refusalHours, usageHourlyDays, usageRetentionDays } = config as unknown as Config;
  if (refusalHours > 24 * Math.min(usageHourlyDays, usageRetentionDays)) {
    wrong.push('  REFUSAL_HOURS must be at most 24 times USAGE_HOURLY_DAYS, and 24 times USAGE_RETENTION_DAYS');
  }
  if (wrong.length > 0) throw new Error(`Invalid settings:\n${wrong.join('\n')}`);
  return config as Config;
}

/** Whether only this machine can reach PORT. */
export const isLocal = ({ host }: Config): boolean => /^(127\.[\d.]+|::1|localhost)$/.test(host);

/** Whether `/metrics` is served on PORT: only if no other machine can reach it. */
export const sharesMetrics = (config: Config): boolean => config.metricsPort === '' && isLocal(config);

/**
 * Sets the limit of uWebSockets.js for headers, which it reads when it is loaded. Larger headers get a page of
 * uWebSockets.js in place of an error of Tollgate, so its limit is twice that of Tollgate.
 */
export function allowHeaders({ headersBytesMax }: Config): void {
  process.env.UWS_HTTP_MAX_HEADERS_SIZE = String(2 * headersBytesMax);
}

/** Undefined for HTTP without TLS. */
export const tlsSettings = ({ tlsCertFile, tlsKeyFile, tlsKeyPassphrase }: Config) =>
  tlsCertFile === '' ? undefined : { certFile: tlsCertFile, keyFile: tlsKeyFile, passphrase: tlsKeyPassphrase };

/** The settings of the store, for the server and the command line: some have another name or unit there. */
export const storeSettings = (config: Config) => ({
  ...config,
  commandTimeoutMs: config.redisTimeoutMs,
  caFile: config.redisCaFile || undefined,
  systemCaFile: valueIn(process.env.SSL_CERT_FILE ?? '') || undefined,
  extraCaFile: valueIn(process.env.NODE_EXTRA_CA_CERTS ?? '') || undefined,
  keyRetentionMs: config.keyRetentionDays * dayMs,
  usageRetentionMs: config.usageRetentionDays * dayMs,
});
