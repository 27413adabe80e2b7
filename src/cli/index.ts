// The command line: workspaces and root keys, which HTTP cannot make without a root key, and the server itself. It uses
// the Redis the server uses: that of REDIS_URL, or the one the data directory holds, started for the moment when no
// server runs.

import { Command } from 'commander';
import { type Config, loadConfig, storeSettings } from '../config.ts';
import { embeddedUrlIfRunning, startEmbedded } from '../store/embedded.ts';
import { openStore, type Store } from '../store/store.ts';
import { createRootKey, listRootKeys, revokeRootKey } from './rootKeys.ts';
import { createWorkspace, listWorkspaces } from './workspaces.ts';

/** What a command has to say: in words, and as JSON for `--json`. */
export interface Said {
  /** A line each. */
  words: readonly string[];
  json: unknown;
  /** Standard output is taken by what the command is for: this goes to standard error. */
  aside?: boolean;
  /** The command did not do all it was told to: the exit code says so. */
  failed?: boolean;
}

/** No caller waits behind a bulk command, so Redis may take longer to answer it. */
const bulkTimeoutMs = 30_000;

/** Runs a command on the server's store and prints what it says. */
async function answer(
  { json }: { json?: true },
  command: (store: Store, config: Config) => Promise<Said>,
  timeoutMs = 0,
) {
  // Ctrl-C ends by way of `exit`, upon which a Redis that was started for the moment ends too. The server stops otherwise.
  process.once('SIGINT', () => process.exit(130)).once('SIGTERM', () => process.exit(143));
  const config = loadConfig();
  const runningUrl = config.redisUrl || (await embeddedUrlIfRunning(config.dataDir));
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

async function print({ words, json, aside, failed }: Said, asJson: boolean) {
  const lines = asJson ? [JSON.stringify(json)] : words;
  const output = aside ? process.stderr : process.stdout;
  await new Promise<void>((resolve, reject) => {
    output.write(`${lines.map(visible).join('\n')}\n`, (error) => (error ? reject(error) : resolve()));
  });
  if (failed) process.exitCode = 1;
}

/**
 * Names come from callers of the API. What a terminal would obey, take for the end of the line, reorder or not show at all is
 * printed as JSON escapes it. The two joiners stay: scripts and emoji need them.
 */
const visible = (line: string) =>
  line.replace(/(?![\u200c\u200d])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (character) =>
    [...Array(character.length).keys()]
      .map((at) => `\\u${character.charCodeAt(at).toString(16).padStart(4, '0')}`)
      .join(''),
  );

// A reader that goes away is an error of the write. Heard nowhere else, it would end the process with a stack.
process.stdout.on('error', () => {});

/** A TypeError and its like are bugs: they show where. What an operator can act on is said in words. */
function inWords(error: NodeJS.ErrnoException): string {
  if (error.code === 'EPIPE') return 'Nobody reads the output any longer.';
  const isBug = error instanceof TypeError || error instanceof RangeError;
  return isBug ? error.stack! : error.message;
}

const program = new Command('tollgate').description('Self-hosted API keys.').showHelpAfterError('Add --help for help.');

program
  .command('serve')
  .description('Run the server, as `npm start` does.')
  .action(async () => {
    await import('../main.ts');
  });

// What other commands need no part of is loaded by the command that does.
const json = ['--json', 'print JSON'] as const;
const workspaceOption = ['--workspace <id>', 'the workspace (ws_…)'] as const;

const workspace = program.command('workspace').description('Workspaces: each has its own APIs, keys and root keys.');

workspace
  .command('create <name>')
  .description('Create a workspace.')
  .option(...json)
  .action((name, options) => answer(options, (store) => createWorkspace(store, name)));

workspace
  .command('list')
  .description('List the workspaces.')
  .option(...json)
  .action((options) => answer(options, listWorkspaces));

const rootKey = program.command('root-key').description('Root keys: what callers of the API authenticate with.');

rootKey
  .command('create')
  .description('Create a root key and show it, this once.')
  .requiredOption(...workspaceOption)
  .requiredOption('--permission <grant...>', 'what it may do, such as api.*.verify_key; * is everything')
  .option('--name <name>', 'a name for people')
  .option('--expires <when>', 'a date such as 2027-01-31T12:00Z, or a length of time from now such as 30d, 12h or 15m')
  .option(...json)
  .action((options) => answer(options, (store) => createRootKey(store, options)));

rootKey
  .command('list')
  .description('List the root keys of a workspace.')
  .requiredOption(...workspaceOption)
  .option(...json)
  .action((options) => answer(options, (store) => listRootKeys(store, options)));

rootKey
  .command('revoke <rootKeyId>')
  .description('Revoke a root key. It counts from the next request on.')
  .requiredOption(...workspaceOption)
  .option(...json)
  .action((rootKeyId, options) => answer(options, (store) => revokeRootKey(store, { ...options, rootKeyId })));

program
  .command('export')
  .description('Write keys with all they need, a JSON line each, to a new file or to standard output.')
  .argument('[file]', 'where to; - is standard output', '-')
  .requiredOption(...workspaceOption)
  .option('--api <id>', 'only the keys of this API (api_…)')
  .option('--resume', 'go on behind the last key of the file')
  .option(...json)
  .action(async (file, options) => {
    const { exportKeys } = await import('./exportKeys.ts');
    await answer(options, (store) => exportKeys(store, file, options), bulkTimeoutMs);
  });

program
  .command('import')
  .description('Create what the lines of an export ask for. What exists is passed over, so it may be run again.')
  .argument('<file>', 'JSON lines; - is standard input')
  .requiredOption(...workspaceOption)
  .option('--api <id>', 'put all keys into this API (api_…), whatever their lines say')
  .option('--dry-run', 'check every line and change nothing')
  .option(...json)
  .action(async (file, options) => {
    const { importKeys } = await import('./importKeys.ts');
    await answer(options, (store, config) => importKeys(store, config, file, options), bulkTimeoutMs);
  });

program
  .command('doctor')
  .description(
    'Look at Node, Redis and the machine, and say what to change. The exit code is 1 when something is at fault.',
  )
  .option(...json)
  .action(async ({ json }) => {
    const { doctor } = await import('./doctor.ts');
    // What is still waited for, a Cluster perhaps, does not keep the process; what is said is written first.
    await print(await doctor(), json === true).finally(() => setImmediate(() => process.exit()));
  });

try {
  await program.parseAsync();
} catch (error) {
  const lines = inWords(error as Error).split('\n');
  console.error(`tollgate: ${lines.map(visible).join('\n')}`);
  process.exitCode = 1;
}
