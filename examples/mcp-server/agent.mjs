// An agent without a model: it calls a tool until the server refuses, and prints what a model would read.
//
//   MCP_URL=http://127.0.0.1:3004 KEY=ai_… node examples/mcp-server/agent.mjs lookup '{"word": "toll"}'

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const { MCP_URL, KEY, CALLS = '1000' } = process.env;
const [tool, input = '{}'] = process.argv.slice(2);
const client = new Client({ name: 'agent', version: '1.0.0' });
const requestInit = { headers: { authorization: `Bearer ${KEY}` } };
await client.connect(new StreamableHTTPClientTransport(new URL(MCP_URL), { requestInit }));
for (let calls = 0; calls < Number(CALLS); calls++) {
  const { isError, content } = await client.callTool({ name: tool, arguments: JSON.parse(input) });
  console.log(content[0].text);
  if (isError) break;
}
await client.close();
