// The workflows of .github/: their members are those that GitHub knows, and what they may do is bounded.

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';

const folder = '.github/workflows';
const read = (file: string) => readFileSync(file, 'utf8');
/** The members that our workflows use. GitHub refuses a workflow with another name. */
const known = {
  workflow: ['concurrency', 'env', 'jobs', 'name', 'on', 'permissions'],
  events: ['pull_request', 'push', 'workflow_call', 'workflow_dispatch'],
  job: 'env environment if name needs outputs permissions runs-on steps strategy timeout-minutes uses with'.split(' '),
  step: ['env', 'id', 'if', 'name', 'run', 'shell', 'uses', 'with', 'working-directory'],
};
/** Names that are not known, and steps that have not exactly one thing to do. */
function problemsOf(workflow: Workflow): string[] {
  const jobs = Object.values(workflow.jobs);
  const steps = jobs.flatMap(({ steps = [] }) => steps);
  const others = (kind: keyof typeof known, of: object) =>
    Object.keys(of).filter((name) => !known[kind].includes(name));
  return [
    ...others('workflow', workflow),
    ...others('events', workflow.on),
    ...jobs.flatMap((job) => others('job', job)),
    ...steps.flatMap((step) => others('step', step)),
    ...steps
      .filter(({ uses, run }) => (uses === undefined) === (run === undefined))
      .map((step) => JSON.stringify(step)),
    ...jobs
      .filter(({ uses, steps }) => (uses === undefined) === (steps === undefined))
      .map((job) => JSON.stringify(job)),
  ];
}
const files = readdirSync(folder).sort();

interface Step {
  name?: string;
  uses?: string;
  run?: string;
  with?: Record<string, unknown>;
}
interface Job {
  uses?: string;
  steps?: Step[];
  permissions?: Record<string, string>;
  'timeout-minutes'?: number;
}
interface Workflow {
  on: Record<string, unknown>;
  permissions: Record<string, string>;
  jobs: Record<string, Job>;
}
const workflowOf = (file: string) => parse(read(`${folder}/${file}`), { strict: true, uniqueKeys: true }) as Workflow;
const stepsOf = (file: string) => Object.values(workflowOf(file).jobs).flatMap(({ steps = [] }) => steps);

test('there are two', () => {
  expect(files).toEqual(['ci.yml', 'release.yml']);
});

describe.each(files)('%s', (file) => {
  test('has only names that GitHub knows, and each step does one thing', () => {
    const workflow = workflowOf(file);
    expect(problemsOf(workflow)).toEqual([]);
    const [name, job] = Object.entries(workflow.jobs).find(([, { steps }]) => steps)!;
    const misspelled = { ...job, 'timeout-minute': 5 };
    expect(problemsOf({ ...workflow, jobs: { [name]: misspelled } })).toEqual(['timeout-minute']);
    expect(problemsOf({ ...workflow, on: { pushed: {} } })).toEqual(['pushed']);
    expect(problemsOf({ ...workflow, jobs: { [name]: { ...job, steps: [{ name: 'idle' }] } } })).toHaveLength(1);
  });

  test('names each action by the commit of a release', () => {
    const lines = read(`${folder}/${file}`).match(/^.*\buses: .*$/gm)!;
    for (const line of lines) expect(line).toMatch(/uses: (\.\/\S+|[\w-]+\/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+)$/);
    const names = new Map<string, Set<string>>();
    for (const line of lines) {
      const [, action, commit] = /uses: (\S+)@(\S+)/.exec(line) ?? [];
      if (action) names.set(action, (names.get(action) ?? new Set()).add(commit!));
    }
    for (const [action, commits] of names) expect([action, commits.size]).toEqual([action, 1]);
  });

  test('may only read unless a job states more, ends in time, and no checkout keeps its token', () => {
    const { permissions, jobs } = workflowOf(file);
    expect(permissions).toEqual({ contents: 'read' });
    for (const { uses, 'timeout-minutes': minutes } of Object.values(jobs))
      if (!uses) expect(minutes).toBeGreaterThan(0);
    for (const { uses, with: given } of stepsOf(file))
      if (uses?.startsWith('actions/checkout@')) expect(given?.['persist-credentials']).toBe(false);
  });

  test('no command has an expression, which a branch or a tag could fill with commands', () => {
    for (const { run } of stepsOf(file)) expect(run ?? '').not.toContain('${{');
  });
});

test('what starts them, and what each job may do', () => {
  expect(workflowOf('ci.yml').on).toEqual({ push: { branches: ['main'] }, pull_request: null, workflow_call: null });
  const permissionsOf = (file: string) =>
    Object.entries(workflowOf(file).jobs).map(([name, { permissions }]) => [name, permissions]);
  expect(permissionsOf('ci.yml')).toEqual([['check', undefined]]);
  const attests = { 'id-token': 'write', attestations: 'write' };
  expect(permissionsOf('release.yml')).toEqual([
    ['check', undefined],
    ['archive', { contents: 'write', ...attests }],
    ['image', { contents: 'read', packages: 'write', ...attests }],
  ]);
});

test('the commands are those that run here', () => {
  const commands = files.flatMap(stepsOf).flatMap(({ run }) => run ?? []);
  expect(commands).toContainEqual(expect.stringContaining('bash .ci/run'));
  expect(existsSync('.ci/run')).toBe(true);
  const { scripts } = JSON.parse(read('package.json'));
  const named = commands.flatMap((command) => [...command.matchAll(/npm run (\S+)/g)].map(([, name]) => name!));
  expect(named).toEqual(['release']);
  for (const name of named) expect(Object.keys(scripts)).toContain(name);
});

test('a tag of the form that npm run release makes starts a release, after the checks', () => {
  const { on, jobs } = workflowOf('release.yml');
  expect(on).toEqual({ push: { tags: ['v[0-9]+.[0-9]+.[0-9]+'] } });
  expect(jobs.check!.uses).toBe(`./${folder}/ci.yml`);
  expect(workflowOf('ci.yml').on).toHaveProperty('workflow_call');
  const needs = Object.fromEntries(
    Object.entries(jobs).map(([name, job]) => [name, (job as { needs?: string }).needs]),
  );
  expect(needs).toEqual({ check: undefined, archive: 'check', image: 'archive' });
  const build = jobs.image!.steps!.find(({ uses }) => uses?.startsWith('docker/build-push-action@'))!;
  expect(build.with).toMatchObject({ platforms: 'linux/amd64,linux/arm64', provenance: 'mode=max', sbom: true });
});
