// How much work a workspace may have on the way to Redis and waiting there, in a model of both.

import { afterEach, expect, test, vi } from 'vitest';
import { Flow, RedisWait } from '../../src/decide/flow.ts';
import { budgetMax } from '../../src/scripts/layout.ts';
import { queueModel } from './queueModel.ts';

afterEach(() => void vi.unstubAllGlobals());

/** As in src/decide/decider.ts. */
const workMax = 192;
const plainMicros = 10;
/** What a workspace may have waiting at Redis, in milliseconds. */
const ownQueueMs = (workMax * plainMicros) / 1000;
const plain = () => plainMicros;

/** Runs for so many round trips. Returns how many requests were answered in the last one, and the longest queue. */
async function runTrips(
  model: ReturnType<typeof queueModel>,
  { distance }: ReturnType<ReturnType<typeof queueModel>['server']>,
  counts: { ok: number },
  trips: number,
) {
  await model.run(distance.ms * (trips - 1));
  const before = counts.ok;
  await model.run(distance.ms);
  return { inTrip: counts.ok - before, queueMs: model.peakMs('a') };
}

test.each([20, 80, 200])('%d ms away it grows with what is answered, and the queue at Redis does not', async (ms) => {
  const model = queueModel();
  const far = model.server({ roundTripMs: ms });
  const counts = far.load('a', 700, plain);
  const first = await runTrips(model, far, counts, 2);
  expect(first.inTrip).toBeLessThanOrEqual(workMax);
  const later = await runTrips(model, far, counts, 10);
  expect(later.inTrip).toBeGreaterThan(650);
  expect(later.queueMs).toBeLessThan(ownQueueMs);
  expect(counts.refused).toBe(0);
});

test('what is on the way takes at most half of the time of Redis', async () => {
  const model = queueModel();
  const far = model.server({ roundTripMs: 80 });
  const counts = far.load('a', 10_000, plain);
  const { inTrip, queueMs } = await runTrips(model, far, counts, 60);
  expect(inTrip).toBeGreaterThan(3000);
  expect(inTrip * plainMicros).toBeLessThan((80_000 + 2 * workMax * plainMicros) / 2);
  expect(far.sentMax).toBeLessThan(4000 + 2 * workMax);
  expect(queueMs).toBeLessThanOrEqual(ownQueueMs);
});

test('near Redis it is the work that may wait there', async () => {
  const model = queueModel();
  const near = model.server({ roundTripMs: 0.2 });
  near.load('a', 4000, plain);
  await model.run(500);
  expect(near.sentMax).toBe(workMax);
  expect(model.peakMs('a')).toBeLessThanOrEqual(ownQueueMs);
});

test('beside workspaces that keep Redis busy, it grows no longer than Redis decides more', async () => {
  const model = queueModel();
  const near = model.server({ roundTripMs: 0.2 });
  const far = model.server({ roundTripMs: 80 });
  await Promise.all([far.request('b', plainMicros), model.run(100)]);
  for (let other = 0; other < 20; other++) near.load(`near ${other}`, 150, plain);
  const counts = far.load('a', 4000, plain);
  await model.run(4000);
  expect(model.peakMs('a')).toBeLessThan(1.5 * ownQueueMs);
  expect(model.peakMs('near 0')).toBeLessThanOrEqual(ownQueueMs);
  expect(counts.ok).toBeGreaterThan((4000 / 80) * workMax);
});

test('requests that suddenly cost thirty times as much hold up Redis no longer than full batches beforehand', async () => {
  const model = queueModel();
  const far = model.server({ roundTripMs: 80 });
  let costMicros = plainMicros;
  const counts = far.load('a', 4000, () => costMicros);
  const { inTrip } = await runTrips(model, far, counts, 40);
  expect(inTrip).toBeGreaterThan(3000);
  costMicros = 300;
  await model.run(800);
  const batches = workMax / 24;
  expect(model.peakMs('a')).toBeLessThan((batches * (budgetMax + costMicros)) / 1000);
});

test('while Redis does nothing no more is sent than was on the way, and afterwards it grows again', async () => {
  const model = queueModel();
  const far = model.server({ roundTripMs: 80 });
  const counts = far.load('a', 1500, plain);
  await runTrips(model, far, counts, 20);
  model.stall(300);
  far.load('a', 2000, plain);
  await model.run(300);
  expect(far.sentMax).toBeLessThan(1.5 * 1500 + workMax);
  const { inTrip } = await runTrips(model, far, counts, 20);
  expect(inTrip).toBeGreaterThan(800);
  expect(counts.refused).toBe(0);
});

test.each([
  [50, false, 900, 13_500],
  [10, true, 3600, 20_000],
])('a server that reads replies late is not limited by that: %d ms, others at Redis: %s', async (...values) => {
  const [turnMs, isBusy, callers, least] = values;
  const model = queueModel();
  const server = model.server({ roundTripMs: 20, turnMs });
  const counts = server.load('a', callers, plain);
  await model.run(600);
  if (isBusy) keepBusy(model);
  await model.run(2000);
  const before = counts.ok;
  model.peakMs('a');
  await model.run(1000);
  expect(counts.ok - before).toBeGreaterThan(least);
  expect(model.peakMs('a')).toBeLessThanOrEqual(ownQueueMs);
});

