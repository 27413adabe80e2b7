// The overview for programs that read text, such as language models (llmstxt.org). It lists the operations of the
// OpenAPI document.

import { outcomes } from '../domain/verification.ts';
import type { OpenApiDocument } from './openapi.ts';

/** Pages of docs/, which is in the repository only. */
const pages = [
  'contract',
  'clients',
  'gateways',
  'limits',
  'holds',
  'plans',
  'customers',
  'mcp',
  'moving',
  'operate',
  'settings',
];

const head = `# Tollgate

> Self-hosted API keys: issue, verify, rate-limit and meter them. This server speaks Unkey's v2 HTTP API.

Each operation is \`POST /v2/<service>.<procedure>\` with \`Authorization: Bearer <root key>\` and a JSON body. A success is
200 with \`data\`. An error has \`error.detail\`, and \`error.type\` is the path of a page about it. Times are Unix
milliseconds, durations are milliseconds. To verify a key:

1. Send \`{"key": "<key of the end user>"}\` to \`/v2/keys.verifyKey\`, with a root key that has \`api.*.verify_key\`.
2. Let the request pass only if \`data.valid\` is true. The status is 200 for a refused key, too.
3. \`data.code\` is the reason: ${outcomes.join(', ')}.
4. \`permissions\` is a query that the key must satisfy, \`credits.cost\` a price, \`ratelimits\` names limits to check.
5. VALID charges. Do not repeat a call after an error, unless its \`hold\` has an \`id\`. \`keys.explainKey\` charges nothing.

## Reference

- [OpenAPI](/openapi.json): schemas and examples of all operations
- [API reference](/docs): the same as a page

Pages in the repository of Tollgate: ${pages.map((page) => `docs/${page}.md`).join(', ')}.
`;

export function llmsText({ paths }: OpenApiDocument): string {
  const sections = new Map<string, string>();
  for (const [path, methods] of Object.entries(paths)) {
    for (const [method, { operationId, summary, tags, 'x-alias-of': alias }] of Object.entries(methods)) {
      const [tag] = tags as [string];
      const link = `/openapi.json#/paths/${path.replaceAll('/', '~1')}/${method}`;
      const section = sections.get(tag) ?? `\n## ${tag}\n\n`;
      if (!alias) sections.set(tag, `${section}- [${operationId}](${link}): ${summary}\n`);
    }
  }
  return [head, ...sections.values()].join('');
}
