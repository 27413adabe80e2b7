// The pages that are served with GET and without a root key.

import { readFileSync } from 'node:fs';
import { errorCatalogue } from '../errors.ts';
import type { AnyOperation } from '../operation.ts';
import { docs } from './docs.ts';
import type { Request, Response } from './message.ts';
import { openApi } from './openapi.ts';

// At the same depth from src/http and dist/http.
const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));

const errorPages = errorCatalogue.map(
  ({ code, status, title, meaning }) =>
    [
      `/errors/${code}`,
      page(
        'text/html; charset=utf-8',
        `<!doctype html><meta charset="utf-8"><title>${title}</title><h1>${title}</h1><p><code>${code}</code>, HTTP status ${status}.</p><p>${meaning}</p>\n`,
      ),
    ] as const,
);

function page(contentType: string, body: string): Response {
  return { status: 200, contentType, headers: [], body };
}

/** Returns a function that returns the page of a path, for any method; undefined if there is none. */
export function createPages(operations: readonly AnyOperation[]): (request: Request) => Response | undefined {
  const document = JSON.stringify(openApi(operations, { version }));
  const pages = new Map<string, Response>([
    ...errorPages,
    ...docs,
    ['/openapi.json', { ...page('application/json', document), bytes: Buffer.from(document) }],
  ]);
  return ({ path, requestId }) =>
    path === '/v2/liveness'
      ? page('application/json', `{"meta":{"requestId":"${requestId}"},"data":{"message":"Tollgate is alive."}}`)
      : pages.get(path);
}
