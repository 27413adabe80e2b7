// How many records one script of an import creates. All other requests wait for a script, so its cost is bounded,
// whatever a file has: a step of lines can have 12,000 limits, or 100,000 permissions.

/** Estimated time in Redis, in microseconds. */
const costs = { record: 40, limit: 10, slice: 3, grant: 3, permission: 1, newPermission: 30 };
const costMax = 10_000;
/** Limit of the permissions that are cached as existing. */
const knownMax = 50_000;

interface CostlyLimit {
  used?: readonly unknown[] | undefined;
}

export const costOfWindow = ({ used = [] }: CostlyLimit): number => costs.record + used.length * costs.slice;
export const costOfRootKey = (permissions: readonly string[]): number =>
  costs.record + permissions.length * costs.grant;
export const costOfLimits = (limits: readonly CostlyLimit[] = []): number =>
  limits.reduce((sum, { used = [] }) => sum + costs.limit + used.length * costs.slice, costs.record);

/** The cost of the permissions of keys. The first key that has one may create it. */
export class PermissionCosts {
  readonly #known = new Set<string>();

  of(permissions: readonly string[] = []): number {
    let cost = 0;
    for (const slug of permissions) {
      cost += this.#known.has(slug) ? costs.permission : costs.newPermission;
      if (this.#known.size === knownMax) this.#known.clear();
      this.#known.add(slug);
    }
    return cost;
  }

  clear() {
    this.#known.clear();
  }
}

/** Items in steps of bounded cost, for one script each. A step has at least one item. */
export function* stepsByCost<Item>(items: readonly Item[], costOf: (item: Item) => number): Generator<Item[]> {
  let step: Item[] = [];
  let cost = 0;
  for (const item of items) {
    const more = costOf(item);
    if (step.length > 0 && cost + more > costMax) {
      yield step;
      step = [];
      cost = 0;
    }
    step.push(item);
    cost += more;
  }
  if (step.length > 0) yield step;
}
