// A proxy in front of a language model whose customers pay by token. How many tokens a response has is known only at its
// end, so the proxy holds `max_tokens` credits before it asks the model, and settles what was streamed. The same goes for
// two budgets in millionths of a dollar: one a month per customer, a quota `budget` of the identity of the key or of its plan, and one a
// day per model and key, a quota of the request.
//
//   TOLLGATE_URL=http://127.0.0.1:8080 TOLLGATE_ROOT_KEY=root_… MODEL_URL=http://127.0.0.1:3002 \
//     node examples/llm-proxy/proxy.mjs

import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';

const { TOLLGATE_URL, TOLLGATE_ROOT_KEY, MODEL_URL, PORT = '3001', HOLD_MS = '30000' } = process.env;
const { MODEL = 'stand-in', TOKEN_COST = '20', MODEL_BUDGET = '0', WITH_BUDGET = '' } = process.env;
if (!TOLLGATE_URL || !TOLLGATE_ROOT_KEY || !MODEL_URL) {
  console.error('Set TOLLGATE_URL, TOLLGATE_ROOT_KEY and MODEL_URL: see examples/llm-proxy/README.md.');
  process.exit(1);
}
/** After a crash the credits are back after this time at the latest. A stream extends its hold three times in it. */
const holdMs = Number(HOLD_MS);
const bodyMax = 65_536;

/** Calls an operation of Tollgate. Every call here may be repeated: a hold has an id of ours, and ends only once. */
async function toll(operation, input, attempts = 3) {
  for (let attempt = 1; ; attempt++) {
    const problem = await fetch(`${TOLLGATE_URL}/v2/${operation}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${TOLLGATE_ROOT_KEY}`, 'content-type': 'application/json' },
      body: JSON.stringify(input),
      signal: AbortSignal.timeout(2000),
    })
      .then(async (response) => {
        const body = await response.json();
        return response.ok ? { data: body.data } : { status: response.status, message: body.error.detail };
      })
      // A load balancer may answer with a page.
      .catch((error) => ({ status: 503, message: error.message }));
    if (problem.data) return problem.data;
    if (problem.status < 500 || attempt === attempts)
      throw Object.assign(new Error(`${operation}: ${problem.status} ${problem.message}`), { status: problem.status });
    await delay(200 * attempt);
  }
}

/** The budgets by which tokens are charged, in millionths of a dollar. Those of the request name their limit. */
const budgets = [
  ...(WITH_BUDGET ? [{ name: 'budget' }] : []),
  ...(MODEL_BUDGET === '0' ? [] : [{ name: `model ${MODEL}`, limit: Number(MODEL_BUDGET), period: 'day' }]),
];
const costOf = (tokens) => tokens * Number(TOKEN_COST);

/** Reserves credits and budget. The id makes the call repeatable: while the hold is open, nothing is charged again. */
const reserve = (key, tokens) =>
  toll('keys.verifyKey', {
    key,
    credits: { cost: tokens },
    ratelimits: budgets.map((budget) => ({ ...budget, cost: costOf(tokens) })),
    hold: { ttl: holdMs, id: randomUUID() },
  });

/** Ends a hold. When Tollgate is away for longer, `tollgate key hold-settle` does it by hand, for 24 hours. */
async function end(holdId, tokens) {
  try {
    if (tokens === 0) await toll('keys.releaseHold', { holdId }, 10);
    else {
      const ratelimits = budgets.map(({ name }) => ({ name, cost: costOf(tokens) }));
      await toll('keys.settleHold', { holdId, credits: { cost: tokens }, ratelimits }, 10);
    }
  } catch (error) {
    console.error(`${holdId} is to be settled by ${tokens} credits. ${error.message}`);
  }
}

/** The tokens that the model streams. */
async function* tokensOf(body) {
  let text = '';
  for await (const chunk of body.pipeThrough(new TextDecoderStream())) {
    const lines = (text + chunk).split('\n');
    text = lines.pop();
    for (const line of lines) if (line.startsWith('data: {')) yield JSON.parse(line.slice(6)).token;
  }
}

/** Streams a response of the model to the client. Returns how many tokens it has, also when the client goes away. */
async function stream({ prompt, max_tokens, holdId }, response) {
  const gone = new AbortController();
  response.on('close', () => gone.abort());
  if (response.destroyed) return 0;
  let extended;
  const extending = setInterval(() => {
    extended = toll('keys.extendHold', { holdId, ttl: holdMs }).catch((error) => console.error(error.message));
  }, holdMs / 3);
  let tokens = 0;
  try {
    const model = await fetch(MODEL_URL, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ prompt, max_tokens }),
      signal: gone.signal,
    });
    if (!model.ok) throw new Error(`The model responds with ${model.status}.`);
    response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' }).flushHeaders();
    for await (const token of tokensOf(model.body)) {
      tokens++;
      const isTaken = response.write(`data: ${JSON.stringify({ token })}\n\n`);
      if (!isTaken) await once(response, 'drain', { signal: gone.signal });
    }
  } catch (error) {
    if (!gone.signal.aborted) console.error(error.message);
    if (!response.headersSent) response.writeHead(502);
  } finally {
    clearInterval(extending);
    await extended;
  }
  return tokens;
}

async function readInput(request) {
  let body = '';
  for await (const chunk of request.setEncoding('utf8')) {
    body += chunk;
    if (body.length > bodyMax) return undefined;
  }
  try {
    const { prompt, max_tokens } = JSON.parse(body);
    const isValid = typeof prompt === 'string' && Number.isInteger(max_tokens) && max_tokens >= 1 && max_tokens <= 4096;
    return isValid ? { prompt, max_tokens } : undefined;
  } catch {
    return undefined;
  }
}

const statusOf = { NOT_FOUND: 401, RATE_LIMITED: 429, USAGE_EXCEEDED: 429 };

async function respond(request, response) {
  // With the plan, from which the client can offer a larger one.
  const refuse = (status, code, plan) =>
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify({ code, plan }));
  const input = await readInput(request);
  if (!input) return refuse(400, 'INVALID');
  const [, key] = /^Bearer (.{1,512})$/i.exec(request.headers.authorization ?? '') ?? [];
  if (!key) return refuse(401, 'NOT_FOUND');

  const { code, hold, plan } = await reserve(key, input.max_tokens);
  if (!hold) return refuse(statusOf[code] ?? 403, code, plan?.planId);
  const tokens = await stream({ ...input, holdId: hold.id }, response);
  // Before the end of the response: whoever has seen it finds the credits settled.
  await end(hold.id, tokens);
  response.end('data: [DONE]\n\n');
}

const server = createServer((request, response) => {
  respond(request, response).catch((error) => {
    console.error(error.message);
    if (!response.headersSent) response.writeHead(error.status === 503 ? 503 : 500);
    response.end();
  });
});
server.listen(Number(PORT), '127.0.0.1', () => {
  console.log(`listens on http://127.0.0.1:${server.address().port}`);
});
// Streams that have begun end first.
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => server.close());
