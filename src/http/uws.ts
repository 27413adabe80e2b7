// Picks and loads uWebSockets.js. Its native builds are tied to Node versions, and no one release covers all of ours.

import { createRequire } from 'node:module';

// The newer release's types serve both: of what we use they differ only in naming `listen` with host and options.
type Uws = typeof import('uws-node22-26');

export type { HttpRequest, HttpResponse } from 'uws-node22-26';

/** The packages with a build for this Node, best first. */
export function packagesFor(nodeMajor: number): readonly string[] {
  switch (nodeMajor) {
    case 20:
    case 23:
      return ['uws-node20-22'];
    case 22:
      // The newer one wants glibc 2.38; on an older system (Debian 12) the older one still loads.
      return ['uws-node22-26', 'uws-node20-22'];
    case 24:
    case 26:
      return ['uws-node22-26'];
    default:
      return [];
  }
}

export function loadUws(nodeMajor: number, require: (name: string) => unknown): Uws {
  const failures: string[] = [];
  for (const name of packagesFor(nodeMajor)) {
    try {
      return require(name) as Uws;
    } catch (cause) {
      // The wrapper's own message is general; what the system's loader said stands in its last line.
      const lines = String((cause as Error).message)
        .trim()
        .split('\n');
      failures.push(`\n  ${name}: ${lines.at(-1)}`);
    }
  }
  if (failures.length === 0) {
    throw new Error(
      `uWebSockets.js has no build for Node ${nodeMajor}. Run Tollgate on Node 20, 22, 24 or 26 (22 runs on the most systems).`,
    );
  }
  throw new Error(
    `uWebSockets.js does not load on Node ${nodeMajor}, ${process.platform} ${process.arch}:${failures.join('')}\n` +
      'It needs glibc (Alpine has none): 2.27 or later with Node 20 and 22, 2.38 or later (Debian 13, Ubuntu 24.04) with Node 24 ' +
      'and 26. On an older system use Node 22. If the system is new enough, run `npm ci` again with the Node that will run ' +
      'Tollgate and without `--omit=optional`: the builds are optional dependencies.',
  );
}

export const uws = loadUws(Number.parseInt(process.versions.node, 10), createRequire(import.meta.url));
