#!/usr/bin/env node
// npx tollgate: the command line. Installs and builds what is missing first. Commands check for a Redis themselves.
import { prepare } from './prepare.mjs';

await prepare({ serves: ['start', 'serve'].includes(process.argv[2]), needsRedis: () => false });

await import('../dist/cli/index.js');
