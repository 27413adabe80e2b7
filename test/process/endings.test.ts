// A server whose certificate and root key end: its log, readiness, status and doctor.

import { copyFileSync, mkdtempSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, expect, test, vi } from 'vitest';
import { type Certificates, makeCertificates } from '../support/certificates.ts';
import { runCliProcess } from '../support/cli.ts';
import { openClient } from '../support/client.ts';
import { dirOfFile } from '../support/ofFile.ts';
import { build, startServer } from '../support/processes.ts';
import { thorough } from '../support/testIf.ts';

const waiting = { timeout: 60_000, interval: 50 };
const dir = dirOfFile();
const certificates = (days: number) => makeCertificates(mkdtempSync(join(dir, 'certificates-')), days);

beforeAll(build, 120_000);

test.each(thorough(['1', '2'], ['2']))(
  'a certificate that ends, at the start and after SIGHUP, with WORKERS=%s',
  async (WORKERS) => {
    const own = mkdtempSync(join(dir, 'own-'));
    const tls = { TLS_CERT_FILE: join(own, 'server.crt'), TLS_KEY_FILE: join(own, 'server.key') };
    const use = ({ certFile, keyFile }: Certificates) => {
      copyFileSync(certFile, tls.TLS_CERT_FILE);
      copyFileSync(keyFile, tls.TLS_KEY_FILE);
    };
    const doctor = async () => {
      const { code, out } = await runCliProcess(['doctor', '--json'], { ...tls, TOLLGATE_DATA_DIR: join(own, 'none') });
      return { code, ...JSON.parse(out).find(({ check }: { check: string }) => check === 'certificate') };
    };
    use(certificates(2));
    const server = await startServer({ ...tls, WORKERS, TOLLGATE_DATA_DIR: join(own, 'data') });
    const logged = () =>
      server.err
        .split('\n')
        .filter((line) => line.includes('"check":"certificate"'))
        .map((line) => JSON.parse(line));
    const each = Number(WORKERS);
    await vi.waitFor(() => expect(logged()).toHaveLength(each), waiting);
    expect(logged()[0]).toMatchObject({
      level: 'warn',
      msg: expect.stringMatching(/^certificate: ends .* UTC, in 1 day\. Renew it, and send the server SIGHUP/),
    });
    expect(await doctor()).toMatchObject({ code: 0, status: 'warning' });

    use(certificates(-1));
    server.child.kill('SIGHUP');
    await vi.waitFor(() => expect(logged()).toHaveLength(2 * each), waiting);
    expect(logged().at(-1)).toMatchObject({
      level: 'error',
      msg: expect.stringMatching(/^certificate: ended .* ago\./),
    });
    expect(await doctor()).toMatchObject({
      code: 1,
      status: 'fault',
      found: expect.stringMatching(/^ended .*, 1 day ago$/),
    });

    const before = server.err.split('were read again').length;
    use(certificates(60));
    server.child.kill('SIGHUP');
    // The first process of several logs it, too.
    await vi.waitFor(
      () => expect(server.err.split('were read again').length - before).toBe(each === 1 ? 1 : each + 1),
      waiting,
    );
    expect(logged()).toHaveLength(2 * each);
    expect(await doctor()).toMatchObject({ code: 0, status: 'ok' });
    await server.stop();
  },
  240_000,
);

test('GATEWAY_ROOT_KEY: in readiness, which it does not fail, in the status of its workspace, and in doctor', async () => {
  const settings = { TOLLGATE_DATA_DIR: join(dir, 'gateway') };
  const first = await startServer(settings);
  const admin = await first.firstRootKey();
  const call = (url: string) => openClient(url, admin).ok;
  const expires = Date.now() + 3_600_000;
  const input = { name: 'gateway', permissions: ['api.*.verify_key'], expires };
  const { key, rootKeyId } = await call(first.url)('rootKeys.createRootKey', input);
  const ready = async (url: string) => {
    const response = await fetch(`${url}/health/ready`);
    return [response.status, ((await response.json()) as { data: { gatewayRootKey?: string } }).data.gatewayRootKey];
  };
  expect(await ready(first.url)).toEqual([200, undefined]);
  expect((await call(first.url)('system.getStatus', {})).checks).toEqual([]);
  await first.stop();

  const server = await startServer({ ...settings, GATEWAY_ROOT_KEY: key });
  expect(await ready(server.url)).toEqual([200, 'accepted']);
  const ends = {
    check: 'GATEWAY_ROOT_KEY',
    status: 'warning',
    found: expect.stringMatching(/^ends .*, in 59 minutes$/),
  };
  expect((await call(server.url)('system.getStatus', {})).checks).toEqual([expect.objectContaining(ends)]);
  await vi.waitFor(() => expect(server.err).toMatch(/"msg":"GATEWAY_ROOT_KEY: ends [^"]*, in 59 minutes\./), waiting);
  const doctor = async () => {
    const { code, out } = await runCliProcess(['doctor', '--json'], { ...settings, GATEWAY_ROOT_KEY: key });
    expect(out).not.toContain(key);
    return { code, ...JSON.parse(out).find(({ check }: { check: string }) => check === 'GATEWAY_ROOT_KEY') };
  };
  expect(await doctor()).toMatchObject({ code: 0, ...ends });
  // Doctor and the server's own checks are no uses of it.
  expect((await call(server.url)('rootKeys.listRootKeys', {}))[1]!.lastUsedAt).toBeUndefined();

  await call(server.url)('rootKeys.updateRootKey', { rootKeyId, enabled: false });
  await vi.waitFor(async () => expect(await ready(server.url)).toEqual([200, 'root_key_disabled']), waiting);
  expect(await doctor()).toMatchObject({ code: 1, status: 'fault', found: 'is disabled' });
  await call(server.url)('rootKeys.deleteRootKey', { rootKeyId });
  await vi.waitFor(async () => expect(await ready(server.url)).toEqual([200, 'unauthorized']), waiting);
  expect(server.printed()).not.toContain(key);
  await server.stop();
}, 240_000);
