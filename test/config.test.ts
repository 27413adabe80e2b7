import { writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, expect, test, vi } from 'vitest';
import { environmentWith, loadConfig, settings, sharesMetrics, storeSettings, tlsSettings } from '../src/config.ts';
import { dirOfFile, dirOfTest } from './support/ofFile.ts';

test('an empty environment gives the defaults', () => {
  expect(loadConfig({})).toEqual({
    host: '127.0.0.1',
    port: 8080,
    console: true,
    tlsCertFile: '',
    tlsKeyFile: '',
    tlsKeyPassphrase: '',
    hstsMaxAge: 31_536_000,
    workers: 1,
    metricsHost: '127.0.0.1',
    metricsPort: '',
    drainMs: 0,
    redisUrl: '',
    redisCaFile: '',
    dataDir: resolve('data'),
    durable: false,
    redisTimeoutMs: 1000,
    inFlightMax: 4096,
    leaseMs: 100,
    leaseLongMs: 1000,
    leaseCredits: false,
    manageAtOnce: 8,
    headersBytesMax: 16_384,
    bodyBytesMax: 1_048_576,
    metaBytesMax: 10_240,
    errorTypes: 'tollgate',
    migrate: 'auto',
    keyRetentionDays: 30,
    clientAddressHeader: '',
    auditEventsMax: 100_000,
    usageRetentionDays: 90,
    tagsMax: 1000,
    tagBytesMax: 67_108_864,
    usageHourlyDays: 7,
    identifiersMax: 100_000,
    refusalHours: 24,
    refusalBytesMax: 2_097_152,
    recordsMax: 10_000_000,
    firstRootKey: 'print',
    logLevel: 'info',
    gatewayKeyHeader: 'Authorization',
    gatewayIpHeader: '',
    gatewayRootKey: '',
    gatewayMeta: [],
    sweepIntervalMs: 1000,
  });
});

test('an empty variable counts as unset', () => {
  expect(loadConfig({ PORT: '', REDIS_URL: '' })).toEqual(loadConfig({}));
});

describe.each([
  ['PORT', '0', 'port', 0],
  ['PORT', '65535', 'port', 65_535],
  ['METRICS_PORT', '9464', 'metricsPort', 9464],
  ['REDIS_URL', 'redis://localhost:6379/2', 'redisUrl', 'redis://localhost:6379/2'],
  ['REDIS_URL', 'rediss://:secret@cache.example', 'redisUrl', 'rediss://:secret@cache.example'],
  ['REDIS_URL', 'unix:/run/redis.sock?db=3', 'redisUrl', 'unix:/run/redis.sock?db=3'],
  ['REDIS_URL', 'redis+cluster://a:7000,b:7001', 'redisUrl', 'redis+cluster://a:7000,b:7001'],
  ['REDIS_URL', 'rediss+sentinel://u:p@a,b:26380/main', 'redisUrl', 'rediss+sentinel://u:p@a,b:26380/main'],
  ['META_LIMIT_BYTES', '65536', 'metaBytesMax', 65_536],
  ['LOG_LEVEL', 'silent', 'logLevel', 'silent'],
  ['GATEWAY_ROOT_KEY', ' root_1pA5q5zuJi7UZPFd_abc\n', 'gatewayRootKey', 'root_1pA5q5zuJi7UZPFd_abc'],
] as const)('%s=%s', (variable, text, name, value) => {
  test('is accepted', () => expect(loadConfig({ [variable]: text })[name]).toBe(value));
});

test.each([
  ['PORT', '65536'],
  ['PORT', '-1'],
  ['PORT', '1e3'],
  ['METRICS_PORT', 'off'],
  ['METRICS_PORT', '65536'],
  ['REDIS_TIMEOUT_MS', '9'],
  ['META_LIMIT_BYTES', '65537'],
  ['REDIS_URL', 'localhost:6379'],
  ['REDIS_URL', 'unix:run/redis.sock'],
  ['REDIS_URL', 'redis://'],
  ['REDIS_URL', 'redis://cache:port'],
  ['LOG_LEVEL', 'loud'],
  ['GATEWAY_KEY_HEADER', 'X Api Key'],
  ['GATEWAY_KEY_HEADER', 'X-Tollgate-Cost'],
  ['GATEWAY_META', 'plan,,region'],
  ['GATEWAY_META', 'plan:x'],
  ['GATEWAY_META', 'plan,Plan'],
  ['GATEWAY_META', 'a_b,a-b'],
])('%s=%s is refused', (variable, text) => {
  expect(() => loadConfig({ [variable]: text })).toThrow(`${variable}=${text} must be `);
});

