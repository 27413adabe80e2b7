// Compared with node:net, which parses addresses and matches ranges by itself.

import { BlockList, isIP } from 'node:net';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { addressText, isRange, packAddress, packRanges, unpackRanges } from '../../src/domain/ipRange.ts';

const canonical = (text: string) => unpackRanges(packRanges([text]))[0];

describe('canonical form', () => {
  test.each([
    ['10.1.2.3', '10.1.2.3'],
    ['10.1.2.3/32', '10.1.2.3'],
    ['10.1.2.3/8', '10.0.0.0/8'],
    ['10.255.255.255/9', '10.128.0.0/9'],
    ['0.0.0.0/0', '0.0.0.0/0'],
    ['255.255.255.255/31', '255.255.255.254/31'],
    ['::', '::'],
    ['::/0', '::/0'],
    ['1:2:3:4:5:6:7::', '1:2:3:4:5:6:7:0'],
    ['2001:DB8::1/128', '2001:db8::1'],
    ['2001:0db8:0000:0000:0001:0000:0000:0001', '2001:db8::1:0:0:1'],
    ['2001:db8:0:1:1:1:1:1', '2001:db8:0:1:1:1:1:1'],
    ['2001:db8:ffff::/33', '2001:db8:8000::/33'],
    ['2001:db8:ffff::1/29', '2001:db8::/29'],
    ['::ffff:10.1.2.3', '10.1.2.3'],
    ['::FFFF:0a01:0203', '10.1.2.3'],
    ['::ffff:10.1.2.3/104', '10.0.0.0/8'],
    ['::ffff:0:0/96', '0.0.0.0/0'],
    ['64:ff9b::10.1.2.3', '64:ff9b::a01:203'],
    ['1:2:3:4:5:6:1.2.3.4', '1:2:3:4:5:6:102:304'],
  ])('%s is %s', (text, expected) => expect(canonical(text)).toBe(expected));

  test('the same range is stored once, in the place of the first', () => {
    expect(unpackRanges(packRanges(['::1', '10.1.0.0/8', '10.0.0.0/8', '0:0::1']))).toEqual(['::1', '10.0.0.0/8']);
  });

  test('the examples in ipRange.ts are packed as it states', () => {
    expect(packAddress('10.1.2.3')).toBe('0a010203');
    expect(packRanges(['10.0.0.0/8', '2001:db8::/29', '::/0'])).toBe('4080a61d20010db8600');
  });
});

describe('refused', () => {
  const texts = [
    '',
    ' 10.1.2.3',
    '10.1.2.3 ',
    '10.1.2',
    '10.1.2.3.4',
    '010.1.1.1',
    '10.1.1.01',
    '0x0a.1.1.1',
    '167838211',
    '256.1.1.1',
    '10.1.2.3:80',
    '10.1.2.-3',
    '١٠.1.2.3',
    '[::1]',
    '[::1]:80',
    'fe80::1%eth0',
    ':::',
    ':',
    '1',
    ':1',
    '1:',
    '1::2::3',
    '1:2:3:4:5:6:7',
    '1:2:3:4:5:6:7:8:9',
    '1:2:3:4:5:6:7:8::',
    '::1:2:3:4:5:6:7:8',
    '12345::',
    'g::',
    '1.2.3.4::',
    '::1.2.3.4:5',
    '::01.2.3.4',
    '1:2:3:4:5:6:7:1.2.3.4',
    'localhost',
    `${'0'.repeat(40)}::1`,
  ];
  test.each(texts)('address %j', (text) => expect([packAddress(text), isRange(text)]).toEqual([undefined, false]));

  test.each([
    '10.0.0.0/33',
    '10.0.0.0/',
    '10.0.0.0/08',
    '10.0.0.0/+8',
    '10.0.0.0/ 8',
    '10.0.0.0/8/8',
    '10.0.0.0/255.0.0.0',
    '10.0.0.0/-1',
    '10.0.0.0/8.5',
    '::/129',
    '::/1e1',
    '::ffff:10.0.0.0/95',
    '10/8',
    '/8',
  ])('range %j', (text) => expect(isRange(text)).toBe(false));
});

const ipv4 = fc.ipV4();
const ipv6 = fc.oneof(
  fc.ipV6(),
  fc.tuple(fc.constant('::ffff:'), ipv4).map((parts) => parts.join('')),
);
const address = fc.oneof(ipv4, ipv6);

test('an address is one exactly if node:net has it for one, except for a zone', () => {
  const alphabet = fc.constantFrom(...'0123456789abfF:./% ');
  const text = fc.oneof(address, fc.string({ unit: alphabet, maxLength: 20 }));
  fc.assert(fc.property(text, (text) => (packAddress(text) !== undefined) === (isIP(text) > 0 && !text.includes('%'))));
});

test('a canonical text is unchanged, and no longer than the URL parser makes it', () => {
  fc.assert(
    fc.property(address, (text) => {
      const printed = addressText(packAddress(text)!);
      expect(addressText(packAddress(printed)!)).toBe(printed);
      if (printed.includes(':')) expect(`[${printed}]`).toBe(new URL(`http://[${text}]`).hostname);
    }),
  );
});

test('a canonical range has the addresses that node:net matches', () => {
  const ranges = address.chain((text) => fc.tuple(fc.constant(text), fc.nat(packAddress(text)!.length * 4)));
  fc.assert(
    fc.property(ranges, address, ([text, length], other) => {
      const isMapped = packAddress(text)!.length === 8 && text.includes(':');
      const [network, bits] = canonical(`${text}/${isMapped ? length + 96 : length}`)!.split('/');
      const family = network!.includes(':') ? 'ipv6' : 'ipv4';
      const [ours, given] = [new BlockList(), new BlockList()];
      ours.addSubnet(network!, Number(bits ?? (family === 'ipv6' ? 128 : 32)), family);
      given.addSubnet(addressText(packAddress(text)!), length, family);
      for (const each of [text, other]) {
        const tried = addressText(packAddress(each)!);
        const of = tried.includes(':') ? 'ipv6' : 'ipv4';
        expect(ours.check(tried, of)).toBe(given.check(tried, of));
      }
    }),
  );
});
