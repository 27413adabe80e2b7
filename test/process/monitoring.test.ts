// Compares deploy/ with a real scrape: it has every name and label that the dashboard and the alerts use. Both files
// have the format that Grafana and Prometheus read.

import { spawnSync } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { appendFileSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { parse, stringify } from 'yaml';
import { makeCertificates } from '../support/certificates.ts';
import { readMetrics, type Series } from '../support/metrics.ts';
import { dirOfFile, dirOfTest } from '../support/ofFile.ts';
import { build, firstRootKeyOf, startServer } from '../support/processes.ts';
import { thoroughTest } from '../support/testIf.ts';

const read = (path: string) => readFileSync(new URL(`../../deploy/${path}`, import.meta.url), 'utf8');

interface Target {
  refId: string;
  expr: string;
  datasource: { type: string; uid: string };
}
interface Panel {
  id: number;
  type: string;
  title: string;
  description?: string;
  gridPos: { h: number; w: number; x: number; y: number };
  targets?: Target[];
}
interface Variable {
  name: string;
  type: string;
  query: string | { query: string };
}
const dashboard: {
  title: string;
  uid: string;
  schemaVersion: number;
  panels: Panel[];
  templating: { list: Variable[] };
} = JSON.parse(read('grafana/tollgate.json'));
interface Rule {
  alert: string;
  expr: string;
  for?: string;
  labels: { severity: string };
  annotations: { summary: string; description: string };
}
const rules: { groups: { name: string; rules: Rule[] }[] } = parse(read('prometheus/tollgate.rules.yaml'));
const alerts = rules.groups.flatMap((group) => group.rules);
interface InhibitRule {
  source_matchers: [string];
  target_matchers: [string];
  equal: string[];
}
const { inhibit_rules: inhibitRules }: { inhibit_rules: InhibitRule[] } = parse(read('prometheus/alertmanager.yaml'));
/** The alerts that a matcher of an inhibit rule names. */
const named = ([matcher]: [string]) => /^alertname =~? "([\w|]+)"$/.exec(matcher)![1]!.split('|');
const inhibits = (source: string, target: string) =>
  inhibitRules.some(
    (rule) => named(rule.source_matchers).includes(source) && named(rule.target_matchers).includes(target),
  );
const prometheus = parse(read('prometheus/prometheus.yaml'));

let series: Series[];
let types: Map<string, string>;
let certificateEndsMs: number;

beforeAll(build, 120_000);
const dir = dirOfFile();
beforeAll(async () => {
  const { caFile, certFile, keyFile } = makeCertificates(dir);
  // A server may send an intermediate certificate, which may end first.
  const soon = makeCertificates(mkdtempSync(join(dir, 'soon-')), 1);
  appendFileSync(certFile, readFileSync(soon.caFile));
  certificateEndsMs = Date.parse(new X509Certificate(readFileSync(soon.caFile)).validTo);
  // Embedded and with TLS, so that the metrics of the disk and of the certificate are there.
  const settings = {
    TOLLGATE_DATA_DIR: join(dir, 'data'),
    TLS_CERT_FILE: certFile,
    TLS_KEY_FILE: keyFile,
    METRICS_PORT: '0',
    LOG_LEVEL: 'silent',
  };
  let server = await startServer(settings);
  const rootKey = await firstRootKeyOf(server);
  const ca = readFileSync(caFile);
  const post = async (path: string, headers: Record<string, string>, body = '') => {
    const sent = request(server.url + path, { method: 'POST', ca, headers }).end(body);
    const [response] = (await once(sent, 'response')) as [IncomingMessage];
    response.resume();
    return response.statusCode;
  };
  const headers = { authorization: `Bearer ${rootKey}`, 'content-type': 'application/json' };
  // A root key that ends is reported by the next start, which is given it for the gateway check.
  const expires = Date.now() + 86_400_000;
  const made = request(`${server.url}/v2/rootKeys.createRootKey`, { method: 'POST', ca, headers });
  made.end(JSON.stringify({ permissions: ['api.*.verify_key'], expires }));
  const [response] = (await once(made, 'response')) as [IncomingMessage];
  const { data } = JSON.parse(Buffer.concat(await response.toArray()).toString());
  await server.stop();
  server = await startServer({ ...settings, GATEWAY_ROOT_KEY: data.key });
  // One call of each kind, as some series exist only after the first call.
  expect(await post('/v2/keys.verifyKey', headers, '{"key":"unknown"}')).toBe(200);
  const check = { namespace: 'a', identifier: 'b', limit: 1, duration: 1000 };
  expect(await post('/v2/ratelimits.limit', headers, JSON.stringify(check))).toBe(200);
  // A gateway check as the documents recommend it, which is an operation of its own in the metrics.
  const ofGateway = { authorization: 'Bearer unknown', 'x-tollgate-root-key': rootKey };
  expect(await post('/v2/gateway/check', ofGateway)).toBe(401);
  await vi.waitFor(async () => {
    ({ series, types } = readMetrics(await (await fetch(server.metricsUrl!)).text()));
    const [found] = series.filter(({ name }) => name === 'tollgate_root_key_expiry_timestamp_seconds');
    expect(found).toMatchObject({ value: expires / 1000, labels: { used_by: 'gateway' } });
  }, 30_000);
  await server.stop();
});
afterAll(() => expect(series.length).toBeGreaterThan(100));

/** Prometheus's own metrics of each target, and the labels that it adds to all series. */
const ofPrometheus = { names: ['up'], labels: ['job', 'instance'] };
const functions = ['count', 'rate', 'increase', 'sum', 'min', 'max', 'absent', 'histogram_quantile', 'vector', 'time'];
const words = ['by', 'or', 'and', 'unless', 'offset'];

interface Use {
  name: string;
  matchers: { label: string; operator: string; value: string }[];
}

/** The metrics in a PromQL expression, with their matchers, and its grouping labels. Throws for an unknown name. */
function usesOf(expr: string): { uses: Use[]; grouped: string[] } {
  const uses: Use[] = [];
  const grouped: string[] = [];
  let depth = 0;
  const token =
    /\s+|by \(([\w, ]+)\)|([a-zA-Z_]\w*)\s*(\{[^}]*\})?(\[(?:\d+[smhd]|\$__rate_interval)\])?|[\d.]+[dh]?|[<>=!]=|[-+*/<>,()]/y;
  while (token.lastIndex < expr.length) {
    const at = token.lastIndex;
    const match = token.exec(expr);
    if (!match) throw new Error(`PromQL that this test does not read: ${expr.slice(at)}`);
    const [text, by, word, matchers, range] = match;
    depth += text === '(' ? 1 : text === ')' ? -1 : 0;
    if (by) grouped.push(...by.split(/, */));
    if (!word) continue;
    const isCall = /^\s*(\(|by )/.test(expr.slice(token.lastIndex));
    if (isCall) expect(functions, expr).toContain(word);
    else if (!words.includes(word)) {
      // A counter is read by its increase, a gauge directly.
      const rises = /_(total|bucket|sum|count)$/.test(word);
      expect(range !== undefined, `${word} in ${expr}`).toBe(rises);
      uses.push({
        name: word,
        matchers: [...(matchers ?? '').matchAll(/(\w+)(=~|!~|!=|=)"([^"]*)"/g)].map(([, label, operator, value]) => ({
          label: label!,
          operator: operator!,
          value: value!,
        })),
      });
    }
  }
  expect(depth, expr).toBe(0);
  expect(uses, expr).not.toEqual([]);
  return { uses, grouped };
}