test.each(['TLS_CERT_FILE', 'TLS_KEY_FILE'])('%s alone is refused', (variable) => {
  expect(() => loadConfig({ [variable]: '/a.pem' })).toThrow('TLS_CERT_FILE and TLS_KEY_FILE must be set together');
});

test('REFUSAL_HOURS are hours whose counts are kept by hour', () => {
  const refused = '  REFUSAL_HOURS must be at most 24 times USAGE_HOURLY_DAYS, and 24 times USAGE_RETENTION_DAYS';
  expect(loadConfig({ REFUSAL_HOURS: '168' })).toMatchObject({ refusalHours: 168 });
  expect(() => loadConfig({ REFUSAL_HOURS: '169' })).toThrow(refused);
  expect(() => loadConfig({ REFUSAL_HOURS: '48', USAGE_RETENTION_DAYS: '1' })).toThrow(refused);
  expect(loadConfig({ USAGE_HOURLY_DAYS: '1', USAGE_RETENTION_DAYS: '1' })).toMatchObject({ refusalHours: 24 });
  expect(loadConfig({ REFUSAL_HOURS: '744', USAGE_HOURLY_DAYS: '31' })).toMatchObject({ refusalHours: 744 });
  expect(() => loadConfig({ REFUSAL_HOURS: '745' })).toThrow('REFUSAL_HOURS=745 must be a whole number from 1 to 744');
});

test('METRICS_PORT must differ from PORT, unless the address differs or the system chooses the port', () => {
  expect(() => loadConfig({ METRICS_PORT: '8080' })).toThrow(
    '  METRICS_PORT and PORT must differ on one address: both are 8080',
  );
  expect(() => loadConfig({ PORT: 'http', METRICS_PORT: 'off' })).toThrow(/^(?!.*must differ)/s);
  expect(loadConfig({ PORT: '0', METRICS_PORT: '0' })).toMatchObject({ port: 0, metricsPort: 0 });
  expect(loadConfig({ HOST: '10.0.0.1', METRICS_PORT: '8080' })).toMatchObject({ port: 8080, metricsPort: 8080 });
});

test('TLS_CERT_FILE and TLS_KEY_FILE are set together or not at all', () => {
  expect(tlsSettings(loadConfig({}))).toBeUndefined();
  const files = { TLS_CERT_FILE: '/a.pem', TLS_KEY_FILE: '/b.pem', TLS_KEY_PASSPHRASE: ' c ' };
  expect(tlsSettings(loadConfig(files))).toEqual({ certFile: '/a.pem', keyFile: '/b.pem', passphrase: ' c ' });
});

test('one error names every wrong variable, its value and what is accepted', () => {
  expect(() => loadConfig({ PORT: 'http', LOG_LEVEL: 'loud', HOST: '::1' })).toThrow(
    new Error(
      'Invalid settings:\n' +
        '  PORT=http must be a whole number from 0 to 65535\n' +
        '  LOG_LEVEL=loud must be one of fatal, error, warn, info, debug, trace, silent',
    ),
  );
});

test('blanks, line ends and a byte order mark around a value are ignored, in variables and in files', () => {
  const around = (text: string) => `\ufeff ${text}\t\r\n`;
  const names = {
    PORT: '21002',
    LOG_LEVEL: 'warn',
    CONSOLE: '0',
    GATEWAY_KEY_HEADER: 'X-Api-Key',
    REDIS_URL: 'redis://a:1',
  };
  const plain = loadConfig(names);
  expect(loadConfig(Object.fromEntries(Object.entries(names).map(([name, text]) => [name, around(text)])))).toEqual(
    plain,
  );
  const dir = dirOfTest();
  const file = join(dir, 'secret');
  writeFileSync(file, around('redis://a:1'));
  expect(loadConfig({ ...names, REDIS_URL: '', REDIS_URL_FILE: around(file) })).toEqual(plain);
  writeFileSync(file, '\ufeff\r\n');
  expect(() => loadConfig({ REDIS_URL_FILE: file })).toThrow('the file is empty');
});