/** Others take a third of the time of Redis. */
function keepBusy(model: ReturnType<typeof queueModel>) {
  const near = model.server({ roundTripMs: 0.2 });
  const next = () => {
    void near.request('b', 330);
    model.at(model.now() + 1, next);
  };
  next();
}

test('a server near Redis that reads replies late sends no more than may wait at Redis', async () => {
  const model = queueModel();
  const server = model.server({ roundTripMs: 0.2, turnMs: 3 });
  server.load('a', 4000, plain);
  await model.run(1000);
  expect(server.sentMax).toBe(workMax);
});

test('when the route is shorter or longer it follows, when it is longer after a time with few requests', async () => {
  const model = queueModel();
  const server = model.server({ roundTripMs: 40 });
  const counts = server.load('a', 900, plain);
  await runTrips(model, server, counts, 15);
  server.distance.ms = 10;
  await model.run(100);
  model.peakMs('a');
  const shorter = await runTrips(model, server, counts, 20);
  expect(shorter.queueMs).toBeLessThan(ownQueueMs);
  expect(shorter.inTrip).toBeGreaterThan(300);
  server.distance.ms = 60;
  expect((await runTrips(model, server, counts, 100)).inTrip).toBeGreaterThan(0.8 * workMax);
  counts.isOver = true;
  const few = server.load('a', 5, plain);
  await model.run(6000);
  few.isOver = true;
  const longer = await runTrips(model, server, server.load('a', 900, plain), 10);
  expect(longer.inTrip).toBeGreaterThan(800);
  expect(longer.queueMs).toBeLessThanOrEqual(ownQueueMs);
});

test('a workspace that moves to another node has the distance of that one', async () => {
  const model = queueModel();
  const server = model.server({ roundTripMs: 0.2 });
  const counts = server.load('a', 900, plain);
  await model.run(200);
  Object.assign(server.distance, { ms: 80, node: 'b' });
  expect((await runTrips(model, server, counts, 15)).inTrip).toBeGreaterThan(800);
});

test('a queue at Redis does not count as distance, however little Redis reports of its time', async () => {
  const model = queueModel();
  model.redis.slowness = 4;
  const near = model.server({ roundTripMs: 0.5 });
  near.load('a', 1500, plain);
  await model.run(1000);
  model.peakMs('a');
  await model.run(10_500);
  expect(model.peakMs('a')).toBeLessThanOrEqual(ownQueueMs);
  expect(near.sentMax).toBeLessThan(2 * workMax);
});

test('requests that come one at a time, and then cost much, arrive as few calls', async () => {
  const model = queueModel();
  const far = model.server({ roundTripMs: 80 });
  let costMicros = plainMicros;
  /** 16 requests a millisecond, each in a turn of its own. */
  const next = () => {
    void far.request('a', costMicros);
    model.at(model.now() + 1 / 16, next);
  };
  next();
  await model.run(4000);
  expect(far.sentMax).toBeGreaterThan(1280);
  costMicros = 300;
  await model.run(400);
  expect(model.peakMs('a')).toBeLessThan(((workMax / 24) * (budgetMax + costMicros)) / 1000);
});

test('a queue at Redis that never ends does not count as distance', async () => {
  const model = queueModel();
  const servers = [1, 2, 3].map(() => model.server({ roundTripMs: 0.2 }));
  for (const server of servers) server.load('a', 400, () => 50);
  await model.run(2000);
  const queueMs = model.peakMs('a');
  await model.run(14_000);
  expect(model.peakMs('a')).toBeLessThan(1.1 * queueMs);
});

test('after a failure it begins again with the work that may wait at Redis', () => {
  const flow = new Flow(workMax, 0.5);
  const wait = new RedisWait();
  const send = (nowMs: number) => flow.sent(workMax, nowMs, wait);
  const mayPass = () => flow.mayPass(200);
  const [first, second] = [send(0), send(0)];
  expect(mayPass()).toBe(false);
  flow.replied(first, 0, 2000, { works: [2000], work: 2000, allWork: 2000, at: 100 });
  expect(mayPass()).toBe(false);
  flow.replied(second, 0, 2000, { works: [2000], work: 2000, allWork: 4000, at: 100 });
  const lost = send(100);
  expect(mayPass()).toBe(true);
  flow.failed(lost);
  send(100);
  expect(mayPass()).toBe(false);
  expect(wait.sent).toBe(workMax);
});

test('unknown callers have the work that may wait at Redis, at any distance', async () => {
  const model = queueModel();
  const far = model.server({ roundTripMs: 80 });
  const counts = far.load('a', 900, plain, false);
  const { inTrip } = await runTrips(model, far, counts, 10);
  expect(inTrip).toBe(workMax);
});

test('several servers share what Redis decides', async () => {
  const model = queueModel();
  const servers = [1, 2, 3, 4].map(() => model.server({ roundTripMs: 80 }));
  await Promise.all([...servers.map((server) => server.request('b', plainMicros)), model.run(100)]);
  const counts = servers.map((server) => server.load('a', 4000, plain));
  await model.run(4000);
  model.peakMs('a');
  await model.run(800);
  expect(model.peakMs('a')).toBeLessThan(servers.length * ownQueueMs);
  const answered = counts.map(({ ok }) => ok);
  expect(Math.max(...answered)).toBeLessThan(2 * Math.min(...answered));
});
