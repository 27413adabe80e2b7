// Bounds what the server does in one turn of the event loop.
//
// libuv takes at most 1024 events from the kernel at a time. If it gets as many, it asks for more, up to 48 times,
// before timers and immediates run, which send requests to Redis. A connection has its next event as soon as its
// response is written. So without a bound, a thousand connections whose requests need no Redis would hold up all other
// requests for seconds.
//
// A limited amount is done within one turn. The rest waits here for the ends of this turn and of the next ones, where
// callers take turns: one with thousands of connections waits for itself, and others do not wait for it.

/** The work of a short request, some 20 µs. */
export const requestUnits = 32;
/** The work of a turn: 512 short requests. They are fewer than the 1024 events that make libuv ask for more. */
const unitsMax = 512 * requestUnits;
/**
 * From this work on, the end of the turn is awaited. A server with few connections has less in a turn, and awaits it
 * rarely.
 */
const unitsAwaited = unitsMax / 2;

/** Work that waits; canceled when it has no `run`. */
export interface Task {
  units: number;
  run: (() => void) | undefined;
}

interface Caller {
  name: string;
  /** At least one, in order of arrival. */
  tasks: Task[];
}

export class Turns {
  /** Work that was done since the last turn whose end was awaited. */
  #done = 0;
  #isEndAwaited = false;
  /** Callers that have tasks. The first is the next to run one. */
  readonly #callers: Caller[] = [];
  readonly #byName = new Map<string, Caller>();

  /** Whether this turn has room for work; then it counts as done. Nothing overtakes what waits. */
  begin(units: number): boolean {
    if (this.isFull || this.#callers.length > 0) return false;
    this.spend(units);
    return true;
  }

  get isFull(): boolean {
    return this.#done >= unitsMax;
  }

  /** Counts work that is done whether the turn has room for it or not. */
  spend(units: number) {
    this.#done += units;
    if (this.#done >= unitsAwaited) this.#awaitEnd();
  }

  /** Runs work at the end of this turn or of a later one. */
  defer(name: string, units: number, run: () => void): Task {
    const task = { units, run };
    const caller = this.#byName.get(name);
    if (caller) caller.tasks.push(task);
    else {
      const added = { name, tasks: [task] };
      this.#callers.push(added);
      this.#byName.set(name, added);
    }
    this.#awaitEnd();
    return task;
  }

  #awaitEnd() {
    if (this.#isEndAwaited) return;
    this.#isEndAwaited = true;
    setImmediate(() => this.#end());
  }

  #end() {
    this.#isEndAwaited = false;
    this.#done = 0;
    while (!this.isFull && this.#callers.length > 0) this.#runNext();
    if (this.#callers.length > 0) this.#awaitEnd();
  }

  #runNext() {
    const caller = this.#callers.shift()!;
    const { units, run } = caller.tasks.shift()!;
    if (caller.tasks.length > 0) this.#callers.push(caller);
    else this.#byName.delete(caller.name);
    if (!run) return;
    this.spend(units);
    run();
  }
}
