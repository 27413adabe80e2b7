// npm run release: checks whether this commit can be released, and builds its files in a temporary folder. With --write
// it writes the date into CHANGELOG.md, commits and tags that, and builds the files in release/. bin/README.md has
// the whole way. With --systems it names the systems whose builds the archive must have; the default is all four.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { git, systemsOfArchive, writeArchive } from './archive.mjs';
import { build, checkNode, fail, install, root, run } from './prepare.mjs';
import { changelogProblems, dated, newestNotes, versionProblems } from './releaseNotes.mjs';

const options = { write: { type: 'boolean' }, systems: { type: 'string' }, 'skip-check': { type: 'boolean' } };
const read = (file) => readFileSync(join(root, file), 'utf8');

checkNode();
const given = parse();
install({ dev: true });
build();
const { version } = JSON.parse(read('package.json'));
const { dataVersion } = await import(new URL('../dist/scripts/layout.js', import.meta.url).href);
await release().catch((error) => fail(error.message));

function parse() {
  try {
    return parseArgs({ options }).values;
  } catch (error) {
    return fail(`${error.message} The options are --write, --systems linux-x64,… and --skip-check.`);
  }
}

async function release() {
  const today = new Date().toISOString().slice(0, 10);
  const problems = [...treeProblems(), ...versionProblems({ version, lock: read('package-lock.json'), ...tags() })];
  problems.push(...changelogProblems(read('CHANGELOG.md'), { version, dataVersion }), ...systemProblems());
  if (problems.length > 0) fail(`this cannot be released:\n  - ${problems.join('\n  - ')}`);
  // Only for a second run on a commit that has passed, as the release workflow is.
  if (!given['skip-check'] && run('npm', ['run', 'check']) !== 0) fail('npm run check failed. Nothing was released.');

  const changelog = dated(read('CHANGELOG.md'), version, today);
  if (given.write && changelog !== read('CHANGELOG.md')) writeDate(changelog);
  const folder = given.write ? join(root, 'release') : mkdtempSync(join(tmpdir(), 'tollgate-release-'));
  try {
    const sums = await writeArchive(folder);
    const notes = `${newestNotes(changelog)}\nThe archive runs on ${systemsOfArchive().present.join(', ')}.\n`;
    writeFileSync(join(folder, 'NOTES.txt'), notes);
    for (const [file, sum] of sums) console.log(`${sum}  ${file}`);
  } finally {
    if (!given.write) rmSync(folder, { recursive: true });
  }
  if (given.write) console.log(`Version ${version} is in release/. Next: bin/README.md, Make a release.`);
  else console.log(`Version ${version} can be released: npm run release -- --write`);
}

function writeDate(changelog) {
  writeFileSync(join(root, 'CHANGELOG.md'), changelog);
  git('commit', '--quiet', '--only', 'CHANGELOG.md', '--message', `Release ${version}`);
  git('tag', '--annotate', `v${version}`, '--message', `Tollgate ${version}`);
}

function systemProblems() {
  const { present, missing } = systemsOfArchive();
  const lacking = given.systems ? given.systems.split(',').filter((each) => !present.includes(each)) : missing;
  if (lacking.length === 0) return [];
  return [
    `there is no build of uWebSockets.js for ${lacking.join(', ')}: pin them (npm run pin), or name the systems of this ` +
      `release: --systems ${present.join(',')}`,
  ];
}

function treeProblems() {
  const changed = git('status', '--porcelain');
  return changed === '' ? [] : [`the folder has changes that are not committed:\n${changed.replace(/^/gm, '    ')}`];
}

/** The released versions, and those of this commit. */
function tags() {
  const list = (...args) =>
    git('tag', '--list', 'v*', ...args)
      .split('\n')
      .filter(Boolean);
  return { released: list(), here: list('--points-at', 'HEAD') };
}
