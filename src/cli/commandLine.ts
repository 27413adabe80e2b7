// The command line: its commands and options. It starts the server, and has the commands that need no root key. They
// use the Redis of the server: that of REDIS_URL, or the embedded one, which is started for the command if no server
// runs.

import { Command, CommanderError } from 'commander';
import { escapeInvisible } from '../domain/visible.ts';
import { exitCodeOf } from '../scripts/dataVersion.ts';
import { buildVersion } from '../version.ts';
import type { Client } from './client.ts';
import { type CommandRow, type Given, type Output, optionsOf, withOptions } from './commandRow.ts';
import { commandRows } from './keyCommands.ts';
import { startProgress } from './progress.ts';
import { rootKeyRows } from './rootKeyCommands.ts';
import { bulkTimeoutMs, Runner } from './runner.ts';
import { reporting } from './searching.ts';
import { tailRow } from './tailCommand.ts';
import { askOn, readKey, type Terminal } from './terminal.ts';
import { createWorkspace, endImport, listWorkspaces } from './workspaces.ts';

// Modules that only one command needs are loaded by that command.
const json = ['--json', 'print JSON'] as const;
const local = ['--local', 'work on the store here, also if TOLLGATE_URL is set'] as const;
const workspaceOption = ['--workspace <id>', 'the workspace (ws_…); not needed if there is only one'] as const;

/** Runs a command. Resolves with the exit code; of `serve` when the server has begun to start. */
export async function runCommandLine(args: readonly string[], terminal: Terminal): Promise<number> {
  const runner = new Runner(terminal);
  try {
    await programOf(runner).parseAsync(args, { from: 'user' });
    return runner.exitCode;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode;
    const lines = messageOf(error as Error).split('\n');
    terminal.stderr.write(`tollgate: ${lines.map(escapeInvisible).join('\n')}\n`);
    return exitCodeOf(error);
  }
}

/** Errors for the operator are printed without a stack. A TypeError or RangeError is a bug. */
function messageOf(error: NodeJS.ErrnoException): string {
  if (error.code === 'EPIPE') return 'The reader of the output has closed it.';
  const isBug = error instanceof TypeError || error instanceof RangeError;
  return isBug ? error.stack! : error.message;
}

function programOf(runner: Runner): Command {
  const { stdout, stderr } = runner.terminal;
  const program = new Command('tollgate')
    .description('Self-hosted API keys.')
    .version(buildVersion, '-V, --version', 'print the version')
    .showHelpAfterError('Add --help for help.')
    .configureOutput({ writeOut: (text) => stdout.write(text), writeErr: (text) => stderr.write(text) })
    .exitOverride();
  program
    .command('start')
    .alias('serve')
    .description('Run the server, as `npm start` does.')
    .action(async () => {
      await import('../main.ts');
    });
  addWorkspace(program, runner);
  for (const row of [...rootKeyRows, ...commandRows, tailRow]) addRow(program, runner, row);
  addExport(program, runner);
  addImport(program, runner);
  addInspect(program, runner);
  addBackup(program, runner);
  addMigrate(program, runner);
  addDoctor(program, runner);
  return program;
}

function addWorkspace(program: Command, runner: Runner) {
  const workspace = program
    .command('workspace')
    .description('Manage workspaces. Each has its own APIs, keys and root keys.');

  workspace
    .command('create <name>')
    .description('Create a workspace.')
    .option(...local)
    .option(...json)
    .action((name, options) => runner.run(options, (store) => createWorkspace(store, name)));

  workspace
    .command('list')
    .description('List the workspaces.')
    .option(...local)
    .option(...json)
    .action((options) => runner.run(options, listWorkspaces));

  workspace
    .command('end-import <id>')
    .description('End an import that was interrupted and is not repeated. What it has created stays.')
    .option('--discard', 'remove the workspace with everything in it')
    .option(...local)
    .option(...json)
    .action((id, options) =>
      runner.run(options, (store) => endImport(store, id, options), { timeoutMs: bulkTimeoutMs }),
    );
}

const groups: Record<string, string> = {
  'root-key': 'Manage root keys, with which callers of the API authenticate.',
  api: 'Manage APIs, the containers of keys.',
  key: 'Manage keys.',
  identity: 'Manage identities, the owners of keys.',
  override: 'Manage overrides, other limits of some identifiers in a namespace.',
};

