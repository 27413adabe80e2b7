// The command line. It starts the server, and has the commands that need no root key. They use the Redis of the server: that
// of REDIS_URL, or the embedded one, which is started for the command if no server runs.

import { Command } from 'commander';
import { type Config, loadConfig, storeSettings } from '../config.ts';
import { embeddedUrlIfRunning, hasData, startEmbedded } from '../store/embedded.ts';
import { openStore, type Store } from '../store/store.ts';
import { version } from '../version.ts';
import type { CommandResult } from './result.ts';
import { createRootKey, listRootKeys, revokeRootKey } from './rootKeys.ts';
import { createWorkspace, listWorkspaces, workspaceOf } from './workspaces.ts';

/** No caller waits for a bulk command, so Redis may take longer to reply. */
const bulkTimeoutMs = 30_000;

/** Runs a command on the server's store and prints its result. */
async function run(
  { json }: { json?: true },
  command: (store: Store, config: Config) => Promise<CommandResult>,
  timeoutMs = 0,
) {
  // Ctrl-C ends the process through `exit`, which also ends a Redis that was started for the command.
  process.once('SIGINT', () => process.exit(130)).once('SIGTERM', () => process.exit(143));
  const config = loadConfig();
  const runningUrl = config.redisUrl || (await embeddedUrlIfRunning(config.dataDir));
  if (!runningUrl && !hasData(config.dataDir)) throw new Error(noData(config.dataDir));
  const embedded = runningUrl ? undefined : await startEmbedded({ dataDir: config.dataDir, durable: config.durable });
  try {
    const settings = storeSettings(config);
    const commandTimeoutMs = Math.max(settings.commandTimeoutMs, timeoutMs);
    const store = await openStore({ ...settings, commandTimeoutMs, url: runningUrl ?? embedded!.url });
    try {
      await print(await command(store, config), json === true);
    } finally {
      await store.close();
    }
  } finally {
    await embedded?.stop();
  }
}

const noData = (dataDir: string) =>
  `There is no data of Tollgate in ${dataDir}. Start the server once (npm start), ` +
  'or set TOLLGATE_DATA_DIR or REDIS_URL to the same value as for the server.';

/** As `run`, for a command on one workspace. */
const runIn = (
  options: { json?: true; workspace?: string },
  command: (store: Store, workspace: string, config: Config) => Promise<CommandResult>,
  timeoutMs = 0,
) =>
  run(options, async (store, config) => command(store, await workspaceOf(store, options.workspace), config), timeoutMs);

async function print({ lines, json, toStderr, failed }: CommandResult, asJson: boolean) {
  const printed = asJson ? [JSON.stringify(json)] : lines;
  const output = toStderr ? process.stderr : process.stdout;
  await new Promise<void>((resolve, reject) => {
    output.write(`${printed.map(escapeInvisible).join('\n')}\n`, (error) => (error ? reject(error) : resolve()));
  });
  if (failed) process.exitCode = 1;
}

/**
 * Names come from callers of the API. Control characters, line separators, and characters that reorder or hide text are
 * printed as JSON escapes. The two joiners stay: scripts and emoji need them.
 */
const escapeInvisible = (line: string) =>
  line.replace(/(?![\u200c\u200d])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (character) =>
    [...Array(character.length).keys()]
      .map((index) => `\\u${character.charCodeAt(index).toString(16).padStart(4, '0')}`)
      .join(''),
  );

// The write reports a closed pipe. Without a listener, its event would end the process with a stack.
process.stdout.on('error', () => {});

/** Errors for the operator are printed without a stack. A TypeError or RangeError is a bug. */
function messageOf(error: NodeJS.ErrnoException): string {
  if (error.code === 'EPIPE') return 'The reader of the output has closed it.';
  const isBug = error instanceof TypeError || error instanceof RangeError;
  return isBug ? error.stack! : error.message;
}

const program = new Command('tollgate')
  .description('Self-hosted API keys.')
  .version(version, '-V, --version', 'print the version')
  .showHelpAfterError('Add --help for help.');

