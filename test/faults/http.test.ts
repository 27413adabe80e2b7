// Hostile HTTP on raw sockets against the built server: no crash, no 5xx, and every response is in the envelope or is a
// refusal of uWebSockets.js, which closes the connection. test/http/server.test.ts tests how http/server.ts handles
// single bytes; here everything behind it is real too.

import { once } from 'node:events';
import { connect } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { errorCatalogue } from '../../src/errors.ts';
import { type Alone, build, endAll, startAlone } from '../support/processes.ts';
import { report } from './report.ts';

let server: Alone;
let pid: number | undefined;
let requests = 0;
let refusedBelow = 0;

beforeAll(async () => {
  build();
  server = await startAlone({ LOG_LEVEL: 'warn' });
  pid = server.child.pid;
});
afterAll(endAll);

/** After each test the server responds to another caller, is the same process, and has logged nothing. */
afterEach(async () => {
  expect((await fetch(`http://127.0.0.1:${server.port}/v2/liveness`)).status).toBe(200);
  expect(server.child.exitCode).toBeNull();
  expect(server.err).toBe('');
});

interface Answer {
  status: number;
  headers: Map<string, string>;
  body: string;
  // biome-ignore lint/suspicious/noExplicitAny: any JSON.
  json: any;
}

interface Conversation {
  answers: Answer[];
  /** The server closed the connection instead of responding to a last, plain request. */
  closed: boolean;
}

/**
 * Sends each part in a packet of its own and reads until `expected` responses have arrived. Then checks whether the
 * connection is still open.
 */
async function converse(parts: (string | Buffer)[], expected = 1): Promise<Conversation> {
  const socket = connect(server.port, '127.0.0.1').setNoDelay();
  socket.on('error', () => {}); // A connection may be closed by a reset.
  let bytes = Buffer.alloc(0);
  let closed = false;
  // Not `once` of node:events, which rejects if an error precedes the close.
  const ended = new Promise<void>((resolve) => {
    socket.once('close', () => {
      closed = true;
      resolve();
    });
  });
  const more = () => Promise.race([ended, new Promise((resolve) => socket.once('data', resolve))]);
  socket.on('data', (data) => {
    bytes = Buffer.concat([bytes, data]);
  });
  await once(socket, 'connect');
  for (const part of parts) {
    await new Promise((resolve) => socket.write(part, resolve));
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  while (!closed && parseAnswers(bytes).length < expected) await more();
  // An open connection responds to a last, plain request.
  if (!closed) {
    const before = parseAnswers(bytes).length;
    socket.write('GET /v2/liveness HTTP/1.1\r\nHost: t\r\n\r\n');
    while (!closed && parseAnswers(bytes).length === before) await more();
  }
  const answers = parseAnswers(bytes);
  if (!closed) answers.pop();
  socket.destroy();
  requests += answers.length;
  for (const answer of answers) checkAnswer(answer, closed);
  return { answers, closed };
}

/** The complete responses among the bytes. */
function parseAnswers(bytes: Buffer): Answer[] {
  const answers: Answer[] = [];
  for (let at = 0; ; ) {
    const end = bytes.indexOf('\r\n\r\n', at);
    if (end < 0) return answers;
    const [line, ...lines] = bytes.subarray(at, end).toString('latin1').split('\r\n');
    const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(line!)?.[1]);
    const headers = new Map(lines.map((text) => text.split(/: ?(.*)/s) as [string, string]));
    const named = new Map([...headers].map(([name, value]) => [name.toLowerCase(), value]));
    const isBare = status === 100 || status === 204;
    // Refusals of uWebSockets.js have no Content-Length: they end with the connection.
    const length = isBare ? 0 : Number(named.get('content-length') ?? bytes.length - end - 4);
    if (bytes.length < end + 4 + length) return answers;
    const body = bytes.subarray(end + 4, end + 4 + length).toString();
    at = end + 4 + length;
    if (status === 100) continue;
    const json = named.get('content-type')?.includes('json') ? JSON.parse(body) : undefined;
    answers.push({ status, headers: named, body, json });
  }
}

