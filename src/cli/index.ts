// The command line: workspaces and root keys, which HTTP cannot make without a root key, and the server itself. It uses
// the Redis the server uses: that of REDIS_URL, or the one the data directory holds, started for the moment when no
// server runs.

import { Command } from 'commander';
import { loadConfig, storeSettings } from '../config.ts';
import { embeddedUrlIfRunning, startEmbedded } from '../store/embedded.ts';
import { openStore, type Store } from '../store/store.ts';
import { createRootKey, listRootKeys, revokeRootKey } from './rootKeys.ts';
import { createWorkspace, listWorkspaces } from './workspaces.ts';

/** What a command has to say: in words, and as JSON for `--json`. */
export interface Said {
  words: string;
  json: unknown;
}

/** Runs a command on the server's store and prints what it says. */
async function answer({ json }: { json?: true }, command: (store: Store) => Promise<Said>) {
  // Ctrl-C ends by way of `exit`, upon which a Redis that was started for the moment ends too. The server stops otherwise.
  process.once('SIGINT', () => process.exit(130)).once('SIGTERM', () => process.exit(143));
  const config = loadConfig();
  const runningUrl = config.redisUrl || (await embeddedUrlIfRunning(config.dataDir));
  const embedded = runningUrl ? undefined : await startEmbedded({ dataDir: config.dataDir, durable: config.durable });
  try {
    const store = await openStore({ ...storeSettings(config), url: runningUrl ?? embedded!.url });
    try {
      const said = await command(store);
      console.log(json ? JSON.stringify(said.json) : said.words);
    } finally {
      await store.close();
    }
  } finally {
    await embedded?.stop();
  }
}

const program = new Command('tollgate').description('Self-hosted API keys.').showHelpAfterError('Add --help for help.');

program
  .command('serve')
  .description('Run the server, as `npm start` does.')
  .action(async () => {
    await import('../main.ts');
  });

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

try {
  await program.parseAsync();
} catch (error) {
  // A TypeError and its like are bugs: they show where. What an operator can act on is said in words.
  const isBug = error instanceof TypeError || error instanceof RangeError;
  console.error(`tollgate: ${isBug ? error.stack : (error as Error).message}`);
  process.exitCode = 1;
}
