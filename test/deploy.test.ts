// The Dockerfile, compose.yaml and the Kubernetes manifests, as far as they can be checked without Docker and
// Kubernetes. deploy/rehearse.mjs, run by hand, carries out the first two.

import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { validate } from 'dockerfile-utils';
import { Deployment, StatefulSet } from 'kubernetes-models/apps/v1';
import { HorizontalPodAutoscaler } from 'kubernetes-models/autoscaling/v2';
import { NetworkPolicy } from 'kubernetes-models/networking.k8s.io/v1';
import { PodDisruptionBudget } from 'kubernetes-models/policy/v1';
import { Secret, Service } from 'kubernetes-models/v1';
import { describe, expect, test, vi } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { loadConfig, settings } from '../src/config.ts';
import { blocksOf } from './support/folder.ts';
import { dirOfFile, dirOfTest } from './support/ofFile.ts';
import { run, runRedis } from './support/processes.ts';
import { freePort } from './support/redisNodes.ts';

const root = fileURLToPath(new URL('..', import.meta.url));
const read = (path: string) => readFileSync(join(root, path), 'utf8');
const variables = settings.map(({ variable }) => variable);
const stopSeconds = Number(/stopWaitMs = (\d+)_000/.exec(read('src/serve.ts'))![1]);

describe('the Dockerfile', () => {
  const text = read('Dockerfile');
  const lines = text.replaceAll('\\\n', ' ').split('\n');
  const stages = text.split(/^FROM /m).slice(1);
  const last = stages.at(-1)!;
  const argumentOf = (instruction: string) =>
    lines
      .filter((line) => line.startsWith(`${instruction} `))
      .at(-1)!
      .slice(instruction.length + 1);

  test('passes its linter', () => {
    expect(validate(text)).toEqual([]);
    expect(validate(text.replace('USER', 'USR'))).not.toEqual([]);
  });

  test('copies exactly the files that .dockerignore admits, and they exist', () => {
    const allowed = [...read('.dockerignore').matchAll(/^!(.+)$/gm)].map((match) => match[1]!);
    expect(read('.dockerignore')).toMatch(/^\*$/m);
    const copied = lines
      .filter((line) => line.startsWith('COPY ') && !line.includes('--from='))
      .flatMap((line) => line.split(/\s+/).slice(1, -1));
    expect([...new Set(copied)].sort()).toEqual([...allowed].sort());
    for (const name of allowed) expect(existsSync(join(root, name)), name).toBe(true);
  });

  test('ends in a stage without tools that runs no command', () => {
    expect(last).toMatch(/^\$\{DEBIAN_IMAGE\}\n/);
    expect(last).not.toMatch(/^(RUN|ADD)/m);
    expect(stages.filter((stage) => /--omit=dev/.test(stage))).toHaveLength(1);
  });

  test('runs as a numeric user other than root, with one program as process 1, and a health check', () => {
    expect(argumentOf('USER')).toMatch(/^[1-9]\d+:[1-9]\d+$/);
    expect(JSON.parse(argumentOf('CMD'))).toEqual(['node', 'dist/main.js']);
    expect(JSON.parse(argumentOf('HEALTHCHECK').replace(/^.*?CMD /, ''))).toEqual(['node', 'dist/health.js']);
  });

  test('the command line is on its PATH', () => {
    expect(lines).toContain('COPY deploy/image/tollgate /usr/local/bin/tollgate');
    expect(lines).toContain('WORKDIR /app');
    expect(read('deploy/image/tollgate')).toContain('exec node /app/dist/cli/index.js "$@"');
    expect(statSync(join(root, 'deploy/image/tollgate')).mode & 0o111).toBe(0o111);
  });

  test('sets only variables that are settings', () => {
    const env = Object.fromEntries(
      argumentOf('ENV')
        .split(' ')
        .map((pair) => pair.split('=')),
    );
    expect(Object.keys(env).filter((name) => !variables.includes(name))).toEqual(['NODE_ENV']);
    expect(loadConfig(env)).toMatchObject({
      host: '0.0.0.0',
      port: Number(argumentOf('EXPOSE')),
      firstRootKey: 'none',
    });
  });
});

