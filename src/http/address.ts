// The address of a caller, for the audit log. Behind a proxy that of the connection is the proxy's, so a setting names
// the header in which the proxy sends the address. Without it no header is read, as any caller can send one.

import { isIP, SocketAddress } from 'node:net';
import type { Request } from './message.ts';

/** An address in its shortest form; '' if it is none. */
function shortest(text: string): string {
  const family = isIP(text);
  if (family !== 6) return family === 4 ? text : '';
  const { address } = new SocketAddress({ address: text, family: 'ipv6' });
  return /^::ffff:(\d+\.\d+\.\d+\.\d+)$/.exec(address)?.[1] ?? address;
}

/**
 * The address of the connection; with CLIENT_ADDRESS_HEADER the last one in that header, which the nearest proxy added.
 */
export function addressOf({ peer, forwardedFor }: Pick<Request, 'peer' | 'forwardedFor'>): string {
  if (forwardedFor !== undefined) return shortest(forwardedFor.slice(forwardedFor.lastIndexOf(',') + 1).trim());
  return peer ? shortest(Buffer.from(peer.getRemoteAddressAsText()).toString('latin1')) : '';
}
