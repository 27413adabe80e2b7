// npm run console: builds src/console to src/http/console.bundle.js and .css, which are part of the repository, so that a
// server needs neither a bundler nor the packages of the page. Run it after a change in src/console; npm test compares.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { checkNode, install, root } from './prepare.mjs';

/** By the name in what `bundleConsole` returns. */
export const consoleFile = (name) => join(root, 'src', 'http', `console.bundle.${name}`);

/** The page: one minified script, with the licenses of what is in it, and one minified stylesheet. */
export async function bundleConsole() {
  const [{ rolldown }, { transform }] = await Promise.all([import('rolldown'), import('lightningcss')]);
  const bundle = await rolldown({
    input: join(root, 'src', 'console', 'main.tsx'),
    platform: 'browser',
    plugins: [withoutUnused],
    transform: { target: 'es2022', jsx: { runtime: 'automatic', importSource: 'preact' } },
  });
  // Annotations are for a bundler that comes after this one.
  const comments = { annotation: false };
  const { output } = await bundle.generate({ format: 'esm', minify: true, comments, banner: licenses });
  const filename = join(root, 'src', 'console', 'style.css');
  const { code } = transform({ filename, code: readFileSync(filename), minify: true });
  return { js: output[0].code, css: code.toString() };
}

/**
 * uPlot is one function and one object, so a bundler cannot leave out what no chart uses: charts here are bars on
 * linear scales, without uPlot's legend and cursor. Each text is replaced by the other one.
 */
const unused = [
  ['\tuPlot.addGap = addGap;\n\tuPlot.clipGaps = clipGaps;\n', ''],
  ['\t(paths.linear  = linear);\n\t(paths.stepped = stepped);\n', ''],
  ['\t(paths.spline  = monotoneCubic);\n', ''],
  ['const linearPath = linear() ;', 'const linearPath = null;'],
  ['\tuPlot.join = join;\n', ''],
  ['const showLegend = legend.show;', 'const showLegend = false;'],
  ['const showCursor =                cursor.show;', 'const showCursor = false;'],
  ['if (legend.show && legend.live && shouldSetLegend)', 'if (false)'],
  [
    '\tevents.mousedown = mouseDown;\n\tevents.mousemove = mouseMove;\n' +
      '\tevents.mouseup = mouseUp;\n\tevents.dblclick = dblClick;\n',
    '',
  ],
  ['\t\tupdateCursor(null, _fire, _pub);\n\t};\n', '\t};\n'],
  ['\tself.setLegend = setLegend;\n', ''],
  ['sc.distr == 3 ? logAxisSplits : sc.distr == 4 ? asinhAxisSplits : ', ''],
];

const withoutUnused = {
  name: 'without-unused',
  transform(code, id) {
    if (!id.endsWith('uPlot.esm.js')) return undefined;
    let rest = code;
    for (const [text, replacement] of unused) {
      if (!rest.includes(text)) throw new Error('Another version of uPlot: see bin/console.mjs.');
      rest = rest.replace(text, replacement);
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
  for (const [name, text] of Object.entries(await bundleConsole())) writeFileSync(consoleFile(name), text);
}