function expectKnown(expr: string) {
  const { uses, grouped } = usesOf(expr);
  for (const { name, matchers } of uses) {
    const found = series.filter((each) => each.name === name);
    if (!ofPrometheus.names.includes(name)) expect(found.length, `${name} in a scrape`).toBeGreaterThan(0);
    for (const { label, operator, value } of matchers) {
      if (ofPrometheus.labels.includes(label)) continue;
      expect(
        found.flatMap((each) => Object.keys(each.labels)),
        `${label} of ${name}`,
      ).toContain(label);
      // A pattern of statuses may match nothing yet. A list of names must match.
      const values = operator === '=' ? [value] : operator === '=~' && value.includes('|') ? value.split('|') : [];
      expect(
        found.map((each) => each.labels[label]),
        `${label} of ${name}`,
      ).toEqual(expect.arrayContaining(values));
    }
    for (const label of grouped.filter((each) => !ofPrometheus.labels.includes(each))) {
      expect(
        found.every((each) => label in each.labels),
        `${name} grouped by ${label}`,
      ).toBe(true);
    }
  }
  if (expr.includes('histogram_quantile')) {
    expect(grouped).toContain('le');
    for (const { name } of uses) expect(types.get(name.replace(/_bucket$/, '')), name).toBe('histogram');
  }
}

