// Images are named by digest, and bin/images.mjs finds what their tags name now. The registry is one of this process.

import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { filesWithImages, imagesIn, pinImages } from '../bin/images.mjs';
import { dirOfFile } from './support/ofFile.ts';

const root = fileURLToPath(new URL('..', import.meta.url));
const read = (path: string) => readFileSync(join(root, path), 'utf8');
const isPinned = (reference: string) => imagesIn(reference).some((image) => image.reference === reference);

describe('images by digest', () => {
  test('every stage of the Dockerfile begins with an earlier one or with a pinned image', () => {
    const text = read('Dockerfile');
    const args = new Map([...text.matchAll(/^ARG (\w+)=(\S+)$/gm)].map(([, name, value]) => [name!, value!]));
    const stages = new Set<string>();
    const froms = [...text.matchAll(/^FROM (\S+)(?: AS (\w+))?$/gm)];
    expect(froms.length).toBe(text.match(/^FROM /gm)!.length);
    for (const [, from, stage] of froms) {
      const image = from!.replace(/^\$\{(\w+)\}$/, (_, name: string) => args.get(name) ?? '');
      expect([image, stages.has(image) || isPinned(image)]).toEqual([image, true]);
      if (stage) stages.add(stage);
    }
    for (const [, from] of text.matchAll(/--from=(\S+)/g)) expect([...stages]).toContain(from);
  });

  test('every service of compose.yaml is built here or has a pinned image', () => {
    const { services } = parse(read('compose.yaml'), { merge: true }) as {
      services: Record<string, { build?: string; image: string }>;
    };
    for (const { build, image } of Object.values(services))
      expect([image, build ?? isPinned(image)]).not.toContain(false);
  });

  test('the manifests of Kubernetes name images that are pinned, and that of Tollgate in one place', () => {
    const files = readdirSync(join(root, 'deploy/kubernetes'), { recursive: true, encoding: 'utf8' })
      .filter((file) => file.endsWith('.yaml'))
      .map((file) => `deploy/kubernetes/${file}`);
    const images = files
      .flatMap((file) => parseAllDocuments(read(file)))
      .flatMap((document) =>
        [...JSON.stringify(document.toJSON()).matchAll(/"image":"([^"]+)"/g)].map(([, name]) => name!),
      );
    const [{ name, newName, digest }] = parse(read('deploy/kubernetes/base/kustomization.yaml')).images;
    expect(images.filter((image) => !isPinned(image))).toEqual([name]);
    expect(digest).toMatch(/^sha256:[0-9a-f]{64}$/);
    expect(files.filter((file) => read(file).includes(newName))).toEqual(['deploy/kubernetes/base/kustomization.yaml']);
  });

  test('these images are pinned', () => {
    const pinned = filesWithImages.flatMap((file) => imagesIn(read(file)));
    expect(pinned.map(({ name, tag }) => `${name}:${tag}`)).toEqual([
      'node:22-bookworm-slim',
      'debian:bookworm-slim',
      'valkey/valkey:8.1',
      'valkey/valkey:8.1',
    ]);
    expect(new Set(pinned.map(({ digest }) => digest)).size).toBe(3);
  });
});

describe('npm run pin -- images', () => {
  const index = (text: string) =>
    JSON.stringify({ schemaVersion: 2, mediaType: 'application/vnd.oci.image.index.v1+json', manifests: [], text });
  const digestOf = (manifest: string) => `sha256:${createHash('sha256').update(manifest).digest('hex')}`;
  const manifests = new Map([
    ['/v2/library/node/manifests/22', index('node')],
    ['/v2/valkey/valkey/manifests/8.1', index('valkey')],
    ['/v2/library/broken/manifests/1', '{"schemaVersion":1}'],
  ]);
  const server = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url!, 'http://registry');
    if (pathname === '/token') {
      response.end(JSON.stringify({ token: `of ${searchParams.get('scope')}` }));
      return;
    }
    const manifest = manifests.get(pathname);
    const repository = pathname.replace(/^\/v2\/|\/manifests\/.*$/g, '');
    const isAllowed = request.headers.authorization === `Bearer of repository:${repository}:pull`;
    response.statusCode = !isAllowed ? 401 : manifest ? 200 : 404;
    // A registry could name another digest.
    response.setHeader('Docker-Content-Digest', `sha256:${'0'.repeat(64)}`);
    response.end(manifest);
  });
  let hub: { registry: string; auth: string };
  const directory = dirOfFile();
  beforeAll(async () => {
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const registry = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    hub = { registry, auth: `${registry}/token` };
  });
  afterAll(() => void server.close());

  const old = `sha256:${'a'.repeat(64)}`;
  async function pin(text: string) {
    const lines: string[] = [];
    writeFileSync(join(directory, 'Dockerfile'), text);
    await pinImages({ directory, files: ['Dockerfile'], hub, print: (line) => lines.push(line) });
    return { lines, text: readFileSync(join(directory, 'Dockerfile'), 'utf8') };
  }

  test('replaces the digests by those of the manifests that the tags have now', async () => {
    const [node, valkey] = [...manifests.values()].map(digestOf) as [string, string];
    const text = (ofNode: string, ofValkey: string) =>
      `ARG A=node:22@${ofNode}\nFROM \${A}\nFROM valkey/valkey:8.1@${ofValkey} AS x\n# node:22, a tag\n`;
    expect(await pin(text(old, valkey))).toEqual({
      lines: [`node:22: ${old} is now ${node}`, 'valkey/valkey:8.1: unchanged'],
      text: text(node, valkey),
    });
  });

  test.each([
    ['a tag that the registry does not have', `node:23@${old}`, '404'],
    ['what is no image', `broken:1@${old}`, 'broken:1 is no image'],
  ])('changes nothing for %s', async (_what, image, message) => {
    const text = `FROM node:22@${old}\nFROM ${image}\n`;
    await expect(pin(text)).rejects.toThrow(message);
    expect(readFileSync(join(directory, 'Dockerfile'), 'utf8')).toBe(text);
  });
});
