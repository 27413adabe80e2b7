// The command line as a program.

import { forwardWarnings } from '../warnings.ts';
import { runCommandLine } from './commandLine.ts';

// The write reports a closed pipe. Without a listener, its event would end the process with a stack.
process.stdout.on('error', () => {});
forwardWarnings((message) => process.stderr.write(`tollgate: ${message}\n`));

const exitCode = await runCommandLine(process.argv.slice(2), process);
// The server of `serve` sets the exit code itself.
if (exitCode !== 0) process.exitCode = exitCode;