/** Adds a command that calls operations: on the store, or on the server at TOLLGATE_URL. */
function addRow(program: Command, runner: Runner, row: CommandRow) {
  const { words, about } = row;
  const [group, ...rest] = words.split(' ');
  const parent = program.commands.find((command) => command.name() === group);
  const isGrouped = groups[group!] !== undefined;
  const owner = isGrouped ? (parent ?? program.command(group!).description(groups[group!]!)) : program;
  const command = owner.command(isGrouped ? rest.join(' ') : words).description(about);
  for (const [flags, meaning] of optionsOf(row)) command.option(flags, meaning);
  command
    .option(...workspaceOption)
    .option(...local)
    .option(...json)
    .action(async () => {
      const names = command.registeredArguments.map((argument) => argument.name());
      const given: Given = {
        ...command.opts(),
        ...Object.fromEntries(names.map((name, at) => [name, command.args[at]])),
      };
      const { stdin, stderr } = runner.terminal;
      const runRow = async ({ call, listen }: Client) => {
        const output: Output = {
          listen,
          print: (result) => runner.print(result, given.json === true),
          progress: (...of) => startProgress(stderr, ...of),
          ask: stdin.isTTY ? (question) => askOn(runner.terminal, question) : undefined,
        };
        const search = reporting(call, stderr);
        try {
          return await row.run(row.showsProgress ? call : search.call, given, () => readKey(runner.terminal), output);
        } catch (error) {
          const { message } = error as Error;
          const named = withOptions(message, row, given);
          throw named === message ? error : new Error(named, { cause: error });
        } finally {
          search.clear();
        }
      };
      await runner.runCall(command.opts(), runRow, row.lasts);
    });
}

function addExport(program: Command, runner: Runner) {
  program
    .command('export')
    .description('Write everything that is stored as JSON lines to a new file or standard output.')
    .argument('[file]', 'output file; - is standard output', '-')
    .option('--workspace <id>', 'only this workspace (ws_…)')
    .option('--api <id>', 'only the keys of this API (api_…) and what they depend on')
    .option('--without <parts>', 'leave out root-keys, usage or audit, separated by commas')
    .option('--resume', 'continue an export that was interrupted')
    .option(...local)
    .option(...json)
    .action(async (file, options) => {
      const { exportKeys } = await import('./exportKeys.ts');
      await runner.run(options, (store) => exportKeys(store, runner.terminal, file, options), {
        timeoutMs: bulkTimeoutMs,
      });
    });
}

function addImport(program: Command, runner: Runner) {
  program
    .command('import')
    .description('Create the records of an export. Existing ones are skipped, so an import can be repeated.')
    .argument('<file>', 'file of JSON lines; - is standard input')
    .option('--workspace <id>', 'import into this workspace (ws_…) instead of creating those of the file')
    .option('--api <id>', 'import all keys into this API (api_…), ignoring the API in their lines')
    .option('--without <parts>', 'leave out root-keys, usage or audit, separated by commas')
    .option('--with <parts>', 'import root-keys into a workspace that exists, too')
    .option('--dry-run', 'check every line and change nothing')
    .option(...local)
    .option(...json)
    .action(async (file, options) => {
      const { importKeys } = await import('./importKeys.ts');
      await runner.run(
        options,
        (store, config) => importKeys({ store, config, terminal: runner.terminal }, file, options),
        // A whole installation is imported before the first start of its server.
        { timeoutMs: bulkTimeoutMs, createsData: options.workspace === undefined },
      );
    });
}

function addInspect(program: Command, runner: Runner) {
  program
    .command('inspect')
    .description('Print what Redis stores of a key, decoded: its state, windows, counters and usage history.')
    .argument(
      '<key>',
      'key id (key_…) or key; - reads it from standard input, so that no process list or history has it',
    )
    .option(...workspaceOption)
    .option(...local)
    .option(...json)
    .action(async (key, options) => {
      const { inspect } = await import('./inspect.ts');
      await runner.runIn(options, (store, workspace) => inspect(store, runner.terminal, key, { workspace }));
    });
}

function addBackup(program: Command, runner: Runner) {
  program
    .command('backup <file>')
    .description('Write all data of Redis to a file while Tollgate runs. docs/backup.md has the restore.')
    .option(...local)
    .option(...json)
    .action(async (file, { local, json }) => {
      const { backup } = await import('./backupCommand.ts');
      await runner.runOnRedis({ local }, async (url, config) =>
        runner.print(await backup({ url, config, terminal: runner.terminal }, file), json === true),
      );
    });
}

function addMigrate(program: Command, runner: Runner) {
  program
    .command('migrate')
    .description(
      'Migrate the stored data to the version of this release, as servers do by themselves when all support it.',
    )
    .option('--dry-run', 'print what would be done and how long it takes, and change nothing')
    .option('--wait', 'wait for servers that prevent it, and for the end if another process migrates')
    .option('--force', 'migrate although connections to Redis may be those of servers before 1.0.0')
    .option(...local)
    .option(...json)
    .action(async (options) => {
      const { migrate } = await import('./migrateCommand.ts');
      await runner.run(options, (store) => migrate(store, runner.terminal, options), {
        timeoutMs: bulkTimeoutMs,
      });
    });
}

function addDoctor(program: Command, runner: Runner) {
  program
    .command('doctor')
    .description('Check Node, Redis and the machine, and print what to change. The exit code is 1 if a check fails.')
    .option(...local)
    .option(...json)
    .action(async ({ json, local }) => {
      runner.requireLocal({ local });
      const { doctor } = await import('./doctor.ts');
      const { terminal } = runner;
      // Pending work, for example a connection to a Cluster, must not keep the process alive once the result is
      // written.
      await runner.print(await doctor(terminal.env), json === true).finally(() => setImmediate(() => terminal.exit()));
    });
}