describe('compose.yaml', () => {
  const { services, volumes } = parse(read('compose.yaml'), { strict: true, uniqueKeys: true, merge: true });

  test.each(['tollgate', 'valkey'])('%s can write only its data, and cannot gain privileges', (name) => {
    expect(services[name]).toMatchObject({
      read_only: true,
      cap_drop: ['ALL'],
      security_opt: ['no-new-privileges:true'],
      restart: 'unless-stopped',
    });
    expect(services[name].privileged).toBeUndefined();
  });

  test('Tollgate waits for its Redis, which has no published port and stores its data in a volume', () => {
    const { tollgate, valkey } = services;
    expect(Object.keys(tollgate.environment).filter((name) => !variables.includes(name))).toEqual([]);
    expect(loadConfig(tollgate.environment).redisUrl).toBe('redis://valkey:6379');
    expect(tollgate.depends_on).toEqual({ valkey: { condition: 'service_healthy' } });
    expect(tollgate.ports).toEqual(['127.0.0.1:8080:8080', `127.0.0.1:${tollgate.environment.METRICS_PORT}:9464`]);
    expect(valkey.ports).toBeUndefined();
    expect(Object.keys(volumes).map((volume) => `${volume}:/data`)).toEqual(valkey.volumes);
    expect(valkey.image).toMatch(/^valkey\/valkey:([89]|\d\d)\b/);
  });

  const bytesOf = (text: string) => {
    const [, count, unit] = /^(\d+)(m|g|mb|gb)$/.exec(text)!;
    return Number(count) * 1024 ** (unit!.startsWith('g') ? 3 : 2);
  };

  test('logs and memory are bounded, with room for a copy of what changes while Redis writes its file', () => {
    for (const name of ['tollgate', 'valkey']) {
      expect(services[name].logging).toEqual({ driver: 'local', options: { 'max-size': '10m', 'max-file': '5' } });
      expect(bytesOf(services[name].mem_limit)).toBeGreaterThan(0);
    }
    const { command, mem_limit } = services.valkey;
    expect(bytesOf(mem_limit)).toBe(2 * bytesOf(command[command.indexOf('--maxmemory') + 1]));
  });

  test('settings may be in a file that need not exist, and it has time to drain', () => {
    const { env_file, stop_grace_period } = services.tollgate;
    expect(env_file).toEqual([{ path: 'tollgate.env', required: false }]);
    expect(read('.gitignore').split('\n')).toContain(env_file[0].path);
    expect(Number.parseInt(stop_grace_period, 10)).toBeGreaterThan(stopSeconds + 5);
  });

  test('Redis accepts the arguments of its command, and its health check fails without Redis', async () => {
    const program = ['valkey-server', 'redis-server'].find((name) => spawnSync(name, ['--version']).status === 0);
    expect(program).toBeDefined();
    const dir = dirOfTest();
    const port = await freePort();
    const { command, healthcheck } = services.valkey;
    const place = ['--port', `${port}`, '--bind', '127.0.0.1', '--dir', dir];
    const [, cli, ...args] = healthcheck.test as string[];
    const check = () => spawnSync(cli!.replace('valkey', 'redis'), ['-p', `${port}`, ...args]).status;
    expect(check()).not.toBe(0);

    const redis = run(program!, [...command.slice(1), ...place]);
    try {
      await vi.waitFor(() => expect(check()).toBe(0), { timeout: 10_000, interval: 50 });
      const asked = [
        'appendonly',
        'appendfsync',
        'aof-timestamp-enabled',
        'save',
        'maxmemory',
        'maxmemory-policy',
        'hash-max-listpack-value',
        'lazyfree-*del',
      ];
      asked.push('lazyfree-lazy-expire');
      const { stdout } = spawnSync('redis-cli', ['--json', '-p', `${port}`, 'config', 'get', ...asked]);
      expect(JSON.parse(stdout.toString())).toEqual({
        appendonly: 'yes',
        appendfsync: 'everysec',
        'aof-timestamp-enabled': 'yes',
        save: '',
        maxmemory: `${1024 ** 3}`,
        'maxmemory-policy': 'noeviction',
        'hash-max-listpack-value': '16384',
        'lazyfree-lazy-expire': 'yes',
        'lazyfree-lazy-server-del': 'yes',
        'lazyfree-lazy-user-del': 'yes',
      });
    } finally {
      await redis.stop();
    }
  });
});

