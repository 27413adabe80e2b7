// npm run console: builds src/console to src/http/console.bundle.js, which is part of the repository, so that a server
// needs neither a bundler nor the packages of the page. Run it after a change in src/console; npm test compares.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { checkNode, install, root } from './prepare.mjs';

export const consoleFile = join(root, 'src', 'http', 'console.bundle.js');

/** The page as one minified script, with the licenses of what is in it. */
export async function bundleConsole() {
  const { rolldown } = await import('rolldown');
  const bundle = await rolldown({
    input: join(root, 'src', 'console', 'main.tsx'),
    platform: 'browser',
    plugins: [withoutUnusedPaths],
    transform: { target: 'es2022', jsx: { runtime: 'automatic', importSource: 'preact' } },
  });
  // Annotations are for a bundler that comes after this one.
  const comments = { annotation: false };
  const { output } = await bundle.generate({ format: 'esm', minify: true, comments, banner: licenses });
  return output[0].code;
}

/**
 * uPlot has all its kinds of lines in one object, so a bundler cannot leave out those that no chart uses: bars are
 * enough.
 */
const withoutUnusedPaths = {
  name: 'without-unused-paths',
  transform(code, id) {
    if (!id.endsWith('uPlot.esm.js')) return undefined;
    const unused = [
      '\tuPlot.addGap = addGap;\n\tuPlot.clipGaps = clipGaps;\n',
      '\t(paths.linear  = linear);\n\t(paths.stepped = stepped);\n',
      '\t(paths.spline  = monotoneCubic);\n',
    ];
    let rest = code.replace('const linearPath = linear() ;', 'const linearPath = null;');
    if (rest === code) throw new Error('Another version of uPlot: see bin/console.mjs.');
    for (const lines of unused) {
      if (!rest.includes(lines)) throw new Error('Another version of uPlot: see bin/console.mjs.');
      rest = rest.replace(lines, '');
    }
    return rest;
  },
};

const licenses = `/*! The console of Tollgate, MIT. With preact 10 (MIT, Jason Miller), wouter-preact 3 (Unlicense, Alexey Taktarov), regexparam 3
(MIT, Luke Edwards) and uPlot 1 (MIT, Leon Sorokin): https://github.com/preactjs/preact, https://github.com/molefrog/wouter,
https://github.com/lukeed/regexparam, https://github.com/leeoniya/uPlot */`;

if (import.meta.filename === process.argv[1]) {
  checkNode();
  install({ dev: true });
  writeFileSync(consoleFile, await bundleConsole());
}
