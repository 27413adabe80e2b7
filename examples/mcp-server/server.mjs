// An MCP server whose tools are paid: each has a price in credits and a quota of its own, and the client sends the key
// of a customer as its Bearer token. A tool whose cost is known only at its end holds the most that it may cost.
//
//   npm install @modelcontextprotocol/sdk zod
//   TOLLGATE_URL=http://127.0.0.1:8080 TOLLGATE_ROOT_KEY=root_… node examples/mcp-server/server.mjs

import { createServer } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { z } from 'zod';
import { pays } from './pays.mjs';

const { PORT = '3004', PAGE_MS = '300' } = process.env;
const tolls = { toll: 'a charge for passing', gate: 'where a toll is paid', road: 'what a gate closes' };
const word = z.enum(Object.keys(tolls));
const text = (text) => ({ content: [{ type: 'text', text }] });

/** A server of a single request, so that no state is shared between customers. */
function paidServer(key) {
  const server = new McpServer({ name: 'paid-tools', version: '1.0.0' });
  const paid = pays(server, key);
  paid(
    'lookup',
    { description: 'Returns what a word means. 1 credit.', inputSchema: { word } },
    { cost: 1, quota: { limit: 5, period: 'day' } },
    ({ word }) => text(tolls[word]),
  );
  paid(
    'report',
    { description: 'Writes a report. 2 credits a page.', inputSchema: { word, pages: z.int().min(1).max(20) } },
    { cost: ({ pages }) => 2 * pages, quota: { limit: 3, period: 'hour' }, holdMs: 60_000 },
    async ({ word, pages }, { spend, signal }) => {
      const written = [];
      // A short word has little to write about.
      while (written.length < Math.min(pages, word.length) && !signal.aborted) {
        await delay(Number(PAGE_MS));
        written.push(`Page ${written.length + 1}. ${word}: ${tolls[word]}.`);
        spend(2);
      }
      return text(written.join('\n'));
    },
  );
  return server;
}

const http = createServer(async (request, response) => {
  const [, key] = /^Bearer (.{1,512})$/i.exec(request.headers.authorization ?? '') ?? [];
  if (!key) return response.writeHead(401, { 'www-authenticate': 'Bearer' }).end();
  if (request.method !== 'POST') return response.writeHead(405, { allow: 'POST' }).end();
  const server = paidServer(key);
  response.on('close', () => server.close());
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined, enableJsonResponse: true });
  await server.connect(transport);
  await transport.handleRequest(request, response);
});
http.listen(Number(PORT), '127.0.0.1', () => console.log(`listens on http://127.0.0.1:${http.address().port}`));
// Calls that have begun end first, and settle.
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => http.close());