/** Tollgate's responses are in the envelope. The few of uWebSockets.js are the last on their connection. */
function checkAnswer({ status, headers, body, json }: Answer, closed: boolean) {
  if (!headers.has('x-request-id')) {
    expect([400, 431, 505]).toContain(status);
    expect(closed).toBe(true);
    refusedBelow++;
    return;
  }
  expect(status).toBeLessThan(500);
  if (json === undefined) return expect(headers.get('content-type')).toMatch(/^text\/html/);
  expect(json.meta).toEqual({ requestId: headers.get('x-request-id') });
  if (status === 200) return expect(body).toContain('"data":');
  expect(json.error).toEqual({
    title: expect.stringMatching(/./),
    detail: expect.stringMatching(/./),
    status,
    type: expect.stringMatching(/^\/errors\/\w+$/),
    errors: expect.any(Array),
  });
  expect(errorCatalogue.map(({ code }) => `/errors/${code}`)).toContain(json.error.type);
}

const codeOf = ({ json }: Answer): string => json?.error?.type.split('/').at(-1);

interface Sent {
  method?: string;
  target?: string;
  version?: string;
  /** Instead of the usual headers, except Host. */
  headers?: string[];
  /** In addition to the usual headers. */
  more?: string[];
  body?: string | Buffer;
}

/** A valid request, except for the given parts. */
function request({ method = 'POST', target = '/v2/apis.createApi', version = '1.1', headers, more, body }: Sent = {}) {
  const payload = Buffer.from(body ?? '{"name":"hostile"}');
  const usual = [
    `Authorization: Bearer ${server.rootKey}`,
    'Content-Type: application/json',
    `Content-Length: ${payload.length}`,
  ];
  const lines = [`${method} ${target} HTTP/${version}`, 'Host: t', ...(headers ?? usual), ...(more ?? [])];
  return Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'), payload]);
}

const auth = () => `Authorization: Bearer ${server.rootKey}`;
const json = 'Content-Type: application/json';
const good = '{"name":"hostile"}';

