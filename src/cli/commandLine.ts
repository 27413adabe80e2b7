// The command line: its commands and options. It starts the server, and has the commands that need no root key. They
// use the Redis of the server: that of REDIS_URL, or the embedded one, which is started for the command if no server
// runs.

import { Command, CommanderError, type OptionValues } from 'commander';
import { escapeInvisible } from '../domain/visible.ts';
import { buildVersion } from '../version.ts';
import type { Client } from './client.ts';
import { type CommandRow, type Given, type Output, optionsOf, withOptions } from './commandRow.ts';
import { completions, placesOf } from './completion.ts';
import { failureCodeOf, failureJson, isClosed, usageExitCode } from './failure.ts';
import { commandRows } from './keyCommands.ts';
import { startProgress } from './progress.ts';
import { rootKeyRows } from './rootKeyCommands.ts';
import { bulkTimeoutMs, Runner } from './runner.ts';
import { reporting } from './searching.ts';
import { tailRow } from './tailCommand.ts';
import { askOn, readInput, readKey, type Terminal } from './terminal.ts';
import { createWorkspace, endImport, listWorkspaces } from './workspaces.ts';

// Modules that only one command needs are loaded by that command.
const json = ['--json', 'print JSON'] as const;
const local = ['--local', 'work on the store here, also if TOLLGATE_URL is set'] as const;
const workspaceOption = ['--workspace <id>', 'the workspace (ws_…); not needed if there is only one'] as const;

/** Runs a command. Resolves with the exit code; of `serve` when the server has begun to start. */
export async function runCommandLine(args: readonly string[], terminal: Terminal): Promise<number> {
  const runner = new Runner(terminal);
  const asJson = args.includes('--json');
  try {
    await programOf(runner, asJson).parseAsync(args, { from: 'user' });
    return runner.exitCode;
  } catch (error) {
    const isParsing = error instanceof CommanderError;
    // Help, or the version.
    if (isParsing && error.exitCode === 0) return 0;
    if (isParsing) error.exitCode = usageExitCode;
    const text = asJson ? failureJson(error as Error) : `tollgate: ${messageOf(error as Error)}`;
    // Commander has printed its own, unless as JSON.
    if (!isClosed(error as Error) && (asJson || !isParsing))
      terminal.stderr.write(`${text.split('\n').map(escapeInvisible).join('\n')}\n`);
    return failureCodeOf(error as Error);
  }
}

/** Errors for the operator are printed without a stack. A TypeError or RangeError is a bug. */
function messageOf(error: Error): string {
  const isBug = error instanceof TypeError || error instanceof RangeError;
  return isBug ? error.stack! : error.message;
}

function programOf(runner: Runner, asJson = false): Command {
  const { stdout, stderr } = runner.terminal;
  const program = new Command('tollgate')
    .description('Self-hosted API keys.')
    .version(buildVersion, '-V, --version', 'print the version')
    .showHelpAfterError('Add --help for help.')
    .configureOutput({ writeOut: (text) => stdout.write(text), writeErr: (text) => asJson || stderr.write(text) })
    .exitOverride();
  program
    .command('start')
    .alias('serve')
    .description('Run the server, as `npm start` does.')
    .action(async () => {
      await import('../main.ts');
    });
  program
    .command('mcp')
    .description(
      'Offer operations of the server at TOLLGATE_URL to a language model: MCP on standard input and output.',
    )
    .option('--write', 'offer those that change or charge something, too')
    .action(async ({ write = false }) => {
      const { serveMcp } = await import('./mcp.ts');
      await serveMcp(runner.terminal, write);
    });
  for (const row of workspaceRows) addStoreRow(program, runner, row);
  for (const row of [...rootKeyRows, ...commandRows, tailRow]) addRow(program, runner, row);
  for (const row of storeRows) addStoreRow(program, runner, row);
  program
    .command('completion <shell>')
    .description(`Print a script that completes commands and options in ${Object.keys(completions).join(', ')}.`)
    .action((shell: string) => {
      const completion = completions[shell as keyof typeof completions];
      if (!completion)
        program.error(`error: no completion for this shell, only for ${Object.keys(completions).join(', ')}`);
      stdout.write(completion(placesOf(program)));
    });
  return program;
}

const groups: Record<string, string> = {
  workspace: 'Manage workspaces. Each has its own APIs, keys and root keys.',
  'root-key': 'Manage root keys, with which callers of the API authenticate.',
  api: 'Manage APIs, the containers of keys.',
  key: 'Manage keys.',
  identity: 'Manage identities, the owners of keys.',
  plan: 'Manage plans, named sets of limits, permissions and roles that keys and identities have.',
  override: 'Manage overrides, other limits of some identifiers in a namespace.',
};

/** Adds a command, in its group if it has one. */
function commandOf(program: Command, { words, about }: { words: string; about: string }): Command {
  const [group, ...rest] = words.split(' ');
  const aboutGroup = groups[group!];
  if (aboutGroup === undefined) return program.command(words).description(about);
  const parent = program.commands.find((command) => command.name() === group);
  return (parent ?? program.command(group!).description(aboutGroup)).command(rest.join(' ')).description(about);
}