test('the backup of docs/backup.md in compose can be restored over other data', async () => {
  const page = read('docs/backup.md');
  const [, copy] = /exec -T valkey sh -ec '(.*)' > tollgate\.rdb/.exec(page)!;
  const [, restore] = /--entrypoint sh valkey -ec '(.*)' < tollgate\.rdb/.exec(page)!;
  const dir = dirOfTest();
  const dirs = ['from', 'to'].map((name) => join(dir, name));
  for (const each of dirs) mkdirSync(each);
  const [from, to] = dirs as [string, string];
  const words = ['--appendonly', 'yes'];
  const cli = (redis: { socket: string }, ...args: string[]) => spawnSync('redis-cli', ['-s', redis.socket, ...args]);
  try {
    const first = await runRedis(from, words);
    cli(first, 'set', 'kept', 'yes');
    const command = copy!.replace('valkey-cli', `redis-cli -s ${first.socket}`);
    const backup = spawnSync('sh', ['-ec', command], { cwd: from }).stdout;
    await first.stop();
    const other = await runRedis(to, words);
    cli(other, 'set', 'replaced', 'yes');
    await other.stop();

    expect(spawnSync('sh', ['-ec', restore!], { cwd: to, input: backup }).status).toBe(0);
    const restored = await runRedis(to, words);
    await vi.waitFor(() => expect(cli(restored, 'mget', 'kept', 'replaced').stdout.toString()).toBe('yes\n\n'));
    await restored.stop();
  } finally {
    rmSync(dir, { recursive: true });
  }
});

test('the YAML of docs/install.md names services, settings and paths that exist', () => {
  const [override, container] = blocksOf('docs/install.md', 'yaml').map((text) => parse(text));
  const { tollgate } = override.services;
  expect(Object.keys(parse(read('compose.yaml')).services)).toContain('tollgate');
  expect(tollgate.secrets).toEqual(Object.keys(override.secrets));
  const named = [...Object.keys(tollgate.environment), ...container.env.map(({ name }: { name: string }) => name)];
  expect(named.filter((name) => !variables.includes(name))).toEqual([]);
  const { livenessProbe, readinessProbe, terminationGracePeriodSeconds } = container;
  expect([livenessProbe, readinessProbe].map(({ httpGet }) => httpGet.path)).toEqual(['/health/live', '/health/ready']);
  const drainSeconds = Number(container.env.find(({ name }: { name: string }) => name === 'DRAIN_MS').value) / 1000;
  expect(terminationGracePeriodSeconds).toBeGreaterThan(drainSeconds + stopSeconds);
});

const hasSystemd = spawnSync('systemd-analyze', ['--version']).status === 0;

