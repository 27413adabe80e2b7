// A stand-in for a language model, so that the example needs no account anywhere: it responds with ten words for each
// word of the prompt, at most `max_tokens`, one at a time. Each word is a token.
//
//   node examples/llm-proxy/model.mjs

import { createServer } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';

const { PORT = '3002', TOKEN_MS = '50' } = process.env;
const words = 'the toll is paid at the gate and the road is open to all who pay'.split(' ');

const server = createServer(async (request, response) => {
  let body = '';
  for await (const chunk of request) body += chunk;
  const { prompt, max_tokens } = JSON.parse(body);
  const tokens = Math.min(max_tokens, 10 * prompt.split(/\s+/).filter(Boolean).length);
  response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
  for (let sent = 0; sent < tokens && !response.destroyed; sent++) {
    await delay(Number(TOKEN_MS));
    response.write(`data: ${JSON.stringify({ token: words[sent % words.length] })}\n\n`);
  }
  response.end('data: [DONE]\n\n');
});

server.listen(Number(PORT), '127.0.0.1', () => {
  console.log(`listens on http://127.0.0.1:${server.address().port}`);
});
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit());
