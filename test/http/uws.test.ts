import { expect, test } from 'vitest';
import { loadUws, packagesFor } from '../../src/http/uws.ts';

test.each([
  [20, ['uws-node20-22']],
  [22, ['uws-node22-26', 'uws-node20-22']],
  [23, ['uws-node20-22']],
  [24, ['uws-node22-26']],
  [26, ['uws-node22-26']],
  [18, []],
  [21, []],
])('Node %i tries %j', (nodeMajor, packages) => {
  expect(packagesFor(nodeMajor)).toEqual(packages);
});

const missing = (...absent: string[]) => {
  return (name: string) => {
    if (absent.includes(name)) throw new Error("not supported\n\nError: version `GLIBC_2.38' not found");
    return name;
  };
};

test('Node 22 takes the newer release, and the older where the newer does not load', () => {
  expect(loadUws(22, missing())).toBe('uws-node22-26');
  expect(loadUws(22, missing('uws-node22-26'))).toBe('uws-node20-22');
});

test('when none loads the error names what was tried, why it failed and what to do', () => {
  expect(() => loadUws(24, missing('uws-node22-26'))).toThrow(
    /does not load on Node 24[\s\S]*uws-node22-26: Error: version `GLIBC_2.38' not found[\s\S]*use Node 22/,
  );
  expect(() => loadUws(21, missing())).toThrow(/no build for Node 21\. Run Tollgate on Node 20, 22, 24 or 26/);
});
