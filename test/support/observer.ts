import type { StoreObserver } from '../../src/redis/observer.ts';

/** An observer with these functions; the others do nothing. */
export const observing = (part: Partial<StoreObserver>): StoreObserver =>
  new Proxy(part, { get: (target, name) => Reflect.get(target, name) ?? (() => {}) }) as StoreObserver;
