// Many names in order, with a value each, in parts that are found by their bounds: no single operation takes longer
// with more names. A Map of hundreds of thousands would take a tenth of a second whenever it grows, and all other
// requests would wait.

/** Limit of the names of a part, so that it is sorted in a fraction of a millisecond. */
const partMax = 512;

interface Part<Value> {
  /** A lower bound of its names. All names of the part before are smaller. */
  from: string;
  values: Map<string, Value>;
  /** Its last name, as long as each of its names followed the one that was added before. */
  ascendingTo: string | undefined;
  /** Its names in order, after they were asked for. */
  sorted: string[] | undefined;
}

const partOf = <Value>(from: string, values: Map<string, Value>, ascendingTo?: string): Part<Value> => ({
  from,
  values,
  ascendingTo,
  sorted: undefined,
});
const sortedOf = <Value>(part: Part<Value>): readonly string[] => (part.sorted ??= [...part.values.keys()].sort());

export class Ordered<Value> {
  readonly #parts: Part<Value>[] = [partOf('', new Map(), '')];
  #size = 0;
  /** The part that was found last: names often come in order. */
  #found = 0;

  get size(): number {
    return this.#size;
  }

  get(name: string): Value | undefined {
    return this.#parts[this.#indexOf(name)]!.values.get(name);
  }

  /** The value of a name, which is added if it is new. */
  getOrAdd(name: string, make: () => Value): Value {
    const index = this.#indexOf(name);
    const part = this.#parts[index]!;
    const found = part.values.get(name);
    if (found !== undefined) return found;
    const value = make();
    this.#size++;
    const isAscending = part.ascendingTo !== undefined && name >= part.ascendingTo;
    if (isAscending && part.values.size >= partMax && index === this.#parts.length - 1) {
      // Names that come in order fill parts, which are never divided.
      this.#parts.push(partOf(name, new Map([[name, value]]), name));
      return value;
    }
    part.values.set(name, value);
    part.ascendingTo = isAscending ? name : undefined;
    part.sorted = undefined;
    if (part.values.size > partMax) this.#split(index);
    return value;
  }

  /** Removes some of the last names, at most a part and never all, and returns them with their values. */
  removeLast(): ReadonlyMap<string, Value> {
    if (this.#parts.length === 1) this.#split(0);
    const { values } = this.#parts.pop()!;
    this.#size -= values.size;
    this.#found = 0;
    return values;
  }

  /** The last name; undefined if there is none. */
  last(): string | undefined {
    return sortedOf(this.#parts.at(-1)!).at(-1);
  }

  /** The names after one in order, or all; some at a time. */
  *after(name: string | undefined): Generator<readonly string[]> {
    const first = name === undefined ? 0 : this.#indexOf(name);
    for (let index = first; index < this.#parts.length; index++) {
      const names = sortedOf(this.#parts[index]!);
      yield name !== undefined && index === first ? names.slice(firstAfter(names, name)) : names;
    }
  }

  #indexOf(name: string): number {
    const parts = this.#parts;
    if (name >= parts[this.#found]!.from) {
      const next = parts[this.#found + 1];
      if (next === undefined || name < next.from) return this.#found;
    }
    let [from, to] = [0, parts.length - 1];
    while (from < to) {
      const middle = (from + to + 1) >> 1;
      if (parts[middle]!.from <= name) from = middle;
      else to = middle - 1;
    }
    this.#found = from;
    return from;
  }

  /** Halves a part. */
  #split(index: number) {
    const part = this.#parts[index]!;
    const names = sortedOf(part);
    const middle = Math.ceil(names.length / 2);
    const mapOf = (some: readonly string[]) => new Map(some.map((name) => [name, part.values.get(name)!]));
    const [before, from] = [mapOf(names.slice(0, middle)), names.slice(middle)];
    if (from.length === 0) return;
    this.#parts.splice(index, 1, partOf(part.from, before), partOf(from[0]!, mapOf(from)));
  }
}

/** The index of the first name after another. */
function firstAfter(names: readonly string[], after: string): number {
  let [from, to] = [0, names.length];
  while (from < to) {
    const middle = (from + to) >> 1;
    if (names[middle]! <= after) from = middle + 1;
    else to = middle;
  }
  return from;
}