test('the end of the certificate is that of the first of its chain that ends', () => {
  const [found] = series.filter(({ name }) => name === 'tollgate_certificate_expiry_timestamp_seconds');
  expect(found!.value).toBe(certificateEndsMs / 1000);
});

describe('the check of expressions finds errors', () => {
  test.each([
    'tollgate_nothing',
    'rate(tollgate_requests_total)',
    'tollgate_redis_up[5m]',
    'sum by (path) (tollgate_redis_up)',
    'tollgate_redis_up{path="a"} == 0',
    'rate(tollgate_requests_total{operation="keys.nothing"}[5m])',
    'rate(tollgate_requests_total{operation=~"keys.verifyKey|gateway.nothing"}[5m])',
    'average(tollgate_redis_up)',
    'sum(tollgate_redis_up',
    'histogram_quantile(0.9, sum by (le) (rate(tollgate_requests_total[5m])))',
  ])('%s', (expr) => expect(() => expectKnown(expr)).toThrow());
});

const panels = dashboard.panels.filter(({ type }) => type !== 'row');

describe('the dashboard', () => {
  test('can be imported by Grafana: ids, positions and data sources', () => {
    expect(dashboard).toMatchObject({ title: 'Tollgate', uid: 'tollgate', schemaVersion: expect.any(Number) });
    expect(new Set(dashboard.panels.map(({ id }) => id)).size).toBe(dashboard.panels.length);
    const taken = new Set<string>();
    for (const { title, gridPos } of dashboard.panels) {
      expect(gridPos.x + gridPos.w, title).toBeLessThanOrEqual(24);
      for (let x = gridPos.x; x < gridPos.x + gridPos.w; x++) {
        for (let y = gridPos.y; y < gridPos.y + gridPos.h; y++) {
          expect(taken.has(`${x},${y}`), `${title} lies on another panel`).toBe(false);
          taken.add(`${x},${y}`);
        }
      }
    }
    for (const { title, type, description, targets } of panels) {
      expect(['stat', 'timeseries'], title).toContain(type);
      expect(description, title).toMatch(/.{10,}\.$/);
      expect(targets!.length, title).toBeGreaterThan(0);
      expect(new Set(targets!.map(({ refId }) => refId)).size, title).toBe(targets!.length);
      for (const { datasource } of targets!) expect(datasource.uid).toMatch(/^\$\{datasource\}$/);
    }
  });

  test('its variables are those that its expressions use, from an existing metric', () => {
    const { list } = dashboard.templating;
    const used = new Set(
      [...JSON.stringify(dashboard).matchAll(/\$\{?(\w+)\}?/g)]
        .map(([, name]) => name!)
        .filter((name) => !name.startsWith('__')),
    );
    expect([...used].sort()).toEqual(list.map(({ name }) => name).sort());
    for (const { query, type } of list.filter((each) => each.type === 'query')) {
      expect(type).toBe('query');
      const metric = /^label_values\((\w+)(?:\{[^}]*\})?, (?:job|instance)\)$/.exec(
        (query as { query: string }).query,
      )?.[1];
      expect(series.some(({ name }) => name === metric)).toBe(true);
    }
  });

  test.each(panels.flatMap(({ title, targets }) => targets!.map(({ expr }) => [title, expr] as const)))(
    '%s: %s',
    (_title, expr) => expectKnown(expr),
  );

  test('has every metric of Tollgate', () => {
    const used = panels.flatMap(({ targets }) =>
      targets!.flatMap(({ expr }) => usesOf(expr).uses.map(({ name }) => name)),
    );
    const families = [...types.keys()].filter((name) => name.startsWith('tollgate_'));
    const missing = families.filter((name) => !used.some((each) => each.replace(/_(bucket|sum|count)$/, '') === name));
    expect(missing).toEqual([]);
  });
});