test.each([
  ['PORT', '21\r002', 'PORT="21\\r002" must be'],
  ['TOLLGATE_DATA_DIR', '~/data', 'TOLLGATE_DATA_DIR=~/data must be a directory, written out'],
  ['TOLLGATE_DATA_DIR', '$HOME/x', 'TOLLGATE_DATA_DIR=$HOME/x must be a directory, written out'],
  ['TOLLGATE_DATA_DIR', '/var/$USER', 'must be a directory, written out'],
])('%s=%j is refused, and printed in one line', (variable, text, message) => {
  expect(() => loadConfig({ [variable]: text })).toThrow(message);
});

test('an IPv6 address may have the brackets of URLs', () => {
  expect(loadConfig({ HOST: '[::1]', METRICS_HOST: '[2001:db8::1]' })).toMatchObject({
    host: '::1',
    metricsHost: '2001:db8::1',
  });
});

/** Of what may be a password, the error has nothing. */
test.each([
  ['default:sekrit@127.0.0.1:7811', '…@127.0.0.1:7811'],
  ['redis:/default:sekrit@127.0.0.1:7811', '…@127.0.0.1:7811'],
  ['sekrit://default@127.0.0.1', '…@127.0.0.1'],
  ['redis+cluster://default:sek%rit@sekrit\n@a:1', 'redis+cluster://…@a:1'],
  ['redis://a:1/x?password=sekrit', 'redis://a:1/x?…'],
  ['http://tollgate:s3cret@cache', 'http://…@cache'],
  ['redis://:sek%rit@h:1', 'redis://…@h:1'],
  ['redis+cluster://:sek%rit@h:1', 'redis+cluster://…@h:1'],
  ['redis+sentinel://:sek%rit@h:1', 'redis+sentinel://…@h:1'],
  ['redis://h:1/abc', 'redis://h:1/abc'],
  ['redis+cluster://a:xyz', 'redis+cluster://a:xyz'],
  ['redis+sentinel://:99999', 'redis+sentinel://:99999'],
  ['redis+cluster://127.0.0.1:1,,', 'redis+cluster://127.0.0.1:1,,'],
  ['redis+cluster://host/3', 'redis+cluster://host/3'],
])('a wrong or ambiguous URL is refused: %s', (text, reported) => {
  expect(() => loadConfig({ REDIS_URL: text })).toThrow(`Invalid settings:\n  REDIS_URL=${reported} must be `);
  expect(() => loadConfig({ REDIS_URL: text })).toThrow(/^(?!.*(sek%?rit|s3cret))/s);
});

test('a relative TOLLGATE_DATA_DIR is relative to the folder of Tollgate, in any working directory', () => {
  const expected = [resolve('data'), resolve('copy'), '/var/lib/tollgate'];
  const before = process.cwd();
  process.chdir('/');
  const found = [{}, { TOLLGATE_DATA_DIR: 'copy' }, { TOLLGATE_DATA_DIR: '/var/lib/tollgate' }];
  expect(found.map((env) => loadConfig(env).dataDir)).toEqual(expected);
  process.chdir(before);
});

