// One serving process: the pipeline on a store, behind a socket.

import { type Logger, pino } from 'pino';
import { type Config, tlsSettings } from './config.ts';
import { createId } from './domain/keyString.ts';
import { createPipeline } from './http/pipeline.ts';
import { listen, type Server } from './http/server.ts';
import { operations } from './operations/index.ts';
import type { Store } from './store/store.ts';

export interface ServeOptions {
  store: Store;
  config: Config;
  log: Logger;
  /** 0 is any free one. */
  port: number;
  /** Other processes listen on the same port. */
  sharePort: boolean;
}

export function serve({ store, config, log, port, sharePort }: ServeOptions): Promise<Server> {
  const { host, bodyBytesMax, metaBytesMax } = config;
  const answer = createPipeline(operations, { store, log, metaBytesMax });
  // The one use of this machine's clock: a request's id needs no truth.
  const newRequestId = () => createId('req', Date.now());
  return listen({ host, port, sharePort, tls: tlsSettings(config), answer, bodyBytesMax, newRequestId });
}

/** Errors are logged by name, message and stack alone: one of ioredis carries its command, and that may carry a secret. */
export function createLog({ logLevel }: Config): Logger {
  const err = ({ name, message, stack }: Error) => ({ name, message, stack });
  // Standard output is for the address and the first root key, which then is in no log file.
  return pino({ level: logLevel, base: null, serializers: { err } }, pino.destination(2));
}
