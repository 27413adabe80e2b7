import { expect, test } from 'vitest';
import { AcceptedRootKeys } from '../../src/decide/accepted.ts';
import { presented } from '../../src/domain/keyString.ts';

const rootKeys = Array.from({ length: 10 }, (_, index) => presented(`root_${index}`));
const has = (accepted: AcceptedRootKeys) =>
  rootKeys.flatMap((rootKey, index) => (accepted.has(rootKey) ? [index] : []));

test('a root key is cached from its acceptance until it is refused', () => {
  const accepted = new AcceptedRootKeys();
  const [one, two] = rootKeys as [(typeof rootKeys)[0], (typeof rootKeys)[0]];
  expect(accepted.has(one)).toBe(false);
  accepted.note(one, true);
  accepted.note(two, true);
  accepted.note(one, true);
  expect(has(accepted)).toEqual([0, 1]);
  expect(accepted.has(presented('root_0'))).toBe(true);
  accepted.note(one, false);
  expect(has(accepted)).toEqual([1]);
});

test('beyond its size the most recently used stay, and a refusal removes older ones too', () => {
  const accepted = new AcceptedRootKeys(3);
  for (const rootKey of rootKeys.slice(0, 6)) {
    accepted.note(rootKey, true);
    accepted.has(rootKeys[0]!);
  }
  accepted.note(rootKeys[6]!, true);
  expect(accepted.has(rootKeys[0]!)).toBe(true);
  expect(has(accepted).length).toBeLessThanOrEqual(6);
  for (const rootKey of rootKeys) accepted.note(rootKey, false);
  expect(has(accepted)).toEqual([]);
});