describe('Content-Length and chunked bodies', () => {
  test.each<[string, () => string[], string, number]>([
    ['two equal lengths', () => ['Content-Length: 18', 'Content-Length: 18'], good, 400],
    ['two unequal lengths', () => ['Content-Length: 18', 'Content-Length: 2'], good, 400],
    ['a list of lengths', () => ['Content-Length: 18, 18'], good, 400],
    ['chunked with a length', () => ['Transfer-Encoding: chunked', 'Content-Length: 18'], good, 400],
    ['a length, then chunked', () => ['Content-Length: 18', 'Transfer-Encoding: chunked'], good, 400],
    ['chunked twice', () => ['Transfer-Encoding: chunked, chunked'], good, 400],
    ['an encoding of no meaning', () => ['Transfer-Encoding: xchunked'], good, 400],
    ['a tab before chunked', () => ['Transfer-Encoding:\tchunked', 'Content-Length: 18'], good, 400],
    ['a space before the colon', () => ['Content-Length : 18'], good, 400],
    ['a length with an underscore', () => ['Content-Length: 1_8'], good, 400],
    ['a length in other digits', () => ['Content-Length: ١٨'], good, 400],
    ['a length of 2^64', () => ['Content-Length: 18446744073709551616'], good, 400],
    ['a length of a terabyte', () => ['Content-Length: 1000000000000'], '', 413],
    ['a chunk with an extension', () => ['Transfer-Encoding: chunked'], '12;extension=x\r\n', 400],
    ['a negative chunk', () => ['Transfer-Encoding: chunked'], '-1\r\n', 400],
    ['a chunk of 2^64 bytes', () => ['Transfer-Encoding: chunked'], '10000000000000000\r\n', 400],
    ['two authorizations', () => [auth(), 'Content-Length: 18'], good, 400],
    ['two content types', () => [json, 'Content-Length: 18'], good, 400],
  ])('%s: refused, and the connection closed', async (_what, headers, body, status) => {
    const { answers, closed } = await converse([request({ headers: [auth(), json, ...headers()], body })]);
    expect(answers.map((answer) => answer.status)).toEqual([status]);
    expect(closed).toBe(true);
  });

  test('a body in eighteen chunks is one body, and the connection is closed after it', async () => {
    const chunks = [...good].map((character) => `1\r\n${character}\r\n`);
    const headers = [auth(), json, 'Transfer-Encoding: chunked'];
    const { answers, closed } = await converse([request({ headers, body: '' }), ...chunks, '0\r\n\r\n']);
    expect(answers.map(({ status }) => status)).toEqual([200]);
    expect(closed).toBe(true);
  });

  test.each([
    ['behind a doubtful length', ['Content-Length: 18', 'Content-Length: 18']],
    ['behind chunks that have a length too', ['Content-Length: 5', 'Transfer-Encoding: chunked']],
    ['behind an encoding that is not chunked', ['Transfer-Encoding: chunke\x64\x0b', 'Content-Length: 5']],
  ])('a request smuggled %s is not answered, and makes nothing', async (_what, lengths) => {
    const hidden = request({ body: '{"name":"smuggled"}' });
    const { answers } = await converse([
      Buffer.concat([request({ headers: [auth(), json, ...lengths], body: '0\r\n\r\n' }), hidden]),
    ]);
    expect(answers.map(({ status }) => status)).toEqual([expect.toBeOneOf([400, 505])]);
    expect(await namesOfApis()).not.toContain('smuggled');
  });

  test('a request whose body is cut off by the end of the connection is dropped', async () => {
    const socket = connect(server.port, '127.0.0.1');
    await once(socket, 'connect');
    const whole = request({ body: '{"name":"cut off"}' });
    socket.end(whole.subarray(0, -1));
    await once(socket, 'close');
  });
});

/** The names of the APIs that were created within the latest hundred changes. */
async function namesOfApis(): Promise<string> {
  const response = await fetch(`http://127.0.0.1:${server.port}/v2/audit.listEvents`, {
    method: 'POST',
    headers: { authorization: `Bearer ${server.rootKey}`, 'content-type': 'application/json' },
    body: '{"limit":100,"order":"desc"}',
  });
  const { data } = (await response.json()) as { data: { resource: { id: string } }[] };
  const names = await Promise.all(
    data
      .filter(({ resource }) => resource.id.startsWith('api_'))
      .map(async ({ resource }) => {
        const [answer] = (
          await converse([request({ target: '/v2/apis.getApi', body: JSON.stringify({ apiId: resource.id }) })])
        ).answers;
        return answer!.json.data.name as string;
      }),
  );
  return names.join('\n');
}

describe('several requests on one connection', () => {
  test('pipelined: no response is repeated or in another order', async () => {
    const two = Buffer.concat([
      request({ target: '/v2/liveness', method: 'GET', headers: [], body: '' }),
      request({ target: '/v2/apis.getApi', body: '{"apiId":"api_nothing"}' }),
    ]);
    const { answers } = await converse([two], 2);
    expect(answers.length).toBeGreaterThan(0);
    expect(answers[0]!.status).toBe(200);
    if (answers.length > 1) expect(codeOf(answers[1]!)).toBe('api_not_found');
  });

  test('pipelined, without a wait for Redis: all get a response', async () => {
    const live = request({ target: '/health/live', method: 'GET', headers: [], body: '' });
    const { answers, closed } = await converse([Buffer.concat([live, live])], 2);
    expect({ statuses: answers.map(({ status }) => status), closed }).toEqual({ statuses: [200, 200], closed: false });
  });

  test('pipelined behind one that waits for Redis: the connection is closed', async () => {
    const found = request({ target: '/v2/apis.getApi', body: '{"apiId":"api_nothing"}' });
    const { answers, closed } = await converse([Buffer.concat([found, found])], 2);
    expect({ answers, closed }).toEqual({ answers: [], closed: true });
  });

  test('a hundred pipelined requests do not harm the server', async () => {
    const { answers, closed } = await converse([Buffer.concat(Array.from({ length: 100 }, () => request()))], 100);
    expect(closed || answers.length === 100).toBe(true);
  });

  test('kept alive: fifty on one connection, good and bad', async () => {
    const parts = Array.from({ length: 50 }, (_, index) => (index % 2 ? request() : request({ body: '{' })));
    const socket = connect(server.port, '127.0.0.1');
    let text = '';
    socket.on('data', (data) => (text += data));
    for (const [index, part] of parts.entries()) {
      socket.write(part);
      while ((text.match(/HTTP\/1\.1 /g) ?? []).length <= index || !text.endsWith('}')) await once(socket, 'data');
    }
    socket.destroy();
    expect(text.match(/HTTP\/1\.1 (200|400)/g)).toEqual(parts.map((_, i) => `HTTP/1.1 ${i % 2 ? 200 : 400}`));
  });
});

