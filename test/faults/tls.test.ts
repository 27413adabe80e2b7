// TLS on both sides of the built server: to Redis and to its callers. openssl creates the certificates.

import { execFile, spawnSync } from 'node:child_process';
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { Agent, request as secureRequest } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { listen } from '../../src/http/server.ts';
import { openStore } from '../../src/store.ts';
import { type Certificates, makeCertificates, passphrase } from '../support/certificates.ts';
import { testSettings } from '../support/harness.ts';
import { addressOf, build, firstRootKeyOf, type Program, runServer } from '../support/processes.ts';
import { freePort, redisNodes, until } from '../support/redisNodes.ts';
import { isLong, longTest } from '../support/testIf.ts';
import { report } from './report.ts';

// Each test starts servers, which takes long on a busy machine.
const password = 'a pass/word:@';
const redis = redisNodes();
let dir: string;
let files: Certificates;
let servers: Program[] = [];

beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'tollgate-tls-'));
  files = makeCertificates(dir);
  build();
});
afterEach(async () => {
  await Promise.all(servers.map((server) => server.stop()));
  servers = [];
});
afterAll(async () => {
  await redis.stop();
  rmSync(dir, { recursive: true });
});

function start(settings: Record<string, string>): Program {
  const server = runServer({ TOLLGATE_DATA_DIR: mkdtempSync(join(dir, 'data-')), ...settings });
  servers.push(server);
  return server;
}

/** The server's port and its first root key. */
const untilListening = async (server: Program) => ({
  url: await addressOf(server),
  rootKey: await firstRootKeyOf(server),
});

/** The output of a server that does not start. */
async function refusal(settings: Record<string, string>): Promise<string> {
  const server = start(settings);
  expect(await server.ended).toBe(1);
  expect(server.out).toBe('');
  return server.err;
}

