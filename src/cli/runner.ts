// Runs a command on the server's store, and prints its result.

import { type Config, loadConfig, storeSettings } from '../config.ts';
import { escapeInvisible } from '../domain/visible.ts';
import { embeddedUrlIfRunning, hasData, startEmbedded } from '../redis/embedded.ts';
import { openStore, type Store } from '../store.ts';
import type { Client } from './client.ts';
import type { CommandResult } from './result.ts';
import { type Terminal, variable } from './terminal.ts';
import { requireWorkspace, workspaceOf } from './workspaces.ts';

/** No caller waits for a bulk command, so Redis may take longer to reply. */
export const bulkTimeoutMs = 30_000;

interface Options {
  json?: true | undefined;
  local?: true | undefined;
}

interface InWorkspace extends Options {
  workspace?: string;
}

interface RunOptions {
  /** The least timeout of commands to Redis, in milliseconds. */
  timeoutMs?: number;
  /** The command may create the data directory. */
  createsData?: boolean;
}

/** Ends the process through `exit`, which also ends a Redis that was started for the command. */
const onSignal = (_name: string, number: number) => process.exit(128 + number);

export class Runner {
  readonly terminal: Terminal;
  exitCode = 0;

  constructor(terminal: Terminal) {
    this.terminal = terminal;
  }

  /** Runs a command on the store. */
  async run(
    { json, local }: Options,
    command: (store: Store, config: Config) => Promise<CommandResult | undefined>,
    { timeoutMs = 0, createsData = false }: RunOptions = {},
  ): Promise<void> {
    process.once('SIGINT', onSignal).once('SIGTERM', onSignal);
    try {
      this.requireLocal({ local });
      const config = loadConfig(this.terminal.env);
      const given = { timeoutMs, createsData };
      await withStore(config, given, async (store) => this.print(await command(store, config), json === true));
    } finally {
      process.off('SIGINT', onSignal).off('SIGTERM', onSignal);
    }
  }

  /** Runs a command on the Redis of a running server, or that of REDIS_URL. */
  async runOnRedis({ local }: Options, command: (url: string, config: Config) => Promise<void>): Promise<void> {
    this.requireLocal({ local });
    const config = loadConfig(this.terminal.env);
    const url = config.redisUrl || (await embeddedUrlIfRunning(config.dataDir));
    if (url) return command(url, config);
    throw new Error(
      `No server runs on ${config.dataDir}: copy that directory instead. docs/backup.md has the command.`,
    );
  }

  /** Throws if the command would work on another installation than that of TOLLGATE_URL. */
  requireLocal({ local }: Options) {
    if (!variable(this.terminal, 'TOLLGATE_URL') || local) return;
    const { redisUrl, dataDir } = loadConfig(this.terminal.env);
    throw new Error(
      'TOLLGATE_URL is set, but this command does not work through a server: it would work on ' +
        `${redisUrl ? 'the Redis of REDIS_URL' : dataDir}. If that is meant, add --local. Otherwise run the command ` +
        'on the machine of that server, without TOLLGATE_URL.',
    );
  }

  /** As `run`, for a command on one workspace. */
  runIn(
    options: InWorkspace,
    command: (store: Store, workspace: string, config: Config) => Promise<CommandResult | undefined>,
  ): Promise<void> {
    const inWorkspace = async (store: Store, config: Config) =>
      command(store, await workspaceOf(store, options.workspace), config);
    return this.run(options, inWorkspace);
  }

  /**
   * As `runIn`, for a command that calls operations. With TOLLGATE_URL it calls those of a server, in the workspace of
   * the root key.
   */
  async runCall(
    options: InWorkspace,
    command: (client: Client) => Promise<CommandResult | undefined>,
    needsServer = false,
  ): Promise<void> {
    const { clientInProcess, clientOverHttp } = await import('./client.ts');
    const url = variable(this.terminal, 'TOLLGATE_URL');
    if (url && !options.local) {
      if (options.workspace !== undefined)
        throw new Error(
          'With TOLLGATE_URL, the workspace is that of TOLLGATE_ROOT_KEY. Leave out --workspace, or add --local to ' +
            'work on the store here.',
        );
      return this.print(
        await command(clientOverHttp(url, variable(this.terminal, 'TOLLGATE_ROOT_KEY'))),
        options.json === true,
      );
    }
    if (needsServer) await requireRedis(loadConfig(this.terminal.env));
    return this.runIn(options, async (store, workspace, config) => {
      await requireWorkspace(store, workspace);
      return command(clientInProcess(store, config, workspace));
    });
  }

  /** Prints a result; undefined if the command has printed all. */
  async print(result: CommandResult | undefined, asJson: boolean): Promise<void> {
    if (!result) return;
    const { lines, json, notes = [], isData = asJson, toStderr, failed } = result;
    const printed = [...(asJson ? [JSON.stringify(json)] : lines), ...(isData ? [] : notes)];
    const output = toStderr ? this.terminal.stderr : this.terminal.stdout;
    await new Promise<void>((resolve, reject) => {
      output.write(textOf(printed), (error) => (error ? reject(error) : resolve()));
    });
    if (isData && notes.length > 0) this.terminal.stderr.write(textOf(notes));
    if (failed) this.exitCode = 1;
  }
}

/** Opens the store of the server: that of REDIS_URL, or the embedded one, which is started if no server runs. */
async function withStore(
  config: Config,
  { timeoutMs, createsData }: Required<RunOptions>,
  use: (store: Store) => Promise<void>,
) {
  const runningUrl = config.redisUrl || (await embeddedUrlIfRunning(config.dataDir));
  if (!runningUrl && !createsData && !hasData(config.dataDir)) throw new Error(noData(config.dataDir));
  const embedded = runningUrl ? undefined : await startForCommand(config);
  try {
    const settings = storeSettings(config);
    const commandTimeoutMs = Math.max(settings.commandTimeoutMs, timeoutMs);
    const { url = runningUrl!, isComplete } = embedded ?? {};
    const store = await openStore({ ...settings, commandTimeoutMs, url, isComplete }).catch((error) => {
      throw 'status' in error ? error : Object.assign(error, { status: 503 });
    });
    try {
      await use(store);
    } finally {
      await store.close();
    }
  } finally {
    await embedded?.stop();
  }
}

/** Starts the embedded Redis for a command. Rejects if a server uses the data: then its Redis does not reply. */
const startForCommand = ({ dataDir, durable }: Config) =>
  startEmbedded({ dataDir, durable }).catch((error: Error & { owner?: string }) => {
    if (error.owner === undefined) throw error;
    throw new Error(
      `Tollgate (process ${error.owner}) uses ${dataDir}, and its Redis does not reply: it starts, stops or hangs. ` +
        "Retry. The server's log has the reason.",
      { cause: error },
    );
  });

/** A command that lasts must not start the embedded Redis: a server could not start while it runs. */
async function requireRedis({ redisUrl, dataDir }: Config) {
  if (redisUrl || (await embeddedUrlIfRunning(dataDir))) return;
  throw new Error(`No server runs on ${dataDir}. Start it, or set TOLLGATE_URL to the address of another one.`);
}

const noData = (dataDir: string) =>
  `There is no data of Tollgate in ${dataDir}. Start the server once (npm start), ` +
  'or set TOLLGATE_DATA_DIR or REDIS_URL to the same value as for the server.';

/** Names come from callers of the API: characters that reorder or hide text are printed as JSON escapes. */
const textOf = (lines: readonly string[]): string => `${lines.map(escapeInvisible).join('\n')}\n`;