describe('request heads', () => {
  test.each<[string, () => Buffer, number]>([
    ['a header of 50 000 bytes', () => request({ more: [`X-Long: ${'x'.repeat(50_000)}`] }), 431],
    ['a hundred and twenty headers', () => request({ more: Array.from({ length: 120 }, (_, i) => `X-${i}: x`) }), 431],
    ['a target of 50 000 bytes', () => request({ target: `/v2/${'x'.repeat(50_000)}` }), 431],
    ['HTTP/1.0', () => request({ version: '1.0' }), 505],
    ['HTTP/2.0 in words', () => request({ version: '2.0' }), 505],
    ['HTTP/9.9', () => request({ version: '9.9' }), 505],
    ['an absolute target', () => request({ target: 'http://t/v2/apis.createApi' }), 505],
    ['OPTIONS *', () => request({ method: 'OPTIONS', target: '*', headers: [], body: '' }), 505],
    ['CONNECT', () => request({ method: 'CONNECT', target: 't:80', headers: [], body: '' }), 505],
    ['no Host', () => Buffer.from('GET /v2/liveness HTTP/1.1\r\n\r\n'), 400],
    ['a header without a colon', () => request({ more: ['nonsense'] }), 400],
    ['NUL in a header’s value', () => request({ more: ['X-Nul: \0'] }), 400],
    ['NUL in the target', () => request({ target: '/v2/\0' }), 505],
    ['the preface of HTTP/2', () => Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), 505],
    ['a TLS hello', () => Buffer.from('16030100c8010000c40303\r\n\r\n', 'hex'), 505],
  ])('%s: refused by uWebSockets.js, and the connection closed', async (_what, bytes, status) => {
    const { answers, closed } = await converse([bytes()]);
    expect(answers.map((answer) => answer.status)).toEqual([status]);
    expect(closed).toBe(true);
  });

  test.each<[string, Sent, number]>([
    ['OPTIONS', { method: 'OPTIONS', headers: [], body: '' }, 405],
    ['TRACE', { method: 'TRACE', headers: [], body: '' }, 405],
    ['PUT', { method: 'PUT' }, 405],
    ['DELETE', { method: 'DELETE' }, 405],
    ['PATCH', { method: 'PATCH' }, 405],
    ['GET with a body', { method: 'GET' }, 405],
    ['post in small letters', { method: 'post' }, 405],
    ['a method of our own', { method: 'BREW' }, 405],
    ['a percent-encoded path', { target: '/v2/apis%2EcreateApi' }, 404],
    ['a broken percent', { target: '/v2/%zz' }, 404],
    ['percent NUL', { target: '/v2/apis.createApi%00' }, 404],
    ['two slashes', { target: '//v2/apis.createApi' }, 404],
    ['dots', { target: '/v2/../v2/apis.createApi' }, 404],
    ['a fragment', { target: '/v2/apis.createApi#x' }, 404],
    ['invalid UTF-8 in the path', { target: '/v2/\xff\xfe' }, 404],
    ['a query', { target: '/v2/apis.createApi?name=x' }, 400],
    ['an empty query', { target: '/v2/apis.createApi?' }, 200],
    ['a prototype’s path', { target: '/v2/__proto__' }, 404],
    ['a page of a prototype', { target: '/errors/constructor', method: 'GET', headers: [], body: '' }, 404],
    ['no headers', { headers: [], body: '' }, 401],
    ['no type', { headers: [`Content-Length: ${good.length}`], body: good }, 401],
    ['a header without a name', { more: [': x'] }, 200],
    ['two forwarded headers', { more: ['X-Forwarded-For: 1', 'X-Forwarded-For: 2'] }, 200],
    ['invalid UTF-8 in a header', { more: ['X-Bytes: \xff\xfe'] }, 200],
    ['a header named __proto__', { more: ['__proto__: x', 'constructor: x'] }, 200],
    ['an upgrade', { more: ['Connection: Upgrade', 'Upgrade: websocket', 'Sec-WebSocket-Key: x'] }, 200],
    ['upgrade to h2c', { more: ['Connection: Upgrade, HTTP2-Settings', 'Upgrade: h2c', 'HTTP2-Settings: AA'] }, 200],
    ['ninety headers', { more: Array.from({ length: 90 }, (_, i) => `X-${i}: x`) }, 200],
    ['an Expect we know', { more: ['Expect: 100-continue'] }, 200],
    ['an Expect we do not', { more: ['Expect: the-unexpected'] }, 200],
    ['another encoding', { more: ['Content-Encoding: gzip'] }, 415],
  ])('%s', async (_what, sent, status) => {
    const { answers } = await converse([request(sent)]);
    expect(answers[0]!.status).toBe(status);
  });

  test.each([
    ['none', ''],
    ['another scheme', 'Basic cm9vdDpyb290'],
    ['no token', 'Bearer'],
    ['two tokens', 'Bearer a b'],
    ['the longest that fits', `Bearer root_${'1'.repeat(3500)}`],
    ['bytes', 'Bearer \xff\xfe\x80'],
    ['a tab', 'Bearer\troot_x'],
    ['a prototype', 'Bearer __proto__'],
    ['a workspace that is none', `Bearer root_${'1'.repeat(16)}_${'1'.repeat(28)}`],
    ['a key name of Redis', 'Bearer root_*?[a-z]{tg:}_x'],
    ['a root key and a bit more', 'more'],
  ])('the authorization: %s', async (_what, value) => {
    const authorization = value === 'more' ? `Bearer ${server.rootKey}1` : value;
    const { answers } = await converse([
      request({ headers: [`Authorization: ${authorization}`, json, `Content-Length: ${good.length}`], body: good }),
    ]);
    expect(answers.map(codeOf)).toEqual(['unauthorized']);
  });
});