describe('to Redis', () => {
  /** A Redis with TLS only, which requires no certificate of clients. */
  const words = (port: number) => [
    ...['--port', '0', '--tls-port', String(port), '--tls-auth-clients', 'no'],
    ...['--tls-cert-file', files.certFile, '--tls-key-file', files.keyFile, '--tls-ca-cert-file', files.caFile],
  ];
  const options = (port: number) => ({ port, tls: { ca: readFileSync(files.caFile) } });

  test('rediss:// with REDIS_CA_FILE serves; without it the server does not start, and prints the reason', async () => {
    const protectedBy = (port: number) => ({ ...options(port), password });
    const node = await redis.startNode((port) => [...words(port), '--requirepass', password], protectedBy);
    const REDIS_URL = `rediss://default:${encodeURIComponent(password)}@127.0.0.1:${node.port}`;
    const WORKERS = isLong ? '2' : '1';

    const { url, rootKey } = await untilListening(start({ REDIS_URL, REDIS_CA_FILE: files.caFile, WORKERS }));
    const headers = { authorization: `Bearer ${rootKey}`, 'content-type': 'application/json' };
    const asked = await fetch(`${url}/v2/apis.createApi`, { method: 'POST', headers, body: '{"name":"over TLS"}' });
    expect(asked.status).toBe(200);

    const untrusted = await refusal({ REDIS_URL });
    expect(untrusted).toMatch(/^tollgate: Cannot reach Redis: self-signed certificate .*set REDIS_CA_FILE.*$/m);
    const unreadable = await refusal({ REDIS_URL, REDIS_CA_FILE: join(dir, 'none.pem') });
    expect(unreadable).toMatch(/^tollgate: The file of REDIS_CA_FILE cannot be read: ENOENT.*none\.pem'\n$/);
    report({
      order: '8.1',
      fault: 'Redis with TLS and a certificate of one’s own',
      expected: 'serves with REDIS_CA_FILE; without it, refuses to start and names the cause',
      measured: `${WORKERS} workers serve; without: exit code 1, "${/reach Redis: (.*)\n/.exec(untrusted)![1]}"`,
    });
  });

  test('without REDIS_CA_FILE, an authority in the list of the system is trusted', async () => {
    const node = await redis.startNode(words, options);
    const REDIS_URL = `rediss://127.0.0.1:${node.port}`;
    await untilListening(start({ REDIS_URL, SSL_CERT_FILE: files.caFile }));
  });

  test('SIGHUP reads REDIS_CA_FILE again, for the next connection', async () => {
    const REDIS_CA_FILE = join(dir, 'trusted.pem');
    copyFileSync(files.caFile, REDIS_CA_FILE);
    const node = await redis.startNode(words, options);
    const server = start({ REDIS_URL: `rediss://127.0.0.1:${node.port}`, REDIS_CA_FILE, WORKERS: '2' });
    const { url } = await untilListening(server);
    const isReady = async () => (await fetch(`${url}/health/ready`)).status === 200;

    // Redis gets a certificate of another authority, and loses its connections.
    const renewed = makeCertificates(mkdtempSync(join(dir, 'renewed-')));
    const given = { 'tls-cert-file': renewed.certFile, 'tls-key-file': renewed.keyFile };
    await node.admin.call('CONFIG', 'SET', ...Object.entries(given).flat());
    await node.admin.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    await until('it trusts no longer', 5000, async () => /set REDIS_CA_FILE/.test(server.err) && !(await isReady()));

    writeFileSync(REDIS_CA_FILE, 'broken');
    server.child.kill('SIGHUP');
    await until('the error is logged', 5000, async () => server.err.includes('contains no certificate'));
    copyFileSync(renewed.caFile, REDIS_CA_FILE);
    server.child.kill('SIGHUP');
    await until('it is ready', 5000, isReady);
  });

  const expectUntrusted = (url: string) =>
    expect(openStore({ ...testSettings, url })).rejects.toThrow(/^Cannot reach Redis: .*self-signed.*REDIS_CA_FILE/);

  /** A store with this URL works with the test's certificate authority, and without it fails with the reason. */
  async function expectTrustNeeded(url: string) {
    await expectUntrusted(url);
    const store = await openStore({ ...testSettings, url, caFile: files.caFile });
    expect((await store.workspaces.create('over TLS')).workspaceId).toMatch(/^ws_/);
    await store.close();
  }

  test('rediss+cluster:// is TLS to every node', async () => {
    const busPort = await freePort();
    const node = await redis.startNode(
      (port) => [
        ...words(port),
        ...['--cluster-enabled', 'yes', '--cluster-port', String(busPort), '--tls-cluster', 'yes'],
        ...['--cluster-announce-ip', '127.0.0.1'],
      ],
      options,
    );
    await node.admin.call('CLUSTER', 'ADDSLOTSRANGE', 0, 16_383);
    await until('it is well', 5000, async () => String(await node.admin.cluster('INFO')).includes('cluster_state:ok'));
    await expectTrustNeeded(`rediss+cluster://localhost:${node.port}`);
  });

  longTest('rediss+sentinel:// is TLS to Sentinels and to their master', async () => {
    const replication = ['--tls-replication', 'yes'];
    const master = await redis.startNode((port) => [...words(port), ...replication], options);
    const sentinel = await redis.startNode((port) => [...words(port), ...replication, '--sentinel'], options);
    await sentinel.admin.call('SENTINEL', 'MONITOR', 'tollgate', '127.0.0.1', master.port, 1);
    const url = `rediss+sentinel://localhost:${sentinel.port}/tollgate`;
    await expectTrustNeeded(url);
    // A connection that is closed while it is being made sometimes has two errors. Neither ends the process.
    for (let round = 0; round < 20; round++) await Promise.all(Array.from({ length: 10 }, () => expectUntrusted(url)));
  });
});

describe('to its callers', () => {
  const settings = () => ({ TLS_CERT_FILE: files.certFile, TLS_KEY_FILE: files.keyFile });

  /** Runs a text as a module in another process, which trusts the test's certificate authority or does not. */
  async function run(module: string, caFile: string | undefined, ...words: string[]): Promise<string> {
    const env = { PATH: process.env.PATH, ...(caFile && { NODE_EXTRA_CA_CERTS: caFile }) };
    const { stdout } = await promisify(execFile)(
      process.execPath,
      ['--input-type=module', '--eval', module, '--', ...words],
      { env },
    );
    return stdout;
  }

  const bySdk = `
    import { Unkey } from '@unkey/api';
    const [serverURL, rootKey] = process.argv.slice(1);
    const unkey = new Unkey({ rootKey, serverURL });
    const { data: { apiId } } = await unkey.apis.createApi({ name: 'over TLS' });
    const { data: { key } } = await unkey.keys.createKey({ apiId });
    const { data: { code } } = await unkey.keys.verifyKey({ key });
    const { status } = await fetch(serverURL + '/v2/liveness');
    console.log(code, status);`;
  const byFetch = `
    const [url] = process.argv.slice(1);
    console.log(await fetch(url).then(({ status }) => status, ({ cause }) => cause.code));`;

  const ways: [what: string, settings: Record<string, string>][] = [
    ['one process', {}],
    ...(isLong ? ([['workers', { WORKERS: '2' }]] as [string, Record<string, string>][]) : []),
  ];
  test.each(ways)('%s: the SDK and fetch are served over HTTPS, and plain HTTP is not served', async (what, more) => {
    const server = start({ ...settings(), ...more });
    const { url, rootKey } = await untilListening(server);
    expect(url).toMatch(/^https:/);
    expect(await run(bySdk, files.caFile, url, rootKey)).toBe('VALID 200\n');
    expect(await run(byFetch, undefined, url)).toBe('UNABLE_TO_VERIFY_LEAF_SIGNATURE\n');

    const plain = request(url.replace('https:', 'http:')).end();
    const [error] = (await once(plain, 'error')) as [Error & { code: string }];
    expect(['ECONNRESET', 'HPE_INVALID_CONSTANT']).toContain(error.code);
    // Other callers are still served.
    expect(await run(byFetch, files.caFile, `${url}/v2/liveness`)).toBe('200\n');

    expect(await server.stop()).toBe(0);
    report({
      order: `8.2 ${what}`,
      fault: `HTTPS by TLS_CERT_FILE and TLS_KEY_FILE, ${what}`,
      expected:
        'the official SDK is served once it trusts the certificate; plain HTTP and who does not trust it are not',
      measured: 'SDK: VALID; fetch without the CA: UNABLE_TO_VERIFY_LEAF_SIGNATURE; plain HTTP: connection closed',
    });
  });

  test('a key that is encrypted; bodies of all sizes, on a connection that is kept, and a refusal in the middle of one', async () => {
    const encrypted = { ...settings(), TLS_KEY_FILE: files.encryptedKeyFile, TLS_KEY_PASSPHRASE: passphrase };
    const { url, rootKey } = await untilListening(start({ ...encrypted, BODY_LIMIT_BYTES: '300000' }));
    const ca = readFileSync(files.caFile);
    const agent = new Agent({ ca, keepAlive: true, maxSockets: 1 });
    const ask = async (name: string): Promise<{ status: number; reused: boolean }> => {
      const headers = { authorization: `Bearer ${rootKey}`, 'content-type': 'application/json' };
      const asking = secureRequest(`${url}/v2/apis.createApi`, { method: 'POST', agent, headers });
      asking.end(JSON.stringify({ name }));
      const [response] = await once(asking, 'response');
      response.resume();
      await once(response, 'end');
      return { status: response.statusCode, reused: asking.reusedSocket };
    };
    expect(await ask('small')).toEqual({ status: 200, reused: false });
    expect(await ask('x'.repeat(250_000))).toEqual({ status: 400, reused: true });
    expect(await ask('again')).toEqual({ status: 200, reused: true });
    expect((await ask('x'.repeat(310_000))).status).toBe(413);
    expect((await ask('and again')).status).toBe(200);
    agent.destroy();
  });

  describe('SIGHUP reads the certificate again', () => {
    /** The number of the certificate that a new connection gets, asked by openssl. */
    const serialOf = (url: string) => {
      const { host } = new URL(url);
      const { stdout } = spawnSync('openssl', ['s_client', '-connect', host], { input: '', encoding: 'utf8' });
      return new X509Certificate(stdout).serialNumber;
    };
    const numberIn = (file: string) => new X509Certificate(readFileSync(file)).serialNumber;

    /** A server with files of its own, and a second certificate of the same authority. */
    async function openRenewable(more: Record<string, string> = {}) {
      const own = mkdtempSync(join(dir, 'own-'));
      const renewed = makeCertificates(mkdtempSync(join(dir, 'renewed-')));
      const use = ({ certFile, keyFile }: Certificates) => {
        copyFileSync(certFile, join(own, 'server.crt'));
        copyFileSync(keyFile, join(own, 'server.key'));
      };
      use(files);
      const tls = { TLS_CERT_FILE: join(own, 'server.crt'), TLS_KEY_FILE: join(own, 'server.key') };
      const server = start({ ...tls, ...more });
      const url = await addressOf(server);
      await until('it is ready', 20_000, async () => server.err.includes('"Ready."'));
      return { server, url, own, renewed, use };
    }
    const reloads = (server: Program) => server.err.split('were read again').length - 1;

    test('new connections get the new one; open ones live on, and none is refused meanwhile', async () => {
      const { server, url, renewed, use } = await openRenewable();
      expect(serialOf(url)).toBe(numberIn(files.certFile));
      const agent = new Agent({ rejectUnauthorized: false, keepAlive: true, maxSockets: 1 });
      const ask = async (by: Agent) => {
        const asking = secureRequest(`${url}/v2/liveness`, { agent: by }).end();
        const [response] = await once(asking, 'response');
        const { serialNumber } = response.socket.getPeerCertificate();
        response.resume();
        await once(response, 'end');
        return { status: response.statusCode, reused: asking.reusedSocket, serialNumber };
      };
      expect(await ask(agent)).toMatchObject({ status: 200, reused: false });

      let connections = 0;
      let isOver = false;
      const connecting = (async () => {
        while (!isOver) {
          const single = new Agent({ rejectUnauthorized: false });
          expect((await ask(single)).status).toBe(200);
          connections++;
        }
      })();
      for (let round = 1; round <= (isLong ? 10 : 2); round++) {
        const earlier = connections;
        use(round % 2 === 1 ? renewed : files);
        server.child.kill('SIGHUP');
        await until('it has read them', 5000, async () => reloads(server) === round);
        await until('others were accepted', 5000, async () => connections > earlier);
        expect(serialOf(url)).toBe(numberIn(round % 2 === 1 ? renewed.certFile : files.certFile));
      }
      isOver = true;
      await connecting;
      expect(await ask(agent)).toEqual({ status: 200, reused: true, serialNumber: numberIn(files.certFile) });
      agent.destroy();
      // Connections of all certificates are closed.
      expect(await server.stop()).toBe(0);
    });

    test('files that cannot be used are an error in the log, and the old ones stay', async () => {
      const { server, url, own, renewed } = await openRenewable();
      copyFileSync(renewed.certFile, join(own, 'server.crt'));
      server.child.kill('SIGHUP');
      await until('the error', 5000, async () =>
        server.err.includes('does not match the certificate in TLS_CERT_FILE'),
      );
      writeFileSync(join(own, 'server.crt'), '');
      server.child.kill('SIGHUP');
      await until('the error', 5000, async () => server.err.includes('Cannot use the file in TLS_CERT_FILE'));
      expect(serialOf(url)).toBe(numberIn(files.certFile));
      expect(reloads(server)).toBe(0);
      expect(server.hasEnded()).toBe(false);
    });

    test('every worker does', async () => {
      const workers = isLong ? 3 : 2;
      const { server, url, renewed, use } = await openRenewable({ WORKERS: `${workers}` });
      use(renewed);
      server.child.kill('SIGHUP');
      // Each of the workers logs it, and the first process.
      await until('all have', 10_000, async () => reloads(server) === workers + 1);
      const serials = Array.from({ length: isLong ? 20 : 8 }, () => serialOf(url));
      expect(new Set(serials)).toEqual(new Set([numberIn(renewed.certFile)]));
    });
  });

  test.each([['one process', '1'], ...(isLong ? [['workers', '2']] : [])])(
    'files that cannot be used are refused at the start, with the reason: %s',
    async (_what, WORKERS = '') => {
      const words = await refusal({ ...settings(), TLS_KEY_FILE: join(dir, 'nowhere.pem'), WORKERS });
      expect(words).toMatch(/^tollgate: Cannot use the file in TLS_KEY_FILE: ENOENT.*nowhere\.pem'$/m);
    },
  );

  test.each([
    ['no such certificate', { certFile: 'nowhere.pem' }, /^Cannot use the file in TLS_CERT_FILE: ENOENT/],
    [
      'a certificate with a byte order mark',
      { certFile: 'marked.pem' },
      /^Cannot use the file in TLS_CERT_FILE: .*marked\.pem begins with a byte order mark/,
    ],
    ['an empty certificate', { certFile: 'empty.pem' }, /^Cannot use the file in TLS_CERT_FILE: /],
    ['an empty key', { keyFile: 'empty.pem' }, /^Cannot use the file in TLS_KEY_FILE: /],
    ['the key of another', { keyFile: 'other.key' }, /^The key in TLS_KEY_FILE does not match the certificate/],
    [
      'no passphrase',
      { keyFile: 'encrypted.key' },
      /^Cannot use the file in TLS_KEY_FILE: it is encrypted, and TLS_KEY_PASSPHRASE is empty/,
    ],
    [
      'a wrong one',
      { keyFile: 'encrypted.key', passphrase: 'wrong' },
      /^Cannot use the file in TLS_KEY_FILE: TLS_KEY_PASSPHRASE does not decrypt it$/,
    ],
    [
      'a wrong one that seems to decrypt it',
      { keyFile: 'encrypted.key', passphrase: 'unsupported' },
      /^Cannot use the file in TLS_KEY_FILE: TLS_KEY_PASSPHRASE does not decrypt it$/,
    ],
  ])('refused at the start: %s', async (_what, wrong, words) => {
    writeFileSync(join(dir, 'empty.pem'), '');
    writeFileSync(join(dir, 'marked.pem'), `\ufeff${readFileSync(join(dir, 'server.crt'), 'utf8')}`);
    const {
      certFile,
      keyFile,
      passphrase = '',
    } = { certFile: 'server.crt', keyFile: 'server.key', ...wrong } as {
      certFile: string;
      keyFile: string;
      passphrase?: string;
    };
    const tls = { certFile: join(dir, certFile), keyFile: join(dir, keyFile), passphrase };
    if (passphrase === 'unsupported') tls.passphrase = seemingPassphrase(readFileSync(tls.keyFile));
    const handler = () => Promise.reject(new Error('nobody asks'));
    const options = { host: '127.0.0.1', port: 0, bodyBytesMax: 1024, newRequestId: () => '', handler };
    await expect(listen({ ...options, tls })).rejects.toThrow(words);
  });
});

/** A wrong passphrase of a key that OpenSSL takes for a right one at first: one in 200. */
function seemingPassphrase(key: Buffer): string {
  for (let number = 0; ; number++) {
    const passphrase = `wrong ${number}`;
    try {
      createPrivateKey({ key, passphrase });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ERR_OSSL_UNSUPPORTED') return passphrase;
    }
  }
}
