// The documents that are served with GET and without a root key.

import { errorCatalogue } from '../errors.ts';
import type { AnyOperation } from '../operation.ts';
import { version } from '../version.ts';
import { createConsole, isOfConsole } from './console.ts';
import { constant, type Served } from './constant.ts';
import { docs } from './docs.ts';
import { llmsText } from './llms.ts';
import type { Request, Response } from './message.ts';
import { openApi } from './openapi.ts';
import { samplesOf } from './samples.ts';

const errorDocuments = errorCatalogue.map(
  ({ code, status, title, meaning }) =>
    [
      `/errors/${code}`,
      ok(
        'text/html; charset=utf-8',
        `<!doctype html><meta charset="utf-8"><title>${title}</title><h1>${title}</h1><p><code>${code}</code>, HTTP status ${status}.</p><p>${meaning}</p>\n`,
      ),
    ] as const,
);

/** Temporary, as the page behind it may become another. */
const redirectTo = (path: string): Response => ({
  ...ok('text/plain; charset=utf-8', `See ${path}.\n`),
  status: 302,
  headers: [['Location', path]],
});

function ok(contentType: string, body: string): Response {
  return { status: 200, contentType, headers: [], body };
}

/** The documents that `referencesOf` makes. */
const referencePaths = new Set(['/openapi.json', '/llms.txt', '/docs/samples.json']);

type Documents = (request: Request) => Response | Served | undefined;

/**
 * Over TLS: a browser that has opened a page uses only HTTPS for this host name from then on (RFC 6797). Only browsers
 * use this header, so it is in pages and their files, and not in responses of /v2 and health checks. Not for
 * subdomains: other services may be there.
 */
export const withHsts = (documents: Documents, maxAge: number): Documents => {
  const header = ['Strict-Transport-Security', `max-age=${maxAge}`] as const;
  const secured = (response: Response): Response => ({ ...response, headers: [...response.headers, header] });
  return (request) => {
    const document = documents(request);
    if (!document || request.path.startsWith('/v2/')) return document;
    return typeof document === 'function' ? async (asked) => secured(await document(asked)) : secured(document);
  };
};

/** Returns a function that returns the document of a path, for any method; undefined if there is none. */
export function createDocuments(operations: readonly AnyOperation[], hasConsole: boolean): Documents {
  const start = redirectTo(hasConsole ? '/console' : '/docs');
  const documents = new Map<string, Response | Served>([['/', start], ...errorDocuments, ...docs]);
  // These are made by the first request, as they would delay the start.
  let references: ReadonlyMap<string, Served> | undefined;
  let console: ReturnType<typeof createConsole> | undefined;
  return ({ path, requestId }) => {
    if (path === '/v2/liveness')
      return ok('application/json', `{"meta":{"requestId":"${requestId}"},"data":{"message":"Tollgate is alive."}}`);
    if (hasConsole && isOfConsole(path)) {
      console ??= createConsole();
      return console(path);
    }
    if (!referencePaths.has(path)) return documents.get(path);
    references ??= referencesOf(operations);
    return references.get(path);
  };
}

function referencesOf(operations: readonly AnyOperation[]): ReadonlyMap<string, Served> {
  const document = openApi(operations, { version });
  const headers = [['Cache-Control', 'no-cache']] as const;
  return new Map([
    ['/openapi.json', constant('application/json', headers, JSON.stringify(document))],
    ['/docs/samples.json', constant('application/json', headers, JSON.stringify(samplesOf(document)))],
    ['/llms.txt', constant('text/plain; charset=utf-8', headers, llmsText(document))],
  ]);
}
