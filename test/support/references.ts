// References of comments and documents: paths, pages, sections, anchors, and scripts of package.json. Finds those to
// something that does not exist.

import { readdirSync, readFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));
const folders = 'src|lua|test|bench|bin|deploy|examples|docs|\\.ci';
const textFile = /\.(ts|mjs|lua|md|ya?ml|conf|cfg)$|(^|\/)(Dockerfile|Caddyfile|run)$/;

/** Folders of .gitignore, without their slashes, and those of git. */
const ignored = readFileSync(join(root, '.gitignore'), 'utf8').match(/^\/?[\w-]+(?=\/$)/gm)!;
const skipped = ['.git', '.issues', ...ignored.map((name) => name.replace('/', ''))];

export const repositoryFiles = (folder = '.'): string[] =>
  readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    // The data directory is in the root only.
    if (skipped.includes(entry.name) && (entry.name !== 'data' || folder === '.')) return [];
    const path = posix.join(folder, entry.name);
    return entry.isDirectory() ? repositoryFiles(path) : [path];
  });

export interface Reference {
  file: string;
  line: number;
  text: string;
}

/** The references of a file to something that does not exist. `files` are all files of the repository. */
export function brokenReferences(file: string, files: readonly string[], text = textOf(file)): Reference[] {
  const isPage = file.endsWith('.md');
  const broken: Reference[] = [];
  for (const [index, line] of text.split('\n').entries()) {
    const prose = isPage ? line : commentOf(file, line);
    const check = (reference: string, exists: boolean) => {
      if (!exists) broken.push({ file, line: index + 1, text: reference });
    };
    for (const [, target] of isPage ? prose.matchAll(/\]\((?!https?:)([^)\s]+)\)/g) : []) {
      const [path, anchor] = target!.split('#') as [string, string?];
      const page = path === '' ? file : posix.join(posix.dirname(file), path);
      check(target!, isThere(page, files) && (anchor === undefined || anchorsOf(page).includes(anchor)));
    }
    const withoutLinks = isPage ? prose.replace(/\]\([^)]*\)/g, ']') : prose;
    for (const [path, anchor] of pathsIn(withoutLinks)) {
      check(path, isThere(path, files));
      if (anchor) check(`${path}#${anchor}`, isThere(path, files) && anchorsOf(path).includes(anchor));
    }
    for (const [name] of withoutLinks.matchAll(fileName)) {
      check(
        name,
        files.some((path) => path === name || path.endsWith(`/${name}`)),
      );
    }
    for (const [name] of file.endsWith('.lua') ? withoutLinks.matchAll(moduleName) : []) {
      check(name, isThere(`lua/${name}.lua`, files) || isThere(`lua/${name}`, files));
    }
    for (const [command, name] of withoutLinks.matchAll(/npm run (\w+(?::\w+)?)/g)) {
      check(command, name! in packageScripts());
    }
    for (const { index: at, 0: section, 1: number } of withoutLinks.matchAll(/§ ?(\d*)/g)) {
      const before = withoutLinks.slice(0, at);
      const isOfContract = file === contract || /docs\/contract\.md (§\d+(, | and | to ))*$/.test(before);
      check(section, isOfContract && sectionsOfContract().includes(number!));
    }
  }
  return broken;
}

const packageScripts = (): object => JSON.parse(textOf('package.json')).scripts;
const contract = 'docs/contract.md';
const sectionsOfContract = () => [...textOf(contract).matchAll(/^## (\d+)\. /gm)].map((match) => match[1]!);

/** The name of a file, with or without some of its folders. */
const fileName = new RegExp(
  `(?<![\\w/.<>…*-])(?!(?:${folders})/)[\\w.-]+(?:/[\\w.-]+)*\\.(?:md|lua|mjs|ts)\\b(?![\\w-])`,
  'g',
);

/** A module of lua/ without its ending. */
const moduleName = /(?<![\w/])(?:include|decide)\/\w+(?:\/\w+)*\b(?!\.lua|\/)/g;

/** Paths below the folders of the repository, each with its anchor. A path with a placeholder is cut off before it. */
function* pathsIn(text: string): Generator<[path: string, anchor?: string]> {
  const pattern = new RegExp(`(?<![\\w/.@-])((?:${folders})/[\\w./-]*)(?:#([\\w-]+))?([<*…{]?)`, 'g');
  for (const { 1: found, 2: anchor, 3: placeholder } of text.matchAll(pattern)) {
    const path = (placeholder ? posix.dirname(`${found}x`) : found!).replace(/[./]+$/, '');
    yield anchor ? [path, anchor] : [path];
  }
}

const isThere = (path: string, files: readonly string[]) =>
  files.some((file) => file === path || file.startsWith(`${path.replace(/\/$/, '')}/`));

/** The anchors that GitHub makes of a page's headings. */
const anchorsOf = (page: string) =>
  [...textOf(page).matchAll(/^#+ (.+)$/gm)].map((match) =>
    match[1]!
      .toLowerCase()
      .replace(/[^\p{L}\p{N}_ -]/gu, '')
      .replaceAll(' ', '-'),
  );

const commentMarks: [ending: RegExp, mark: RegExp][] = [
  [/\.(ts|mjs)$/, /^\s*\/?\*+ |\/\/ |^\s*\/\*\* /],
  [/\.lua$/, /--/],
  [/./, /#/],
];

function commentOf(file: string, line: string): string {
  const [, mark] = commentMarks.find(([ending]) => ending.test(file))!;
  const at = line.search(mark);
  return at < 0 ? '' : line.slice(at);
}

export const hasProse = (file: string): boolean => textFile.test(file);

function textOf(file: string): string {
  return readFileSync(join(root, file), 'utf8');
}
