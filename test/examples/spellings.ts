// Spellings of a path that is protected, and how APIs may read them.

/** Paths that a lenient API serves as /documents or below. */
export const documents = [
  '/documents',
  '/documents/',
  '/documents/7',
  '/documents?x=/other',
  '/documents?',
  '/documents/../documents',
  '/%64ocuments',
  '/%64%6f%63%75%6d%65%6e%74%73/7',
  '/%44ocuments',
  '//documents',
  '///documents//7',
  '/./documents',
  '/%2e/documents',
  '/other/../documents',
  '/other/%2e%2e/documents',
  '/other/.%2E/documents',
  '/other/..%2fdocuments',
  '/other%2f..%2fdocuments',
  '/%2fdocuments',
  '/%2Fdocuments/7',
  '/other%2f%2e%2e%2fdocuments',
  '/Documents',
  '/DOCUMENTS/7',
  '/documents/.',
  '/documents;a=b',
  '/documents%2f7',
  '/documents%20',
  '/documents%3fx',
  '/documents%23x',
  '/documents%0a',
  '/documents%00',
  '/other/..\\documents',
  '/other%5c..%5cdocuments',
  '/\\documents',
  '/%5cdocuments',
  'http://api.example/documents',
  'http://api.example//documents',
  'HTTP://api.example/%64ocuments',
  '/documents#x',
  '/other/./..//documents',
  '/other/x/../../documents',
  '/../documents',
  '/..//documents',
  '/documents/%',
  '/documents%',
  '/documents/a%2',
  '/DOCUMENTS/%zz',
  '/%zz/../documents',
  '/documents%u0061',
  '/%u0064ocuments',
  '/%0adocuments',
  '/do%0acuments',
  '/%09documents',
  '/%7fdocuments',
  '/%00/documents',
  '/%20/documents',
  '/%20documents',
  '/documents%20/7',
];

/** Paths with characters that are refused elsewhere: they need no more than a valid key. */
export const harmless = [
  '/a%20b',
  '/a+b',
  '/%C3%A9/%E2%9C%93',
  '/a-b_c~d.e',
  '/a:b@c!$&()*,=',
  '/.well-known/x',
  '/a..b',
];

/**
 * Paths that are /documents to a gateway that normalises them and not to an API that does not, or the other way round.
 */
export const twoWays = [
  '/documents/../other',
  '/documents/%2e%2e/other',
  '/documents%2f..%2fother',
  '/documents/..%2fother',
  '/documents%5c..%5cother',
  '/documents/..;/other',
  '/other/..;/documents',
  '/;/documents',
  '/;a=b/documents',
  '/other/;/../../documents',
  '/other/..%3b/documents',
];

/** All interpretations of a path by APIs: decoded or not, with dots and slashes resolved or not, in any order. */
function readings(url: string): Set<string> {
  const path = url.replace(/^https?:\/\/[^/]*/i, '').replace(/[?#].*$/s, '');
  const decode = (text: string) =>
    text.replace(/%(?:u00)?([0-9a-f]{2})/gi, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16)));
  const steps = [
    decode,
    (text: string) => text.replaceAll('\\', '/'),
    (text: string) => text.replaceAll(/;[^/]*/g, ''),
    (text: string) => text.replaceAll(/\/+/g, '/'),
    // biome-ignore lint/suspicious/noControlCharactersInRegex: some servers remove them.
    (text: string) => text.replaceAll(/[\x00-\x1f\x7f]/g, ''),
    (text: string) => text.replaceAll(/\/ +| +(?=\/|$)/g, (blanks) => blanks.trim()),
    (text: string) => {
      const parts: string[] = [];
      for (const part of text.split('/').slice(1)) {
        if (part === '..') parts.pop();
        else if (part !== '.') parts.push(part);
      }
      return `/${parts.join('/')}`;
    },
  ];
  const found = new Set([path]);
  // The set grows during the loop. Only one pass of decoding: no gateway can protect an API that decodes twice.
  for (const text of found) for (const step of steps) if (step !== decode || text === path) found.add(step(text));
  return found;
}

export const isDocuments = (url: string) => [...readings(url)].some((path) => /^\/documents/i.test(path));