describe('the alerts', () => {
  test.each(alerts.map((rule) => [rule.alert, rule] as const))(
    '%s',
    (_name, { alert, expr, for: wait, labels, annotations }) => {
      expect(alert).toMatch(/^Tollgate[A-Z]\w+$/);
      expectKnown(expr);
      if (wait !== undefined) expect(wait).toMatch(/^\d+[sm]$/);
      expect(['page', 'ticket']).toContain(labels.severity);
      expect(Object.keys(annotations)).toEqual(['summary', 'description']);
      for (const text of Object.values(annotations)) expect(text).toMatch(/.{10,}\.$/);
      for (const [, label] of annotations.description.matchAll(/\$labels\.(\w+)/g))
        expect([...ofPrometheus.labels, ...usesOf(expr).grouped.flatMap((by) => by.split(/, */))]).toContain(label);
      // Each alert selects the job of prometheus.yaml.
      for (const { matchers } of usesOf(expr).uses) {
        expect(matchers).toContainEqual({ label: 'job', operator: '=', value: 'tollgate' });
      }
    },
  );

  test('the inhibit rules name existing alerts', () => {
    const names = inhibitRules.flatMap((rule) => [...named(rule.source_matchers), ...named(rule.target_matchers)]);
    expect(alerts.map(({ alert }) => alert)).toEqual(expect.arrayContaining(names));
    for (const { equal } of inhibitRules) expect(equal).toEqual(['job']);
  });

  test('all names differ', () => {
    expect(alerts.length).toBeGreaterThan(5);
    expect(new Set(alerts.map(({ alert }) => alert)).size).toBe(alerts.length);
  });
});

test("Prometheus's configuration names the existing job and rules", () => {
  expect(prometheus.scrape_configs).toHaveLength(1);
  expect(prometheus.scrape_configs[0]).toMatchObject({
    job_name: 'tollgate',
    static_configs: [{ targets: [expect.any(String)] }],
  });
  for (const file of prometheus.rule_files) expect(read(`prometheus/${file}`)).toContain('groups:');
});

const hasPromtool = !spawnSync('promtool', ['--version']).error;
if (!hasPromtool)
  console.warn("test/process/monitoring.test.ts: Prometheus's own tests are SKIPPED: there is no promtool here.");

