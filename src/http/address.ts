// The address of a caller, for the audit log. Behind a proxy that of the connection is the proxy's, so a setting names
// the header in which the proxy sends the address. Without it no header is read, as any caller can send one.

import { isIP, SocketAddress } from 'node:net';
import type { Logger } from 'pino';
import type { HeadRequest, Request } from './message.ts';

/**
 * The address in a text, in its shortest form; '' if there is none. Some proxies append the port to it
 * (`192.0.2.7:4711`, `[2001:db8::7]:4711`).
 */
function readAddress(text: string): string {
  const [, bracketed, dotted] = /^(?:\[([^\]%]*)\]|(\d+(?:\.\d+){3}))(?::\d{1,5})?$/.exec(text) ?? [];
  const address = bracketed ?? dotted ?? text;
  const family = isIP(address);
  if (family === 4 && bracketed === undefined) return address;
  // The zone of a link-local address has a meaning on one machine only.
  if (family !== 6 || address.includes('%')) return '';
  const { address: shortest } = new SocketAddress({ address, family: 'ipv6' });
  return /^::ffff:(\d+\.\d+\.\d+\.\d+)$/.exec(shortest)?.[1] ?? shortest;
}

/**
 * The address of an end user, in a header such as X-Forwarded-For: the last one, which the nearest proxy added. Those
 * before it may be from the end user. Undefined without the header, '' if the last one is empty or no address.
 */
export function endUserAddress({ headers }: Pick<HeadRequest, 'headers'>, header: string): string | undefined {
  const last = header === '' ? undefined : headers.get(header.toLowerCase())?.at(-1);
  return last === undefined ? undefined : readAddress(last.slice(last.lastIndexOf(',') + 1).trim());
}

/** Finds the addresses of callers. */
export class CallerAddresses {
  readonly #log: Pick<Logger, 'warn'>;
  #isWarned = false;

  constructor(log: Pick<Logger, 'warn'>) {
    this.#log = log;
  }

  /**
   * With CLIENT_ADDRESS_HEADER the last address in that header, which the nearest proxy added. Without the setting, or
   * where the header has no address, that of the connection.
   */
  of({ peer, forwardedFor }: Pick<Request, 'peer' | 'forwardedFor'>): string {
    if (forwardedFor !== undefined) {
      const address = readAddress(forwardedFor.slice(forwardedFor.lastIndexOf(',') + 1).trim());
      if (address !== '') return address;
      if (!this.#isWarned) this.#log.warn(noAddress);
      this.#isWarned = true;
    }
    return peer ? readAddress(Buffer.from(peer.getRemoteAddressAsText()).toString('latin1')) : '';
  }
}

const noAddress =
  'A request has no address in the header that CLIENT_ADDRESS_HEADER names. The audit log has the address of the connection for such requests. This is logged once.';
