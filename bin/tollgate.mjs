#!/usr/bin/env node
// npx tollgate: the command line, built first when it is not. A command that needs a Redis says so itself.
import { prepare } from './prepare.mjs';

prepare({ needsRedis: () => false });

await import('../dist/cli/index.js');