program
  .command('serve')
  .description('Run the server, as `npm start` does.')
  .action(async () => {
    await import('../main.ts');
  });

// Modules that only one command needs are loaded by that command.
const json = ['--json', 'print JSON'] as const;
const workspaceOption = ['--workspace <id>', 'the workspace (ws_…); not needed if there is only one'] as const;

const workspace = program
  .command('workspace')
  .description('Manage workspaces. Each has its own APIs, keys and root keys.');

workspace
  .command('create <name>')
  .description('Create a workspace.')
  .option(...json)
  .action((name, options) => run(options, (store) => createWorkspace(store, name)));

workspace
  .command('list')
  .description('List the workspaces.')
  .option(...json)
  .action((options) => run(options, listWorkspaces));

const rootKey = program
  .command('root-key')
  .description('Manage root keys, with which callers of the API authenticate.');

rootKey
  .command('create')
  .description('Create a root key and print it. It cannot be printed again.')
  .option(...workspaceOption)
  .requiredOption('--permission <grant...>', 'grants, such as api.*.verify_key; * grants everything')
  .option('--name <name>', 'a name')
  .option('--expires <when>', 'a date such as 2027-01-31T12:00Z, or a duration from now such as 30d, 12h or 15m')
  .option(...json)
  .action((options) => runIn(options, (store, workspace) => createRootKey(store, { ...options, workspace })));

rootKey
  .command('list')
  .description('List the root keys of a workspace.')
  .option(...workspaceOption)
  .option(...json)
  .action((options) => runIn(options, (store, workspace) => listRootKeys(store, { workspace })));

rootKey
  .command('revoke <rootKeyId>')
  .description('Revoke a root key, effective immediately.')
  .option(...workspaceOption)
  .option(...json)
  .action((rootKeyId, options) => runIn(options, (store, workspace) => revokeRootKey(store, { workspace, rootKeyId })));

program
  .command('export')
  .description('Write keys and everything they depend on as JSON lines to a new file or standard output.')
  .argument('[file]', 'output file; - is standard output', '-')
  .option(...workspaceOption)
  .option('--api <id>', 'only the keys of this API (api_…)')
  .option('--resume', 'continue after the last key of the file')
  .option(...json)
  .action(async (file, options) => {
    const { exportKeys } = await import('./exportKeys.ts');
    await runIn(options, (store, workspace) => exportKeys(store, file, { ...options, workspace }), bulkTimeoutMs);
  });

program
  .command('import')
  .description('Create the records of an export. Existing ones are skipped, so an import can be repeated.')
  .argument('<file>', 'file of JSON lines; - is standard input')
  .option(...workspaceOption)
  .option('--api <id>', 'import all keys into this API (api_…), ignoring the API in their lines')
  .option('--dry-run', 'check every line and change nothing')
  .option(...json)
  .action(async (file, options) => {
    const { importKeys } = await import('./importKeys.ts');
    await runIn(
      options,
      (store, workspace, config) => importKeys(store, config, file, { ...options, workspace }),
      bulkTimeoutMs,
    );
  });

program
  .command('inspect')
  .description('Print what Redis stores of a key, decoded: its state, windows, counters and usage history.')
  .argument('<key>', 'key id (key_…) or key; - reads it from standard input, so that no process list or history has it')
  .option(...workspaceOption)
  .option(...json)
  .action(async (key, options) => {
    const { inspect } = await import('./inspect.ts');
    await runIn(options, (store, workspace) => inspect(store, key, { workspace }));
  });

program
  .command('doctor')
  .description('Check Node, Redis and the machine, and print what to change. The exit code is 1 if a check fails.')
  .option(...json)
  .action(async ({ json }) => {
    const { doctor } = await import('./doctor.ts');
    // Pending work, for example a connection to a Cluster, must not keep the process alive once the result is written.
    await print(await doctor(), json === true).finally(() => setImmediate(() => process.exit()));
  });

try {
  await program.parseAsync();
} catch (error) {
  const lines = messageOf(error as Error).split('\n');
  console.error(`tollgate: ${lines.map(escapeInvisible).join('\n')}`);
  process.exitCode = 1;
}