/** Adds a command that calls operations: on the store, or on the server at TOLLGATE_URL. */
function addRow(program: Command, runner: Runner, row: CommandRow) {
  // Commander takes several values of the last argument only: one after these is the last of them.
  const [, words = row.words, last] = /^(.*\.\.\.>) <(\w+)>$/.exec(row.words) ?? [];
  const command = commandOf(program, { ...row, words });
  if (last) command.usage(row.words.replace(/^[^<]*/, '[options] '));
  for (const [flags, meaning] of optionsOf(row)) command.option(flags, meaning);
  command
    .option(...workspaceOption)
    .option(...local)
    .option(...json)
    .action(async () => {
      const values = command.registeredArguments.map((argument, at) => [
        argument.name(),
        argument.variadic ? command.args.slice(at, last ? -1 : undefined) : command.args[at],
      ]);
      if (last && command.args.length < 2) command.error(`error: missing required argument '${last}'`);
      const given: Given = {
        ...command.opts(),
        ...Object.fromEntries(values),
        ...(last && { [last]: command.args.at(-1) }),
      };
      const { stdin, stderr } = runner.terminal;
      const runRow = async ({ call, listen }: Client) => {
        const output: Output = {
          listen,
          print: (result) => runner.print(result, given.json === true),
          progress: (...of) => startProgress(stderr, ...of),
          readInput: (max) => readInput(runner.terminal, max),
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

/** A command that needs no root key, and works on the store here. */
interface StoreRow {
  words: string;
  about: string;
  argument?: readonly [name: string, about: string, byDefault?: string];
  options?: readonly (readonly [flags: string, about: string])[];
  run(runner: Runner, options: OptionValues, argument: string): Promise<void>;
}

function addStoreRow(program: Command, runner: Runner, row: StoreRow) {
  const command = commandOf(program, row);
  if (row.argument) command.argument(...row.argument);
  for (const option of [...(row.options ?? []), local, json]) command.option(...option);
  command.action(() => row.run(runner, command.opts(), command.processedArgs[0]));
}

const bulk = { timeoutMs: bulkTimeoutMs };

export const workspaceRows: readonly StoreRow[] = [
  {
    words: 'workspace create <name>',
    about: 'Create a workspace.',
    run: (runner, options, name) => runner.run(options, (store) => createWorkspace(store, name)),
  },
  {
    words: 'workspace list',
    about: 'List the workspaces.',
    run: (runner, options) => runner.run(options, listWorkspaces),
  },
  {
    words: 'workspace end-import <id>',
    about: 'End an import that was interrupted and is not repeated. What it has created stays.',
    options: [['--discard', 'remove the workspace with everything in it']],
    run: (runner, options, id) => runner.run(options, (store) => endImport(store, id, options), bulk),
  },
];

export const storeRows: readonly StoreRow[] = [
  {
    words: 'export',
    about: 'Write everything that is stored as JSON lines to a new file or standard output.',
    argument: ['[file]', 'output file; - is standard output', '-'],
    options: [
      ['--workspace <id>', 'only this workspace (ws_…)'],
      ['--api <id>', 'only the keys of this API (api_…) and what they depend on'],
      ['--without <parts>', 'leave out root-keys, usage or audit, separated by commas'],
      ['--resume', 'continue an export that was interrupted'],
    ],
    async run(runner, options, file) {
      const { exportKeys } = await import('./exportKeys.ts');
      await runner.run(options, (store) => exportKeys(store, runner.terminal, file, options), bulk);
    },
  },
  {
    words: 'import',
    about: 'Create the records of an export. Existing ones are skipped, so an import can be repeated.',
    argument: ['<file>', 'file of JSON lines; - is standard input'],
    options: [
      ['--workspace <id>', 'import into this workspace (ws_…) instead of creating those of the file'],
      ['--api <id>', 'import all keys into this API (api_…), ignoring the API in their lines'],
      ['--without <parts>', 'leave out root-keys, usage or audit, separated by commas'],
      ['--with <parts>', 'import root-keys into a workspace that exists, too'],
      ['--dry-run', 'check every line and change nothing'],
    ],
    async run(runner, options, file) {
      const { importKeys } = await import('./importKeys.ts');
      const { terminal } = runner;
      await runner.run(
        options,
        (store, config) => importKeys({ store, config, terminal }, file, options),
        // A whole installation is imported before the first start of its server.
        { ...bulk, createsData: options.workspace === undefined },
      );
    },
  },
  {
    words: 'inspect',
    about: 'Print what Redis stores of a key, decoded: its state, windows, counters and usage history.',
    argument: [
      '<key>',
      'key id (key_…) or key; - reads it from standard input, so that no process list or history has it',
    ],
    options: [workspaceOption],
    async run(runner, options, key) {
      const { inspect } = await import('./inspect.ts');
      await runner.runIn(options, (store, workspace) => inspect(store, runner.terminal, key, { workspace }));
    },
  },
  {
    words: 'backup <file>',
    about: 'Write all data of Redis to a file while Tollgate runs. docs/backup.md has the restore.',
    async run(runner, { local, json }, file) {
      const { backup } = await import('./backupCommand.ts');
      await runner.runOnRedis({ local }, async (url, config) =>
        runner.print(await backup({ url, config, terminal: runner.terminal }, file), json === true),
      );
    },
  },
  {
    words: 'migrate',
    about: 'Migrate the stored data to the version of this release, as servers do by themselves when all support it.',
    options: [
      ['--dry-run', 'print what would be done and how long it takes, and change nothing'],
      ['--wait', 'wait for servers that prevent it, and for the end if another process migrates'],
      ['--force', 'migrate although connections to Redis may be those of servers before 1.0.0'],
    ],
    async run(runner, options) {
      const { migrate } = await import('./migrateCommand.ts');
      await runner.run(options, (store) => migrate(store, runner.terminal, options), bulk);
    },
  },
  {
    words: 'doctor',
    about: 'Check Node, Redis and the machine, and print what to change. The exit code is 1 if a check fails.',
    async run(runner, { json, local }) {
      runner.requireLocal({ local });
      const { doctor } = await import('./doctor.ts');
      const { terminal } = runner;
      // Pending work, for example a connection to a Cluster, must not keep the process alive once the result is
      // written.
      await runner.print(await doctor(terminal.env), json === true).finally(() => setImmediate(() => terminal.exit()));
    },
  },
];
