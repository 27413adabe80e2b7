// What is read with GET and without a root key.

import { errorCatalogue } from '../errors.ts';
import type { Request, Response } from './message.ts';

const errorPages = new Map(
  errorCatalogue.map(({ code, status, title, meaning }) => [
    `/errors/${code}`,
    `<!doctype html><meta charset="utf-8"><title>${title}</title><h1>${title}</h1><p><code>${code}</code>, HTTP status ${status}.</p><p>${meaning}</p>\n`,
  ]),
);

/** The page at the request's path, whatever the method; undefined when there is none. */
export function pages({ path, requestId }: Request): Response | undefined {
  if (path === '/v2/liveness') {
    const body = `{"meta":{"requestId":"${requestId}"},"data":{"message":"Tollgate is alive."}}`;
    return { status: 200, contentType: 'application/json', headers: [], body };
  }
  const page = errorPages.get(path);
  return page === undefined
    ? undefined
    : { status: 200, contentType: 'text/html; charset=utf-8', headers: [], body: page };
}