describe('deploy/systemd', () => {
  const unit = read('deploy/systemd/tollgate.service');
  const valuesOf = (name: string) => [...unit.matchAll(new RegExp(`^${name}=(.*)$`, 'gm'))].map((match) => match[1]!);
  const dir = dirOfFile();
  /** The output of systemd-analyze for a unit of this text, if it finds a fault. */
  const faultsOf = (text: string, ...words: string[]) => {
    const file = join(dir, 'tollgate.service');
    writeFileSync(file, text);
    const { status, stdout, stderr } = spawnSync('systemd-analyze', [...words, file], { encoding: 'utf8' });
    return status === 0 ? stderr : `${stdout}${stderr}`;
  };

  test.skipIf(!hasSystemd)('systemd accepts the unit, and rates it as install.md states', () => {
    expect(faultsOf(unit, 'verify', '--man=no')).toBe('');
    expect(faultsOf(unit.replace('Restart=', 'Restrat='), 'verify', '--man=no')).toContain('Restrat');
    const rate = ['security', '--offline=true', '--no-pager'];
    const exposure = spawnSync('systemd-analyze', [...rate, join(root, 'deploy/systemd/tollgate.service')]).stdout;
    const [, rated] = /exposure level for tollgate.service: ([\d.]+) OK/.exec(exposure.toString())!;
    expect(read('docs/install.md')).toContain(`rates it ${rated} of 10`);
  });

  test('it is restarted, and only its first process is asked to stop, with time for it', () => {
    expect(unit).toContain('\nRestart=always\n');
    expect(unit).toContain('\nKillMode=mixed\n');
    expect(unit).toContain('\nExecReload=kill -HUP $MAINPID\n');
    expect(Number(valuesOf('TimeoutStopSec')[0])).toBeGreaterThan(stopSeconds + 30);
  });

  test('its settings exist, its data directory is the one that it may write to, and the user and paths match', () => {
    const env = Object.fromEntries(valuesOf('Environment').map((pair) => pair.split('=')));
    expect(Object.keys(env).filter((name) => !variables.includes(name))).toEqual(['NODE_ENV']);
    expect(loadConfig(env)).toMatchObject({
      firstRootKey: 'none',
      dataDir: `/var/lib/${valuesOf('StateDirectory')[0]}`,
    });
    const [user] = valuesOf('User');
    expect(read('deploy/systemd/tollgate.sysusers.conf')).toMatch(
      new RegExp(`^u ${user} - ".*" ${env.TOLLGATE_DATA_DIR}$`, 'm'),
    );
    const command = read('deploy/systemd/tollgate');
    for (const part of [`runuser -u ${user} `, env.TOLLGATE_DATA_DIR!, '/opt/tollgate/dist/cli/index.js'])
      expect(command).toContain(part);
    expect(valuesOf('EnvironmentFile')).toEqual([`-${/--env-file=(\S+)/.exec(command)![1]}`]);
    expect(valuesOf('ExecStart')).toEqual(['node /opt/tollgate/dist/main.js']);
  });

  test('the example of the settings is accepted, with and without its comments', () => {
    const lines = read('deploy/tollgate.env.example').split('\n');
    const given = lines.filter((line) => /^#?[A-Z_]+=/.test(line)).map((line) => line.replace('#', '').split('='));
    expect(given.length).toBeGreaterThan(4);
    expect(given.map(([name]) => name).filter((name) => !variables.includes(name!))).toEqual([]);
    const plain = Object.fromEntries(given.filter(([name]) => !name!.endsWith('_FILE')));
    expect(() => loadConfig(plain)).not.toThrow();
  });
});

// biome-ignore lint/suspicious/noExplicitAny: any field may be read; the schema is what is tested.
type Manifest = any;

const kustomize = [
  ['kustomize', 'build'],
  ['kubectl', 'kustomize'],
].find(([program]) => spawnSync(program!, ['--help']).status === 0);
const overlays = ['own-redis', 'external-redis-tls', 'several-servers'];

/** The manifests of a folder as they are, and those of an overlay as kustomize renders it. */
function documentsOf(text: string): Manifest[] {
  return parseAllDocuments(text, { strict: true, uniqueKeys: true }).map((document) => {
    expect(document.errors).toEqual([]);
    return document.toJS();
  });
}

function rendered(folder: string): Manifest[] {
  const [program, word] = kustomize!;
  const { status, stdout, stderr } = spawnSync(program!, [word!, folder], { cwd: root, encoding: 'utf8' });
  expect([status, stderr]).toEqual([0, '']);
  return documentsOf(stdout);
}

const kinds = { Deployment, HorizontalPodAutoscaler, NetworkPolicy, PodDisruptionBudget, Secret, Service, StatefulSet };
const modules = {
  Deployment: 'apps/v1',
  HorizontalPodAutoscaler: 'autoscaling/v2',
  NetworkPolicy: 'networking.k8s.io/v1',
  PodDisruptionBudget: 'policy/v1',
  Secret: 'v1',
  Service: 'v1',
  StatefulSet: 'apps/v1',
};
const kindOf = ({ kind }: Manifest) => kind as keyof typeof kinds;
const problemOf = (manifest: Manifest): string | undefined => {
  try {
    new kinds[kindOf(manifest)](structuredClone(manifest)).validate();
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
};

/** What the compiler reports of manifests. The schemas accept unknown fields, as does a cluster, which drops them. */
function misspelled(manifests: Manifest[]): string[] {
  const dir = dirOfTest();
  const paths = manifests.map((manifest, at) => {
    const type = `import('${root}/node_modules/kubernetes-models/${modules[kindOf(manifest)]}/index.js').I${manifest.kind}`;
    const file = join(dir, `${manifest.kind}${at}.ts`);
    writeFileSync(file, `export const it: ${type} = ${JSON.stringify(manifest)};\n`);
    return file;
  });
  const options = ['--noEmit', '--strict', '--skipLibCheck', '--module', 'nodenext', '--types', ''];
  const { stdout } = spawnSync(join(root, 'node_modules/.bin/tsc'), [...options, ...paths], {
    cwd: dir, // Where there is no tsconfig.json.
    encoding: 'utf8',
  });
  return stdout.split('\n').filter((line) => line.includes('error TS'));
}

const named = (manifests: Manifest[], kind: string, name = 'tollgate') =>
  manifests.find((each) => each.kind === kind && each.metadata.name === name);
const containerOf = (manifests: Manifest[]) => named(manifests, 'Deployment').spec.template.spec.containers[0];

describe.skipIf(!kustomize)('deploy/kubernetes (needs kubectl or kustomize)', () => {
  const of = Object.fromEntries(
    kustomize ? overlays.map((name) => [name, rendered(`deploy/kubernetes/overlays/${name}`)]) : [],
  );

  test('the overlays render these objects', () => {
    const kindsOf = (name: string) => of[name]!.map(({ kind, metadata }) => `${kind} ${metadata.name}`).sort();
    const base = ['Deployment tollgate', 'NetworkPolicy tollgate', 'Service tollgate'];
    const redis = ['NetworkPolicy tollgate-redis', 'Service tollgate-redis', 'StatefulSet tollgate-redis'];
    const several = ['HorizontalPodAutoscaler tollgate', 'PodDisruptionBudget tollgate'];
    expect(kindsOf('own-redis')).toEqual([...base, ...redis].sort());
    expect(kindsOf('external-redis-tls')).toEqual(base);
    expect(kindsOf('several-servers')).toEqual([...base, ...several].sort());
    const folders = readdirSync(join(root, 'deploy/kubernetes/overlays')).sort();
    expect(folders).toEqual([...overlays].sort());
  });

  describe.each(overlays)('%s', (name) => {
    const manifests = of[name] ?? [];

    test('is valid against the schemas of its kinds', () => {
      for (const manifest of manifests) {
        expect(manifest.apiVersion).toBe(modules[kindOf(manifest)]);
        expect(problemOf(manifest)).toBeUndefined();
        expect(problemOf({ ...manifest, metadata: { name: 7 } })).toContain('metadata/name');
      }
    });

    test('names, labels and ports match each other', () => {
      const labels = named(manifests, 'Deployment').spec.template.metadata.labels;
      for (const kind of ['Deployment', 'PodDisruptionBudget'])
        expect(named(manifests, kind)?.spec.selector.matchLabels ?? labels).toEqual(labels);
      expect(named(manifests, 'Service').spec.selector).toEqual(labels);
      const { apiVersion, kind, metadata } = named(manifests, 'Deployment');
      const target = { apiVersion, kind, name: metadata.name };
      expect(named(manifests, 'HorizontalPodAutoscaler')?.spec.scaleTargetRef ?? target).toEqual(target);
      const [port, metrics] = containerOf(manifests).ports;
      expect(named(manifests, 'Service').spec.ports.map(({ targetPort }: Manifest) => targetPort)).toEqual([
        port.name,
        metrics.name,
      ]);
      const policy = named(manifests, 'NetworkPolicy').spec;
      expect(policy.podSelector.matchLabels).toEqual(labels);
      const admitted = policy.ingress.flatMap(({ ports }: Manifest) => ports.map(({ port }: Manifest) => port));
      expect(admitted).toEqual([port.name, metrics.name]);
      expect(read('Dockerfile')).toContain(`EXPOSE ${port.containerPort}\n`);
    });

    test('its settings exist, and are accepted', () => {
      const { env, ports } = containerOf(manifests);
      const known = variables.flatMap((variable) => [variable, `${variable}_FILE`]);
      expect(env.map(({ name }: Manifest) => name).filter((name: string) => !known.includes(name))).toEqual([]);
      const plain = env.filter(({ name, value }: Manifest) => value !== undefined && !name.endsWith('_FILE'));
      const config = loadConfig(Object.fromEntries(plain.map(({ name, value }: Manifest) => [name, value])));
      expect(ports[1]).toEqual({ name: 'metrics', containerPort: config.metricsPort });
      const gateway = env.find(({ name }: Manifest) => name === 'GATEWAY_ROOT_KEY');
      expect(gateway.valueFrom.secretKeyRef).toEqual({ name: 'tollgate', key: 'GATEWAY_ROOT_KEY', optional: true });
    });

    test('the pods meet the restricted profile, and have time to stop', () => {
      for (const { spec } of manifests.filter(({ kind }) => ['Deployment', 'StatefulSet'].includes(kind))) {
        const pod = spec.template.spec;
        const [container] = pod.containers;
        expect(pod.automountServiceAccountToken).toBe(false);
        expect(pod.securityContext).toMatchObject({ runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } });
        expect(container.securityContext).toEqual({
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ['ALL'] },
        });
        expect(container.image).toMatch(/@sha256:[0-9a-f]{64}$/);
        expect(container.resources).toEqual({
          requests: { cpu: expect.any(String), memory: expect.any(String) },
          limits: { memory: expect.any(String) },
        });
        for (const { name } of container.volumeMounts ?? [])
          expect([
            ...(pod.volumes ?? []),
            ...(spec.volumeClaimTemplates ?? []).map(({ metadata }: Manifest) => metadata),
          ]).toContainEqual(expect.objectContaining({ name }));
      }
      const pod = named(manifests, 'Deployment').spec.template.spec;
      const { runAsUser, runAsGroup } = pod.securityContext;
      expect(read('Dockerfile')).toContain(`USER ${runAsUser}:${runAsGroup}\n`);
      const container = containerOf(manifests);
      const waitSeconds = Number(container.env.find(({ name }: Manifest) => name === 'DRAIN_MS').value) / 1000;
      expect(pod.terminationGracePeriodSeconds).toBeGreaterThan(stopSeconds + waitSeconds);
      expect(container.livenessProbe.httpGet.path).toBe('/health/live');
      expect(container.readinessProbe.httpGet.path).toBe('/health/ready');
    });
  });

  test('no field of any is misspelled', { timeout: 120_000 }, () => {
    const wrong = structuredClone(named(of['own-redis']!, 'Deployment'));
    wrong.spec.template.spec.containers[0].readynessProbe = {};
    const errors = misspelled([...overlays.flatMap((name) => of[name]!), wrong]);
    expect(errors).toEqual([expect.stringMatching(/readynessProbe.* does not exist/)]);
  });

  test('its own Redis is that of compose.yaml, and only Tollgate reaches it', () => {
    const manifests = of['own-redis']!;
    const { spec } = named(manifests, 'StatefulSet', 'tollgate-redis');
    const [container] = spec.template.spec.containers;
    const { image, command, user } = parse(read('compose.yaml'), { merge: true }).services.valkey;
    expect([container.image, container.command]).toEqual([image, command]);
    const { runAsUser, runAsGroup } = spec.template.spec.securityContext;
    expect(`${runAsUser}:${runAsGroup}`).toBe(user);
    const service = named(manifests, 'Service', 'tollgate-redis');
    const url = containerOf(manifests).env.find(({ name }: Manifest) => name === 'REDIS_URL');
    expect(url).toEqual({ name: 'REDIS_URL', value: `redis://${service.metadata.name}:${service.spec.ports[0].port}` });
    const policy = named(manifests, 'NetworkPolicy', 'tollgate-redis').spec;
    for (const labels of [policy.podSelector.matchLabels, service.spec.selector, spec.selector.matchLabels])
      expect(labels).toEqual(spec.template.metadata.labels);
    const clients = named(manifests, 'Deployment').spec.template.metadata.labels;
    expect(policy.ingress).toEqual([
      { from: [{ podSelector: { matchLabels: clients } }], ports: [{ port: 'redis', protocol: 'TCP' }] },
    ]);
    expect(policy.egress).toEqual([]);
  });

  test('a Redis elsewhere is reached with a secret and an authority from mounted files', () => {
    const manifests = of['external-redis-tls']!;
    const [secret] = documentsOf(read('deploy/kubernetes/overlays/external-redis-tls/secret.example.yaml'));
    expect(problemOf(secret)).toBeUndefined();
    expect(Object.keys(secret.stringData)).toEqual(['REDIS_URL']);
    expect(secret.stringData.REDIS_URL).not.toContain('@');
    const { env, volumeMounts } = containerOf(manifests);
    const value = (name: string) => env.find((each: Manifest) => each.name === name)?.value;
    expect(env.map(({ name }: Manifest) => name)).not.toContain('REDIS_URL');
    const { volumes } = named(manifests, 'Deployment').spec.template.spec;
    const mounted = volumeMounts.flatMap(({ name, mountPath, readOnly }: Manifest) => {
      expect(readOnly).toBe(true);
      const volume = volumes.find((each: Manifest) => each.name === name);
      return (volume.secret?.items ?? [{ path: 'ca.crt' }]).map(({ path }: Manifest) => `${mountPath}/${path}`);
    });
    expect(mounted.sort()).toEqual([value('REDIS_CA_FILE'), value('REDIS_URL_FILE')]);
    expect(volumes[0].secret.secretName).toBe(secret.metadata.name);
    const comment = read('deploy/kubernetes/overlays/external-redis-tls/kustomization.yaml');
    expect(comment).toContain(`create configmap ${volumes[1].configMap.name} --from-file=ca.crt`);
    expect(comment).toContain(`create secret generic ${secret.metadata.name} --from-literal=REDIS_URL=`);
  });

  test('the ServiceMonitor finds the metrics of the Service, and the alerts become a PrometheusRule', () => {
    // It is of the Prometheus Operator, of which there is no schema here.
    const [manifest] = documentsOf(read('deploy/kubernetes/components/prometheus-operator/servicemonitor.yaml'));
    const { metadata, spec } = named(of['own-redis']!, 'Service');
    expect(manifest.spec.selector.matchLabels).toEqual(metadata.labels);
    const [endpoint] = manifest.spec.endpoints;
    expect(spec.ports.map(({ name }: Manifest) => name)).toContain(endpoint.port);
    const [scrape] = parse(read('deploy/prometheus/prometheus.yaml')).scrape_configs;
    expect(metadata.name).toBe(scrape.job_name);
    expect(endpoint).toMatchObject({ interval: scrape.scrape_interval, scrapeTimeout: scrape.scrape_timeout });

    const [, command] = /```text\n(\(printf 'apiVersion[\s\S]*?) \| kubectl apply -f -\n```/.exec(
      read('docs/install.md'),
    )!;
    const rule = parse(spawnSync('sh', ['-ec', command!], { cwd: root, encoding: 'utf8' }).stdout);
    expect(rule).toMatchObject({ kind: 'PrometheusRule', spec: parse(read('deploy/prometheus/tollgate.rules.yaml')) });
  });

  test('every folder that docs/install.md applies renders, and every file of deploy/kubernetes is in one', () => {
    const folders = [...read('docs/install.md').matchAll(/kubectl apply -k (\S+)/g)].map(([, folder]) => folder!);
    expect(folders.length).toBeGreaterThan(0);
    for (const folder of folders) expect(rendered(folder).length).toBeGreaterThan(0);
    const below = readdirSync(join(root, 'deploy/kubernetes'), { recursive: true, encoding: 'utf8' });
    const texts = below
      .filter((file) => file.endsWith('kustomization.yaml'))
      .map((file) => read(`deploy/kubernetes/${file}`));
    const others = below.filter((file) => /\.yaml$/.test(file) && !/kustomization|example/.test(file));
    for (const file of others)
      expect(
        texts.some(
          (text) => text.includes(`- ${file.split('/').at(-1)}`) || text.includes(`path: ${file.split('/').at(-1)}`),
        ),
        file,
      ).toBe(true);
  });
});
