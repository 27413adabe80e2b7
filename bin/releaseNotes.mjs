// What a release needs of package.json, package-lock.json and CHANGELOG.md.

const headings = ['Changes you notice', 'Needs a stop', 'Data version'];
const semver = /^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)$/;

/** Why a version cannot be released; `released` are the tags of earlier releases, `here` those of this commit. */
export function versionProblems({ version, lock, released, here }) {
  if (!semver.test(version)) return [`the version ${version} of package.json is not of the form 1.2.3`];
  const { version: locked, packages } = JSON.parse(lock);
  const problems = [];
  if (locked !== version || packages[''].version !== version)
    problems.push(
      `package-lock.json has the version ${locked}, package.json ${version}: npm install --package-lock-only`,
    );
  const others = released.filter((tag) => semver.test(tag.slice(1)) && !here.includes(tag));
  const later = others.filter((tag) => compare(tag.slice(1), version) >= 0);
  if (later.length > 0) problems.push(`${later.join(', ')} was released already, which ${version} does not follow`);
  return problems;
}

function compare(one, other) {
  const [a, b] = [one, other].map((version) => version.split('.').map(Number));
  const at = a.findIndex((part, index) => part !== b[index]);
  return at < 0 ? 0 : a[at] - b[at];
}

/** Why a changelog cannot be that of the release. */
export function changelogProblems(changelog, { version, dataVersion }) {
  const [section] = changelog.split(/^## /m).slice(1);
  const [, named] = /^(\S+) \((?:not released|\d{4}-\d\d-\d\d)\)\n/.exec(section ?? '') ?? [];
  if (named !== version) return [`the first section of CHANGELOG.md must be "## ${version} (not released)"`];
  const parts = section
    .split(/^### /m)
    .slice(1)
    .map((part) => part.split('\n\n'));
  const problems = headings
    .filter((heading) => !parts.some(([title, ...text]) => title === heading && text.join('').trim() !== ''))
    .map((heading) => `CHANGELOG.md has nothing under "### ${heading}" of ${version}`);
  const data = /^Stored data has version (\d+)\.$/m.exec(section)?.[1];
  if (data !== String(dataVersion))
    problems.push(
      `CHANGELOG.md states data version ${data ?? '(none)'} for ${version}, and the code has ${dataVersion}`,
    );
  return problems;
}

/** The changelog with the date of this release, unless it has one. */
export const dated = (changelog, version, day) =>
  changelog.replace(`\n## ${version} (not released)\n`, `\n## ${version} (${day})\n`);

/** The section of the newest release, without its heading. */
export const newestNotes = (changelog) => `${changelog.split(/^## .*\n/m)[1].trim()}\n`;