describe('request bodies', () => {
  const deep = (depth: number, open: string, close: string) => `${open.repeat(depth)}1${close.repeat(depth)}`;

  test.each<[string, string | Buffer]>([
    ['nothing', ''],
    ['spaces', '   '],
    ['NUL', '\0'],
    ['NUL in a string', '{"name":"a\0b"}'],
    ['NUL after the value', '{"name":"hostile"}\0'],
    ['invalid UTF-8', Buffer.from('{"name":"\xff\xfe"}', 'latin1')],
    ['UTF-16', Buffer.from('{"name":"hostile"}', 'utf16le')],
    ['trailing garbage', '{"name":"hostile"}}'],
    ['two values', '{"name":"hostile"}{"name":"hostile"}'],
    ['half a character', '{"name":"\\ud800hostile"}'],
    ['its other half', '{"name":"hostile\\udc00"}'],
    ['10 000-deep lists', deep(10_000, '[', ']')],
    ['10 000-deep objects', deep(10_000, '{"name":', '}')],
    ['10 000 brackets that do not close', '['.repeat(10_000)],
    ['10 000-deep and half a character', `{"name":${deep(10_000, '[', ']')},"a":"\\ud800"}`],
    ['300 000-deep', deep(300_000, '[', ']')],
    ['a list of a quarter of a million', `[${'1,'.repeat(250_000)}1]`],
    ['a hundred thousand fields', `{${Array.from({ length: 80_000 }, (_, i) => `"${i}":1`).join()}}`],
    ['one megabyte of field name', `{"${'x'.repeat(1_000_000)}":1}`],
    ['__proto__ as a field', '{"name":"hostile","__proto__":{"admin":true}}'],
    ['constructor as a field', '{"name":"hostile","constructor":{"prototype":{"admin":true}}}'],
    ['__proto__ for the name', '{"__proto__":{"name":"hostile"}}'],
    ['NaN', '{"name":NaN}'],
    ['a number for a name', '{"name":1e400}'],
    ['single quotes', "{'name':'hostile'}"],
    ['a comment', '{"name":"hostile"/**/}'],
    ['form fields', 'name=hostile'],
    ['XML', '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>'],
  ])('400 for %s', async (_what, body) => {
    const { answers, closed } = await converse([request({ body })]);
    expect(answers.map(codeOf)).toEqual(['invalid_input']);
    expect(closed).toBe(false);
  });

  test('413 for a byte too many, in one piece and in chunks', async () => {
    const long = Buffer.alloc(1_048_577, 'x');
    const inChunks = request({ headers: [auth(), json, 'Transfer-Encoding: chunked'], body: '' });
    for (const parts of [
      [request({ body: long })],
      [inChunks, `${long.length.toString(16)}\r\n`, long, '\r\n0\r\n\r\n'],
    ]) {
      const { answers, closed } = await converse(parts);
      expect(answers.map(codeOf)).toEqual(['body_too_large']);
      expect(closed).toBe(true);
    }
  });

  const limits = { namespace: 'hostile', identifier: 'a', limit: 5, duration: 1000 };
  const limitWith = (field: string, text: string) => {
    const { [field as 'limit']: _replaced, ...rest } = limits;
    return `${JSON.stringify(rest).slice(0, -1)},"${field}":${text}}`;
  };

  test.each([
    ['limit', '1e400', 400],
    ['limit', '-1e400', 400],
    ['limit', '9007199254740993', 400],
    ['limit', '9007199254740992', 400],
    ['limit', '9007199254740991', 200],
    ['limit', '1e3', 200],
    ['limit', '5.0', 200],
    ['limit', '5.000000000000000000000001', 200], // The nearest double is 5.
    ['limit', '0.5', 400],
    ['limit', '-0', 400],
    ['limit', '1e-400', 400],
    ['limit', `1${'0'.repeat(5000)}`, 400],
    ['limit', '"5"', 400],
    ['limit', 'true', 400],
    ['limit', 'null', 400],
    ['cost', '-0', 200],
    ['cost', '-0.0', 200],
    ['cost', '1e-400', 200],
    ['cost', '9007199254740991', 200],
    ['cost', '-1', 400],
    ['duration', '1e400', 400],
    ['duration', '31622400000.0', 200],
    ['duration', '31622400001', 400],
  ] as const)('the number %s: %.40s is %i', async (field, text, status) => {
    const { answers } = await converse([request({ target: '/v2/ratelimits.limit', body: limitWith(field, text) })]);
    expect(answers.map((answer) => answer.status)).toEqual([status]);
  });

  test('of a duplicate field the last applies, to the check and to the response', async () => {
    const body = '{"name":"first","name":"second"}';
    const { answers } = await converse([request({ body })]);
    const { apiId } = answers[0]!.json.data;
    const read = await converse([request({ target: '/v2/apis.getApi', body: JSON.stringify({ apiId }) })]);
    expect(read.answers[0]!.json.data.name).toBe('second');
    expect((await converse([request({ body: '{"name":"good","name":1}' })])).answers.map(codeOf)).toEqual([
      'invalid_input',
    ]);
  });

  const nested = 5_000;
  test.each<[string, string]>([
    ['__proto__ and constructor', '{"__proto__":{"admin":true},"constructor":{"prototype":{"admin":true}},"a":1}'],
    ['only __proto__', '{"__proto__":null}'],
    ['names of methods', '{"toString":1,"hasOwnProperty":2,"valueOf":3,"then":4,"toJSON":5}'],
    ['the empty name', '{"":{"":""}}'],
    [
      'numbers that are no doubles',
      '{"a":1e400,"b":9007199254740993,"c":-0,"d":-0.0,"e":1E-400,"f":12345678901234567890.10}',
    ],
    ['a member that comes twice', '{"a":1,"a":2}'],
    ['names in an order of their own', '{"b":1,"2":1,"a":1,"1":1}'],
    ['escapes', '{"\\u0061":"\\u0000\\u001f\\"\\\\\\/\\b\\ud83d\\ude00"}'],
    ['characters of any kind', '{"ż":"😀\u2028\u2029\u200f\ufffe\uffff\u{10ffff}"}'],
    ['markup', '{"a":"</script><script>alert(1)</script>"}'],
    [`lists ${nested} deep`, `{"a":${deep(nested, '[', ']')}}`],
    ['deep, and a pair of escapes', `{"a":${deep(nested, '[', ']')},"b":"\\ud83d\\ude00"}`],
  ])('meta is returned as the same value: %s', async (_what, meta) => {
    const api = (await converse([request()])).answers[0]!.json.data as { apiId: string };
    const created = await converse([
      request({ target: '/v2/keys.createKey', body: `{"apiId":"${api.apiId}","meta":${meta}}` }),
    ]);
    expect(created.answers[0]!.status).toBe(200);
    const { key, keyId } = created.answers[0]!.json.data;
    for (const [target, body] of [
      ['/v2/keys.verifyKey', { key }],
      ['/v2/keys.getKey', { keyId }],
      ['/v2/keys.whoami', { key }],
      ['/v2/apis.listKeys', { apiId: api.apiId }],
    ] as const) {
      const [answer] = (await converse([request({ target, body: JSON.stringify(body) })])).answers;
      expect(answer!.status).toBe(200);
      expect(answer!.body).toContain(`"meta":${meta}`);
    }
    // It has not become a property of all objects.
    const [polluted] = (await converse([request({ body: '{}' })])).answers;
    expect(polluted!.json.error.errors).toEqual([{ location: 'body.name', message: 'is required' }]);
  });

  test('a field within meta is not taken for a field of the request', async () => {
    const [answer] = (
      await converse([
        request({ target: '/v2/keys.createKey', body: '{"meta":{"apiId":"api_111"},"apiI\\u0064":"x"}' }),
      ])
    ).answers;
    expect(answer!.json.error.errors[0].location).toBe('body.apiId');
  });
});

test.each([
  [15_000, 200, ''],
  [17_000, 431, '/errors/headers_too_large'],
  [31_000, 431, '/errors/headers_too_large'],
  [40_000, 431, undefined],
])('cookies of %i bytes: %i', async (bytes, status, type) => {
  const cookie = `Cookie: ${'c'.repeat(bytes)}`;
  const { answers, closed } = await converse([`GET /v2/liveness HTTP/1.1\r\nHost: t\r\n${cookie}\r\n\r\n`]);
  expect(answers).toMatchObject([{ status, json: status === 200 ? { data: {} } : type && { error: { type } } }]);
  expect(closed).toBe(status !== 200);
});

test('the server did not restart during these tests', () => {
  expect(server.child.pid).toBe(pid);
  expect(server.child.exitCode).toBeNull();
  report({
    order: '11.1',
    fault: 'hostile HTTP on raw sockets',
    expected: 'no crash, no 5xx, every answer in the envelope or the connection closed',
    measured: `${requests} answers, ${refusedBelow} of them uWebSockets.js's own (400, 431, 505) with the connection closed; one process throughout, nothing in its log`,
  });
});
