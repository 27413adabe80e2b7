/**
 * Every setting: variable, default, meaning. The only reader of process.env. README's table of settings is tested
 * against `settings`, so a setting cannot be added without a word about it.
 */

/** A kind of value: what is accepted, to follow "must be", and its reader, which answers undefined to anything else. */
interface Kind<T> {
  accepts: string;
  parse(text: string): T | undefined;
}

const wholeNumber = (min: number, max: number): Kind<number> => ({
  accepts: `a whole number from ${min} to ${max}`,
  parse: (text) => (/^\d{1,15}$/.test(text) && Number(text) >= min && Number(text) <= max ? Number(text) : undefined),
});

const oneOf = <const Word extends string>(...words: Word[]): Kind<Word> => ({
  accepts: `one of ${words.join(', ')}`,
  parse: (text) => words.find((word) => word === text),
});

const anyText = (accepts: string): Kind<string> => ({ accepts, parse: (text) => text.trim() || undefined });

const anyPath: Kind<string> = { accepts: 'a path, or empty', parse: (text) => text };

const anySecret: Kind<string> = { accepts: 'a text', parse: (text) => text };

const redisUrl: Kind<string> = {
  accepts:
    'redis://…, rediss://…, unix:/an/absolute/path, redis+cluster://host:port,…, redis+sentinel://host:port,…/master, or empty',
  parse: (text) =>
    text === '' ||
    /^unix:\/[^/]/.test(text) ||
    /^rediss?\+(cluster|sentinel):\/\/[^/]/.test(text) ||
    (/^rediss?:\/\/./.test(text) && URL.canParse(text))
      ? text
      : undefined,
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
  redisUrl: setting('REDIS_URL', '', redisUrl, 'The Redis to use: `redis://…`, `rediss://…`, `unix:/path`, `redis+cluster://host:port,…` or `redis+sentinel://host:port,…/master`. Empty: Tollgate runs its own under `TOLLGATE_DATA_DIR`.'),
  redisCaFile: setting('REDIS_CA_FILE', '', anyPath, 'Certificates to trust when Redis is reached with TLS, as a PEM file. Empty: those of the system.'),
  dataDir: setting('TOLLGATE_DATA_DIR', './data', anyText('a directory'), 'Where its own Redis keeps its data. Not used with `REDIS_URL`.'),
  redisTimeoutMs: setting('REDIS_TIMEOUT_MS', '1000', wholeNumber(10, 60_000), 'How long Redis may take to answer before the caller gets a 503.'),
  inFlightMax: setting('IN_FLIGHT_MAX', '4096', wholeNumber(1, 1_000_000), 'Verifications and limit checks that may wait for Redis at once, in each process. What comes beyond is answered 503 at once.'),
  bodyBytesMax: setting('BODY_LIMIT_BYTES', '1048576', wholeNumber(1_024, 67_108_864), 'The longest request body accepted; a longer one is refused with 413.'),
  metaBytesMax: setting('META_LIMIT_BYTES', '10240', wholeNumber(64, 1_048_576), 'The longest `meta` of a key or an identity, as JSON text.'),
  keyRetentionDays: setting('KEY_RETENTION_DAYS', '30', wholeNumber(0, 3_650), 'How long a deleted key is kept before it is purged.'),
  auditEventsMax: setting('AUDIT_EVENTS_MAX', '100000', wholeNumber(0, 100_000_000), 'Audit events kept for each workspace; the oldest go first.'),
  usageRetentionDays: setting('USAGE_RETENTION_DAYS', '90', wholeNumber(1, 3_650), 'How long usage counts are kept.'),
  tagsMax: setting('TAGS_MAX', '1000', wholeNumber(0, 1_000_000), 'How many different tags of verifications an API counts; later ones are not counted.'),
  logLevel: setting('LOG_LEVEL', 'info', oneOf('fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'), 'The least serious message logged: `fatal`, `error`, `warn`, `info`, `debug`, `trace`; `silent` for none.'),
  sweepIntervalMs: setting('SWEEP_INTERVAL_MS', '1000', wholeNumber(10, 3_600_000), 'How often due refills and purges are looked for. Refills are exact whatever it is.'),
};

export type Config = { [Name in keyof typeof table]: NonNullable<ReturnType<(typeof table)[Name]['parse']>> };

/** The table as data, for README and its test. */
export const settings = Object.values(table).map(({ variable, default: fallback, meaning }) => ({
  variable,
  default: fallback,
  meaning,
}));

/** A password in a mistyped URL must not reach the terminal or a log. */
const withoutCredentials = (text: string) => text.replace(/\/\/.*@/, '//…@');

/** An empty variable counts as unset. Throws one Error that names every variable whose value is not accepted. */
export function loadConfig(env: Record<string, string | undefined> = process.env): Config {
  const config: Record<string, unknown> = {};
  const wrong: string[] = [];
  for (const [name, { variable, default: fallback, accepts, parse }] of Object.entries(table)) {
    const text = env[variable] || fallback;
    config[name] = parse(text);
    if (config[name] === undefined) wrong.push(`  ${variable}=${withoutCredentials(text)} must be ${accepts}`);
  }
  if (Boolean(config.tlsCertFile) !== Boolean(config.tlsKeyFile)) {
    wrong.push('  TLS_CERT_FILE and TLS_KEY_FILE must be set together, or neither');
  }
  if (wrong.length > 0) throw new Error(`Some settings are not accepted:\n${wrong.join('\n')}`);
  return config as Config;
}

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
  inFlightMax: config.inFlightMax,
});
