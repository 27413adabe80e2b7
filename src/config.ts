/**
 * Every setting: variable, default, meaning. The only reader of process.env. The table in docs/settings.md is
 * generated from `settings`; a test fails when they differ.
 */

import { parseRedisUrl } from './domain/redisUrl.ts';

/** A kind of value: what is accepted, to follow "must be", and its reader, which answers undefined to anything else. */
interface Kind<T> {
  accepts: string;
  parse(text: string): T | undefined;
  /** Its value is shown to nobody. */
  secret?: true;
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

const anyText = (accepts: string): Kind<string> => ({ accepts, parse: (text) => text.trim() || undefined });

const anyPath: Kind<string> = { accepts: 'a path, or empty', parse: (text) => text };

const oneOrZero: Kind<boolean> = {
  accepts: '1 or 0',
  parse: (text) => (text === '1' ? true : text === '0' ? false : undefined),
};

const anySecret: Kind<string> = { accepts: 'a text', parse: (text) => text, secret: true };

const redisUrl: Kind<string> = {
  accepts:
    'redis://…, rediss://…, unix:/an/absolute/path, redis+cluster://host:port,…, redis+sentinel://host:port,…/master, or empty; ' +
    'a port is 1 to 65535, a database a number, and a % in a password %25',
  parse: (text) => (text === '' || parseRedisUrl(text) ? text : undefined),
};

const rootKey: Kind<string> = {
  accepts: 'a root key, root_…, or empty',
  parse: (text) => (/^(root_[0-9A-Za-z]+_[0-9A-Za-z]+)?$/.test(text.trim()) ? text.trim() : undefined),
  secret: true,
};

const headerName: Kind<string> = {
  accepts: 'the name of a header other than X-Tollgate-…',
  parse: (text) => (/^(?!x-tollgate-)[\w-]{1,100}$/i.test(text) ? text : undefined),
};

const membersMax = 20;
const members: Kind<readonly string[]> = {
  accepts: `at most ${membersMax} different names of letters, digits, - and _, with commas between`,
  parse(text) {
    const names = text === '' ? [] : text.split(',').map((name) => name.trim());
    // As headers they differ neither in case nor in - and _.
    const different = new Set(names.map((name) => name.toLowerCase().replaceAll('_', '-')));
    const isGood = names.every((name) => /^[\w-]{1,64}$/.test(name)) && different.size === names.length;
    return isGood && names.length <= membersMax ? names : undefined;
  },
};

/** The default is written as one would in the environment, and read like any other value. */
const setting = <T>(variable: string, fallback: string, kind: Kind<T>, meaning: string) => ({
  variable,
  default: fallback,
  meaning,
  ...kind,
});

// One setting a line reads better than the formatter's six.
// biome-ignore format: a table
const table = {
  host: setting('HOST', '127.0.0.1', anyText('an address or a host name'), 'Address to listen on. `0.0.0.0` is every IPv4 address of the machine.'),
  port: setting('PORT', '8080', wholeNumber(0, 65_535), 'Port to listen on. 0 lets the system choose; the address is printed at start.'),
  tlsCertFile: setting('TLS_CERT_FILE', '', anyPath, 'The certificate to show, followed by those between it and its root, as a PEM file. With it the server speaks HTTPS and nothing else. Read at the start.'),
  tlsKeyFile: setting('TLS_KEY_FILE', '', anyPath, 'The private key of that certificate, as a PEM file.'),
  tlsKeyPassphrase: setting('TLS_KEY_PASSPHRASE', '', anySecret, 'What the private key is encrypted with, if it is.'),
  workers: setting('WORKERS', '1', wholeNumber(1, 64), 'Processes that serve, on one port. One that dies is started again.'),
  metricsHost: setting('METRICS_HOST', '127.0.0.1', anyText('an address or a host name'), 'Address to listen on for `METRICS_PORT`.'),
  metricsPort: setting('METRICS_PORT', '', portOrNone, 'A port for `/metrics` alone. Empty: it is on `PORT`, but only while `HOST` is this machine (`127.0.0.1`, `::1` or `localhost`); otherwise nowhere. Set it behind a proxy.'),
  drainMs: setting('DRAIN_MS', '0', wholeNumber(0, 600_000), 'How long it serves on after SIGTERM, while `/health/ready` answers 503, for load balancers to turn away.'),
  redisUrl: setting('REDIS_URL', '', redisUrl, 'The Redis to use: `redis://…`, `rediss://…`, `unix:/path`, `redis+cluster://host:port,…` or `redis+sentinel://host:port,…/master` (without `/master` that is `mymaster`). Empty: Tollgate runs its own under `TOLLGATE_DATA_DIR`.'),
  redisCaFile: setting('REDIS_CA_FILE', '', anyPath, 'Certificates to trust when Redis is reached with TLS, as a PEM file. Empty: those of the system.'),
  dataDir: setting('TOLLGATE_DATA_DIR', './data', anyText('a directory'), 'Where its own Redis keeps its data. Not used with `REDIS_URL`.'),
  durable: setting('TOLLGATE_DURABLE', '0', oneOrZero, '1 answers a change (keys, root keys, credits set by hand, …) only when it is on the disk of Redis. Verification never waits. Needs Redis 7.2 or Valkey 8 with `appendfsync always`, and no Cluster; otherwise Tollgate does not start.'),
  redisTimeoutMs: setting('REDIS_TIMEOUT_MS', '1000', wholeNumber(10, 60_000), 'How long Redis may take to answer before the caller gets a 503.'),
  inFlightMax: setting('IN_FLIGHT_MAX', '4096', wholeNumber(1, 1_000_000), 'Verifications and limit checks that may wait for Redis at once, in each process, and as many management requests; as many again of callers whose root key was not accepted recently. What comes beyond is answered 503 at once.'),
  manageAtOnce: setting('MANAGE_AT_ONCE', '8', wholeNumber(1, 1_000_000), 'Management requests of a workspace that are worked at once, in each process; a quarter as many requests with bodies of 32 KB and more, and of analytics, of which 16 times as many may wait. More wait their turn for at most `REDIS_TIMEOUT_MS`, for analytics ten times that, so that one workspace cannot slow all others.'),
  bodyBytesMax: setting('BODY_LIMIT_BYTES', '1048576', wholeNumber(1_024, 67_108_864), 'The longest request body accepted; a longer one is refused with 413.'),
  metaBytesMax: setting('META_LIMIT_BYTES', '10240', wholeNumber(64, 1_048_576), 'The longest `meta` of a key or an identity, as JSON text.'),
  keyRetentionDays: setting('KEY_RETENTION_DAYS', '30', wholeNumber(0, 3_650), 'How long a deleted key is kept before it is purged.'),
  auditEventsMax: setting('AUDIT_EVENTS_MAX', '100000', wholeNumber(0, 100_000_000), 'Audit events kept for each workspace; the oldest go first.'),
  usageRetentionDays: setting('USAGE_RETENTION_DAYS', '90', wholeNumber(1, 3_650), 'How long usage counts are kept.'),
  tagsMax: setting('TAGS_MAX', '1000', wholeNumber(0, 1_000_000), 'How many different tags of verifications an API counts; later ones are not counted.'),
  tagBytesMax: setting('TAG_BYTES_MAX', '67108864', wholeNumber(0, 1_000_000_000_000), 'How many bytes of Redis the counts by tag of an API may take a day, about. Beyond it only keys and tags that were counted in the same hour are counted by tag.'),
  identifiersMax: setting('IDENTIFIERS_MAX', '100000', wholeNumber(0, 1_000_000_000), 'How many identifiers of limit checks a namespace counts by themselves a day. Later ones are counted for the namespace only, and limited like all others.'),
  recordsMax: setting('RECORDS_MAX', '10000000', wholeNumber(0, 1_000_000_000), 'Records of a workspace at most: APIs, keys (deleted ones as long as they are kept), identities, namespaces, overrides, permissions, roles and root keys. A call that would make more is refused with 403 `too_many_records`. 0 is no bound.'),
  firstRootKey: setting('FIRST_ROOT_KEY', 'print', oneOf('print', 'none'), 'In an empty Redis, make a workspace and print its root key (`print`), or leave both to the command line (`none`), as where standard output is kept in a log.'),
  logLevel: setting('LOG_LEVEL', 'info', oneOf('fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'), 'The least serious message logged: `fatal`, `error`, `warn`, `info`, `debug`, `trace`; `silent` for none.'),
  gatewayKeyHeader: setting('GATEWAY_KEY_HEADER', 'Authorization', headerName, 'The header in which the gateway check finds the key: after `Bearer` where it is `Authorization`, else the whole of it.'),
  gatewayRootKey: setting('GATEWAY_ROOT_KEY', '', rootKey, 'The root key of the gateway check. With it, whoever reaches the port can check keys. Empty: each check brings one in `X-Tollgate-Root-Key`.'),
  gatewayMeta: setting('GATEWAY_META', '', members, 'Members of a key\'s `meta` that the gateway check answers as headers, such as `plan,region`.'),
  sweepIntervalMs: setting('SWEEP_INTERVAL_MS', '1000', wholeNumber(10, 3_600_000), 'How often due refills and purges are looked for. Refills are exact whatever it is.'),
};

export type Config = { [Name in keyof typeof table]: NonNullable<ReturnType<(typeof table)[Name]['parse']>> };

/** The table as data, for docs/settings.md. */
export const settings = Object.values(table).map(({ variable, default: fallback, meaning }) => ({
  variable,
  default: fallback,
  meaning,
}));

/**
 * A password in a mistyped URL must not reach the terminal or a log: it may stand anywhere before the last @, and in a query.
 * Only a scheme that we know is not a part of it.
 */
const withoutCredentials = (text: string) =>
  text.replace(/^((?:https?|rediss?(?:\+(?:cluster|sentinel))?):\/\/)?.*@/s, '$1…@').replace(/\?.*/s, '?…');

/**
 * What a process of ours finds in its environment that is to use this Redis and this port. As arguments, everybody on the
 * machine could read the password of a REDIS_URL.
 */
export const environmentWith = ({ redisUrl, port }: { redisUrl: string; port: number }): NodeJS.ProcessEnv => ({
  ...process.env,
  REDIS_URL: redisUrl,
  PORT: String(port),
});

/** An empty variable counts as unset. Throws one Error that names every variable whose value is not accepted. */
export function loadConfig(env: Record<string, string | undefined> = process.env): Config {
  const config: Record<string, unknown> = {};
  const wrong: string[] = [];
  for (const [name, { variable, default: fallback, accepts, parse, secret }] of Object.entries(table)) {
    const text = env[variable] || fallback;
    config[name] = parse(text);
    if (config[name] === undefined) {
      wrong.push(`  ${variable}=${secret ? '…' : withoutCredentials(text)} must be ${accepts}`);
    }
  }
  if (Boolean(config.tlsCertFile) !== Boolean(config.tlsKeyFile)) {
    wrong.push('  TLS_CERT_FILE and TLS_KEY_FILE must be set together, or neither');
  }
  const { host, port, metricsHost, metricsPort } = config;
  if (port && port === metricsPort && host === metricsHost) {
    wrong.push(`  METRICS_PORT and PORT must differ on one address: both are ${port}`);
  }
  if (wrong.length > 0) throw new Error(`Some settings are not accepted:\n${wrong.join('\n')}`);
  return config as Config;
}

/** Whether `/metrics` is on the port that serves: not where others than this machine might read it. */
export const sharesMetrics = ({ metricsPort, host }: Config): boolean =>
  metricsPort === '' && /^(127\.[\d.]+|::1|localhost)$/.test(host);

/** What the server shows to its callers; undefined for HTTP without TLS. */
export const tlsSettings = ({ tlsCertFile, tlsKeyFile, tlsKeyPassphrase }: Config) =>
  tlsCertFile === '' ? undefined : { certFile: tlsCertFile, keyFile: tlsKeyFile, passphrase: tlsKeyPassphrase };

const dayMs = 86_400_000;

/** What the store is told, by the server and by the command line alike. */
export const storeSettings = (config: Config) => ({
  commandTimeoutMs: config.redisTimeoutMs,
  caFile: config.redisCaFile || undefined,
  keyRetentionMs: config.keyRetentionDays * dayMs,
  auditEventsMax: config.auditEventsMax,
  usageRetentionMs: config.usageRetentionDays * dayMs,
  tagsMax: config.tagsMax,
  tagBytesMax: config.tagBytesMax,
  identifiersMax: config.identifiersMax,
  recordsMax: config.recordsMax,
  inFlightMax: config.inFlightMax,
  durable: config.durable,
});