describe('a secret in a file', () => {
  const dir = dirOfFile();
  const fileWith = (content: string) => {
    const file = join(dir, `secret-${Math.random()}`);
    writeFileSync(file, content);
    return file;
  };

  test.each([
    ['REDIS_URL', 'redisUrl', 'rediss://u:s3cret@cache:6380', '\n'],
    ['REDIS_URL', 'redisUrl', 'unix:/run/redis.sock', ''],
    ['GATEWAY_ROOT_KEY', 'gatewayRootKey', 'root_1pA5q5zuJi7UZPFd_abc', '\r\n'],
    ['TLS_KEY_PASSPHRASE', 'tlsKeyPassphrase', ' s3cret \n', '\n'],
  ] as const)('%s_FILE: one newline at the end is ignored', (variable, name, value, end) => {
    expect(loadConfig({ [`${variable}_FILE`]: fileWith(value + end) })[name]).toBe(value);
  });

  test('all settings that are never printed, and REDIS_URL, have it; no other has', () => {
    const found = settings.filter(({ variable }) => settings.some((each) => each.variable === `${variable}_FILE`));
    expect(found.map(({ variable }) => variable)).toEqual(['TLS_KEY_PASSPHRASE', 'REDIS_URL', 'GATEWAY_ROOT_KEY']);
    expect(loadConfig({ HOST_FILE: fileWith('1.2.3.4') }).host).toBe('127.0.0.1');
  });

  test('both at once is refused, without the value', () => {
    const both = { REDIS_URL: 'redis://:s3cret@a', REDIS_URL_FILE: fileWith('redis://b') };
    expect(() => loadConfig(both)).toThrow(
      new Error('Invalid settings:\n  REDIS_URL and REDIS_URL_FILE must not be set together'),
    );
    expect(loadConfig({ ...both, REDIS_URL: '' }).redisUrl).toBe('redis://b');
  });

  test.each([
    ['', 'the file is empty'],
    ['\n', 'the file is empty'],
    ['rot_s3cret', 'the content must be a root key, root_…, or empty'],
  ])('the error names the file, not its content: %j', (content, reason) => {
    const file = fileWith(content);
    expect(() => loadConfig({ GATEWAY_ROOT_KEY_FILE: file })).toThrow(
      new Error(`Invalid settings:\n  GATEWAY_ROOT_KEY_FILE=${file}: ${reason}`),
    );
  });

  test('a missing file is refused with its name', () => {
    expect(() => loadConfig({ REDIS_URL_FILE: '/nowhere/url' })).toThrow(
      '  REDIS_URL_FILE=/nowhere/url cannot be read: ENOENT',
    );
  });

  test('a worker gets the URL of Redis only, and reads the other files itself', () => {
    vi.stubEnv('REDIS_URL_FILE', fileWith('redis://a'));
    vi.stubEnv('GATEWAY_ROOT_KEY_FILE', fileWith('root_1pA5q5zuJi7UZPFd_abc'));
    const env = environmentWith({ redisUrl: 'redis://a', port: 1 });
    vi.unstubAllEnvs();
    expect(loadConfig(env)).toMatchObject({ redisUrl: 'redis://a', gatewayRootKey: 'root_1pA5q5zuJi7UZPFd_abc' });
  });
});

test('GATEWAY_META is a list of names', () => {
  expect(loadConfig({ GATEWAY_META: 'plan, max_seats' }).gatewayMeta).toEqual(['plan', 'max_seats']);
});

test('the error does not contain an invalid root key', () => {
  expect(() => loadConfig({ GATEWAY_ROOT_KEY: 'rot_s3cret' })).toThrow(
    /^(?!.*s3cret)[\s\S]*GATEWAY_ROOT_KEY=… must be a root key/,
  );
});

test('every setting has a description, and no variable is listed twice', () => {
  for (const { meaning } of settings) expect(meaning).toMatch(/^.{10,}[.]$/);
  expect(new Set(settings.map(({ variable }) => variable)).size).toBe(settings.length);
});

test.each([
  [{}, true],
  [{ HOST: '127.1.2.3' }, true],
  [{ HOST: '::1' }, true],
  [{ HOST: 'localhost' }, true],
  [{ HOST: '0.0.0.0' }, false],
  [{ HOST: '::' }, false],
  [{ HOST: '127.evil.example' }, false],
  [{ HOST: '10.0.0.1' }, false],
  [{ METRICS_PORT: '9464' }, false],
])('with %o, metrics on the serving port: %s', (env, expected) => {
  expect(sharesMetrics(loadConfig(env))).toBe(expected);
});

test('the store gets durations in milliseconds', () => {
  const config = loadConfig({ KEY_RETENTION_DAYS: '2', USAGE_RETENTION_DAYS: '3' });
  expect(storeSettings(config)).toMatchObject({ keyRetentionMs: 172_800_000, usageRetentionMs: 259_200_000 });
});
