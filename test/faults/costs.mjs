// The built pipeline in a process of its own, without a socket. Each message is a request. The reply has the longest
// time for which it blocked the event loop, in processor time of the main thread, and the growth of the heap. The reply
// to `unit` is a unit of that time (unit.ts). Run with --expose-gc; the first argument is the store's options as JSON.
import { readFileSync } from 'node:fs';
import { getHeapStatistics } from 'node:v8';
import { pino } from 'pino';
import { createPipeline } from '../../dist/http/pipeline.js';
import { operations } from '../../dist/operations/index.js';
import { openStore } from '../../dist/store.js';

const store = await openStore(JSON.parse(process.argv[2]));
const answer = createPipeline(operations, { store, log: pino({ level: 'silent' }), metaBytesMax: 10_240 });

const cpuMs = () => Number(readFileSync(`/proc/self/task/${process.pid}/schedstat`, 'utf8').split(' ')[0]) / 1_000_000;
function heapMb() {
  const { used_heap_size, external_memory } = getHeapStatistics();
  return (used_heap_size + external_memory) / 1_000_000;
}
const turn = () => new Promise((resolve) => setImmediate(resolve));

async function costOf(request) {
  await turn();
  globalThis.gc();
  const before = heapMb();
  let [heldMs, most, isOver] = [0, before, false];
  let since = cpuMs();
  const tick = () => {
    heldMs = Math.max(heldMs, cpuMs() - since);
    most = Math.max(most, heapMb());
    if (!isOver) setImmediate(tick);
    since = cpuMs();
  };
  setImmediate(tick);
  const { status, stream } = await answer(request);
  stream?.stop();
  await turn();
  isOver = true;
  return { status, heldMs, heapMb: most - before };
}

/** A megabyte whose objects live on, so that a unit (unit.ts) has as much garbage collection as a large body. */
const item = '{"name":"x","list":{"a":[[[[[[[{"b":[[[]]]},[[]],{}]]]]]]]}}';
const large = `[${Array.from({ length: 16_400 }, () => item).join(',')}]`;
function unitMs() {
  globalThis.gc();
  const before = cpuMs();
  const kept = [JSON.parse(large), JSON.parse(large)];
  return (cpuMs() - before) / (20 * kept.length);
}

process.on('message', async (message) => {
  if (message === 'unit') return process.send((unitMs() + unitMs()) / 2);
  const { body, ...head } = message;
  process.send(await costOf({ ...head, body: Buffer.from(body) }));
});
process.on('disconnect', () => process.exit());
process.send('ready');