describe.skipIf(!hasPromtool)('by Prometheus itself (promtool)', () => {
  const promtool = (...words: string[]) => {
    const { status, stdout, stderr } = spawnSync('promtool', words, { encoding: 'utf8' });
    expect([status, status === 0 ? '' : stdout + stderr]).toEqual([0, '']);
  };
  const rulesFile = resolve('deploy/prometheus/tollgate.rules.yaml');

  test('the rules and the configuration are read', () => {
    promtool('check', 'rules', rulesFile);
    promtool('check', 'config', resolve('deploy/prometheus/prometheus.yaml'));
  });

  /** Requests per minute by `le`: those with an `le` of 0.05 are fast. */
  const requests = (operation: string, of: Record<string, number>) =>
    Object.entries(of).map(([le, perMinute]) => ({
      series: `tollgate_request_duration_seconds_bucket{job="tollgate", instance="a", operation="${operation}", le="${le}"}`,
      values: `0+${perMinute}x30`,
    }));
  const count = (status: string, perMinute: number) => ({
    series: `tollgate_requests_total{job="tollgate", instance="a", operation="gateway.check", status="${status}"}`,
    values: `0+${perMinute}x30`,
  });
  const expand = (expr: string) =>
    expr.replaceAll('$job', 'tollgate').replaceAll('$instance', '.*').replaceAll('$__rate_interval', '5m');
  const exprOf = (title: string) => expand(panels.find((panel) => panel.title === title)!.targets![0]!.expr);

  function testRules(tests: object[]) {
    const file = join(dirOfTest(), 'tests.yaml');
    writeFileSync(file, stringify({ rule_files: [rulesFile], evaluation_interval: '1m', tests }));
    promtool('test', 'rules', file);
  }

  test.each(['keys.verifyKey', 'gateway.check'])('TollgateSlow and the panels detect %s', (operation) => {
    const { annotations, labels } = alerts.find(({ alert }) => alert === 'TollgateSlow')!;
    const fires = {
      exp_labels: { ...labels, job: 'tollgate', instance: 'a' },
      exp_annotations: {
        summary: annotations.summary,
        description: annotations.description.replace('{{ $labels.instance }}', 'a').replace(/\{\{ .*? \}\}/, '199ms'),
      },
    };
    const slow = requests(operation, { '0.1': 0, '0.2': 600, '+Inf': 600 });
    const quick = requests(operation, { '0.1': 600, '0.2': 600, '+Inf': 600 });
    const alertAt = (exp_alerts: object[]) => [{ alertname: 'TollgateSlow', eval_time: '20m', exp_alerts }];
    const p99 = (value: number) => [
      { expr: `round(1000 * ${exprOf('Verification p99')})`, eval_time: '20m', exp_samples: [{ labels: '{}', value }] },
    ];
    testRules([
      { interval: '1m', input_series: slow, alert_rule_test: alertAt([fires]), promql_expr_test: p99(199) },
      { interval: '1m', input_series: quick, alert_rule_test: alertAt([]), promql_expr_test: p99(99) },
    ]);
  });

  const mib = 2 ** 20;

  test.each([
    ['TollgateRedisMemoryHigh', { tollgate_redis_memory_bytes: 76, tollgate_redis_memory_max_bytes: 100 }, true],
    ['TollgateRedisMemoryHigh', { tollgate_redis_memory_bytes: 75, tollgate_redis_memory_max_bytes: 100 }, false],
    ['TollgateRedisMemoryCritical', { tollgate_redis_memory_bytes: 91, tollgate_redis_memory_max_bytes: 100 }, true],
    ['TollgateRecordsNearlyUsedUp', { tollgate_largest_workspace_records: 81, tollgate_records_max: 100 }, true],
    ['TollgateRecordsNearlyUsedUp', { tollgate_largest_workspace_records: 81, tollgate_records_max: 0 }, false],
    [
      'TollgateDiskSpaceLow',
      { tollgate_disk_free_bytes: 9, tollgate_disk_size_bytes: 10, tollgate_redis_aof_bytes: 8 },
      false,
    ],
    [
      'TollgateDiskSpaceLow',
      { tollgate_disk_free_bytes: 7, tollgate_disk_size_bytes: 10, tollgate_redis_aof_bytes: 8 },
      true,
    ],
    ['TollgateDiskSpaceLow', { tollgate_disk_free_bytes: mib, tollgate_disk_size_bytes: 10 * mib }, true],
    ['TollgateDiskSpaceCritical', { tollgate_disk_free_bytes: 4, tollgate_disk_size_bytes: 100 }, true],
    ['TollgateAppendOnlyFile', { tollgate_redis_aof_rewritten: 0, tollgate_redis_aof_written: 1 }, true],
    ['TollgateAppendOnlyFile', { tollgate_redis_aof_rewritten: 1, tollgate_redis_aof_written: 1 }, false],
    ['TollgateFileDescriptors', { process_open_fds: 81, process_max_fds: 100 }, true],
    ['TollgateFileDescriptors', { process_open_fds: 80, process_max_fds: 100 }, false],
    // The time of promtool begins in 1970.
    ['TollgateCertificateExpires', { tollgate_certificate_expiry_timestamp_seconds: 13 * 86_400 }, true],
    ['TollgateCertificateExpires', { tollgate_certificate_expiry_timestamp_seconds: 15 * 86_400 }, false],
    ['TollgateRootKeyExpires', { tollgate_root_key_expiry_timestamp_seconds: 13 * 86_400 }, true],
    ['TollgateRootKeyExpires', { tollgate_root_key_expiry_timestamp_seconds: 15 * 86_400 }, false],
    ['TollgateMigrationDue', { tollgate_migration_due: 1 }, true],
    ['TollgateMigrationDue', { tollgate_migration_due: 0 }, false],
    ['TollgateStoreRefusesWrites', { tollgate_redis_writes_refused: 1 }, true],
    ['TollgateStoreRefusesWrites', { tollgate_redis_writes_refused: 0 }, false],
  ] as const)('%s with %j fires: %s', (alert, values, expected) => {
    const rule = alerts.find((each) => each.alert === alert)!;
    const labels = alert === 'TollgateStoreRefusesWrites' ? ', reason="disk_full"' : '';
    testRules([
      {
        interval: '1m',
        input_series: Object.entries(values).map(([name, value]) => ({
          series: `${name}{job="tollgate", instance="a"${labels}}`,
          values: `${value}x180`,
        })),
        promql_expr_test: [
          {
            expr: `count(ALERTS{alertname="${alert}", alertstate="firing", severity="${rule.labels.severity}"}) or vector(0)`,
            eval_time: '150m',
            exp_samples: [{ labels: '{}', value: expected ? 1 : 0 }],
          },
        ],
      },
    ]);
  });

  thoroughTest(
    'the nights of tests.yaml: quiet ones do not page, each outage pages once after the inhibit rules',
    () => {
      promtool('test', 'rules', resolve('deploy/prometheus/tests.yaml'));
      interface Night {
        name: string;
        promql_expr_test: [{ exp_samples: { labels: string }[] }];
      }
      const { tests }: { tests: Night[] } = parse(read('prometheus/tests.yaml'));
      const paged = tests.map(({ name, promql_expr_test: [{ exp_samples }] }) => {
        const firing = exp_samples.map(({ labels }) => /alertname="(\w+)"/.exec(labels)![1]!);
        return [name, firing.filter((alert) => !firing.some((other) => inhibits(other, alert))).length];
      });
      expect(paged).toEqual(tests.map(({ name }) => [name, name.startsWith('quiet: ') ? 0 : 1]));
      expect(tests.length).toBeGreaterThan(9);
      // A minute of computing.
    },
    600_000,
  );

  test('the panel of 5xx responses is a share, and 0 without any, also without requests', () => {
    const is = (value: number) => [
      { expr: exprOf('5xx responses'), eval_time: '20m', exp_samples: [{ labels: '{}', value }] },
    ];
    testRules([
      { interval: '1m', input_series: [count('200', 90), count('503', 10)], promql_expr_test: is(0.1) },
      { interval: '1m', input_series: [count('200', 90)], promql_expr_test: is(0) },
      { interval: '1m', input_series: [count('200', 0), count('503', 0)], promql_expr_test: is(0) },
      { interval: '1m', input_series: [], promql_expr_test: is(0) },
    ]);
  });
});
