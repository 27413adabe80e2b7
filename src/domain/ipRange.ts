// IP addresses and CIDR ranges: what a key with `allowedIps` admits (docs/contract.md §4). An IPv4-mapped IPv6 address
// (`::ffff:10.0.0.1`) is the IPv4 address.
//
// Both are packed as hexadecimal digits, which Lua compares as strings (lua/decide/verification/restriction.lua).
//
//   address  8 digits of IPv4, 32 of IPv6       10.1.2.3 is `0a010203`
//   range    4 or 6, its prefix length (2), and  10.0.0.0/8 is `4080a`, 2001:db8::/29 is `61d20010db8`,
//            the digits that the prefix reaches  ::/0 is `600`

import { isIPv4, isIPv6 } from 'node:net';

/** The longest text of an address has IPv4 notation at its end; that of a range has `/128` in addition. */
export const addressCharactersMax = 45;
export const rangeCharactersMax = addressCharactersMax + 4;

const bitsOfDigit = 4;

/**
 * An address, packed; undefined if the text is none. An octet with leading zeros is refused, because some programs read
 * it as octal.
 */
export function packAddress(text: string): string | undefined {
  if (isIPv4(text)) return digitsOfIpv4(text);
  // A zone has a meaning on one machine only.
  if (!isIPv6(text) || text.includes('%')) return undefined;
  const [head, tail] = text.toLowerCase().split('::');
  const after = digitsOfGroups(tail ?? '');
  const digits = digitsOfGroups(head!).padEnd(32 - after.length, '0') + after;
  return digits.startsWith(mappedPrefix) ? digits.slice(mappedPrefix.length) : digits;
}

/** The digits of ::ffff:0:0/96. */
const mappedPrefix = `${'0'.repeat(20)}ffff`;

const hexOf = (value: number, digits: number) => value.toString(16).padStart(digits, '0');
const digitsOfIpv4 = (text: string): string =>
  text
    .split('.')
    .map((part) => hexOf(Number(part), 2))
    .join('');

function digitsOfGroups(text: string): string {
  if (text === '') return '';
  let digits = '';
  for (const group of text.split(':')) digits += group.includes('.') ? digitsOfIpv4(group) : group.padStart(4, '0');
  return digits;
}

/** An address or a CIDR range, packed; undefined if the text is neither. Bits after the prefix are cleared. */
function packRange(text: string): string | undefined {
  const [addressText = '', lengthText, ...more] = text.split('/');
  const address = packAddress(addressText);
  if (address === undefined || more.length > 0) return undefined;
  const bits = address.length * bitsOfDigit;
  if (lengthText === undefined) return packedRange(address, bits);
  if (!/^(?:0|[1-9]\d{0,2})$/.test(lengthText)) return undefined;
  // The prefix of an IPv4-mapped range counts from the beginning of the IPv6 address.
  const isMapped = bits === 32 && addressText.includes(':');
  const length = Number(lengthText) - (isMapped ? mappedPrefix.length * bitsOfDigit : 0);
  return length >= 0 && length <= bits ? packedRange(address, length) : undefined;
}

function packedRange(address: string, length: number): string {
  const whole = Math.floor(length / bitsOfDigit);
  const rest = length % bitsOfDigit;
  let digits = address.slice(0, whole);
  if (rest > 0) digits += hexOf(Number.parseInt(address[whole]!, 16) & (0xf << (bitsOfDigit - rest)), 1);
  return `${address.length === 8 ? 4 : 6}${hexOf(length, 2)}${digits}`;
}

export const isRange = (text: string): boolean => packRange(text) !== undefined;

/** Ranges, packed one after the other, each once. They were checked. */
export const packRanges = (texts: readonly string[]): string =>
  [...new Set(texts.map((text) => packRange(text)!))].join('');

/** The reverse of packRanges, in canonical form (RFC 5952). A range of one address has no prefix length. */
export function unpackRanges(packed: string): string[] {
  const ranges: string[] = [];
  for (let at = 0; at < packed.length; ) {
    const length = Number.parseInt(packed.slice(at + 1, at + 3), 16);
    const end = at + 3 + Math.ceil(length / bitsOfDigit);
    const isIpv4 = packed[at] === '4';
    const digits = packed.slice(at + 3, end).padEnd(isIpv4 ? 8 : 32, '0');
    const text = addressText(digits);
    ranges.push(length === digits.length * bitsOfDigit ? text : `${text}/${length}`);
    at = end;
  }
  return ranges;
}

/** The canonical text of a packed address. */
export function addressText(digits: string): string {
  if (digits.length === 8)
    return digits.replace(/../g, (byte, at) => `${at > 0 ? '.' : ''}${Number.parseInt(byte, 16)}`);
  // URL prints IPv6 addresses in canonical form.
  return new URL(`http://[${digits.match(/.{4}/g)!.join(':')}]`).hostname.slice(1, -1);
}
