#!/usr/bin/env node
// npx tollgate: the command line, built first when it is not.
import { build, checkNode, install } from './prepare.mjs';

checkNode();
install();
build();

await import('../dist/cli/index.js');
