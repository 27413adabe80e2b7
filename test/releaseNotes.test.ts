// What `npm run release` needs of package.json, package-lock.json and CHANGELOG.md.
// test/process/release.long.test.ts runs the program itself.

import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { changelogProblems, dated, newestNotes, versionProblems } from '../bin/releaseNotes.mjs';
import { supportedBy } from '../src/scripts/dataVersion.ts';
import { dataVersion } from '../src/scripts/layout.ts';
import { version } from '../src/version.ts';

describe('what a release needs', () => {
  const lock = (locked: string) => JSON.stringify({ version: locked, packages: { '': { version: locked } } });

  test.each([
    ['1.2', lock('1.2'), [], ['is not of the form 1.2.3']],
    ['1.2.3-rc.1', lock('1.2.3-rc.1'), [], ['is not of the form 1.2.3']],
    ['1.2.3', lock('1.2.2'), [], ['package-lock.json has the version 1.2.2']],
    ['1.2.3', lock('1.2.3'), ['v1.2.3'], ['v1.2.3 was released already']],
    ['1.2.3', lock('1.2.3'), ['v1.10.0', 'v1.2.2'], ['v1.10.0 was released already']],
    ['1.10.0', lock('1.10.0'), ['v1.9.9', 'v0.99.99', 'very-old'], []],
  ])('version %s', (version, lock, released, problems) => {
    const found = versionProblems({ version, lock, released, here: [] });
    expect(found).toEqual(problems.map((each) => expect.stringContaining(each)));
  });

  test('a tag of this commit is that of its own release, which the workflow builds', () => {
    const given = { version: '1.2.3', lock: lock('1.2.3'), released: ['v1.2.2', 'v1.2.3'] };
    expect(versionProblems({ ...given, here: ['v1.2.3'] })).toEqual([]);
    expect(versionProblems({ ...given, here: [] })).toHaveLength(1);
  });

  const good =
    '# Changelog\n\n## 2.0.0 (not released)\n\nText.\n\n### Changes you notice\n\n- One.\n\n### Needs a stop\n\nNo.\n\n### Data version\n\nStored data has version 7.\n\n## 1.0.0 (2026-11-25)\n';
  test.each([
    [good, []],
    [dated(good, '2.0.0', '2026-12-01'), []],
    [good.replace('2.0.0', '2.0.1'), ['the first section']],
    [good.replace('not released', 'soon'), ['the first section']],
    [good.replace('\n\nNo.', ''), ['nothing under "### Needs a stop"']],
    [good.replace('- One.\n', ''), ['nothing under "### Changes you notice"']],
    [good.replace('version 7', 'version 6'), ['states data version 6 for 2.0.0, and the code has 7']],
    ['', ['the first section']],
  ])('changelog %#', (text, problems) => {
    expect(changelogProblems(text, { version: '2.0.0', dataVersion: 7 })).toEqual(
      problems.map((each) => expect.stringContaining(each)),
    );
  });

  test('the changelog here is that of the version here', () => {
    expect(changelogProblems(readFileSync('CHANGELOG.md', 'utf8'), { version, dataVersion })).toEqual([]);
  });

  test('the data versions of this release are in the table of releases', () => {
    const { oldest, newest } = supportedBy(version);
    expect(readFileSync('docs/upgrade.md', 'utf8')).toContain(`| ${version} | ${oldest} to ${newest} |\n`);
  });

  test('the notes are the newest section, without its heading', () => {
    expect(newestNotes(good)).toMatch(/^Text\.\n\n### Changes you notice\n[\s\S]*version 7\.\n$/);
  });
});
