// Leaves Redis half of its time while a workspace reads much.
//
// A long list or search is read in steps, each a script of a few milliseconds, and Redis serves others between two of
// them. But if the next step always waits already, each request of others waits for one, and with more readers for
// several. So of the reading scripts of a workspace that take long, one runs at a time, and the next one waits for as
// long as the last one took. Other scripts of the workspace do not wait, and each process paces its own.

/** How long Redis ran a script, in microseconds by its clock, and the reply. */
export type Timed = readonly [micros: number, reply: unknown];

/** From this time of a script on, its next runs wait for each other. */
const longMicros = 500;
/** The longest pause, in milliseconds. No script takes as long, but a clock can be set. */
const pauseMax = 1000;

/** The long scripts of a workspace, while any of them runs, waits or pauses. */
interface Lane {
  names: Set<string>;
  last: Promise<void>;
  waiting: number;
  /** How much the pauses so far were too short, or too long if it is negative: a timer has whole milliseconds. */
  owedMs: number;
}

export class ReadPace {
  readonly #lanes = new Map<string, Lane>();

  async run(workspaceId: string, name: string, read: () => Promise<Timed>): Promise<unknown> {
    const lane = this.#lanes.get(workspaceId);
    if (lane?.names.has(name)) return this.#inTurn(workspaceId, lane, read);
    const [micros, reply] = await read();
    if (micros >= longMicros) this.#add(workspaceId, name, micros);
    return reply;
  }

  /** The next run of this script waits. */
  #add(workspaceId: string, name: string, micros: number) {
    const lane = this.#lanes.get(workspaceId) ?? { names: new Set(), last: Promise.resolve(), waiting: 0, owedMs: 0 };
    this.#lanes.set(workspaceId, lane);
    lane.names.add(name);
    void this.#inTurn(workspaceId, lane, async () => [micros, undefined]);
  }

  async #inTurn(workspaceId: string, lane: Lane, read: () => Promise<Timed>): Promise<unknown> {
    const turn = lane.last;
    let end!: () => void;
    lane.last = new Promise((resolve) => (end = resolve));
    lane.waiting++;
    await turn;
    const leave = () => {
      lane.waiting--;
      if (lane.waiting === 0) this.#lanes.delete(workspaceId);
      end();
    };
    try {
      const [micros, reply] = await read();
      lane.owedMs += Math.min(Math.max(micros, 0) / 1000, pauseMax);
      return reply;
    } finally {
      // The last one pauses for all of it and more, because the lane ends with it. The next one makes up for that.
      const pauseMs = lane.waiting > 1 ? Math.floor(lane.owedMs) : Math.ceil(lane.owedMs);
      lane.owedMs -= pauseMs;
      if (pauseMs > 0) setTimeout(leave, pauseMs);
      else setImmediate(leave);
    }
  }
}
