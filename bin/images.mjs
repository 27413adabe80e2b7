// npm run pin -- images: pins the images of these files to what their tags name now. An image is
// named by its tag, for people and for this program, and by the SHA-256 of its manifest, which decides what is pulled.
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from './prepare.mjs';

export const filesWithImages = ['Dockerfile', 'compose.yaml', 'deploy/kubernetes/overlays/own-redis/statefulset.yaml'];

/** `valkey/valkey:8.1@sha256:…`: name, tag, digest. A registry other than Docker's is not supported. */
const pinned = /\b([a-z0-9]+(?:[/_-][a-z0-9]+)*):([\w.-]+)@(sha256:[0-9a-f]{64})\b/g;

export const imagesIn = (text) =>
  [...text.matchAll(pinned)].map(([reference, name, tag, digest]) => ({ reference, name, tag, digest }));

/** Lists of platforms, and single images. */
const manifestTypes = [
  'application/vnd.oci.image.index.v1+json',
  'application/vnd.docker.distribution.manifest.list.v2+json',
  'application/vnd.oci.image.manifest.v1+json',
  'application/vnd.docker.distribution.manifest.v2+json',
].join(', ');

const dockerHub = { registry: 'https://registry-1.docker.io', auth: 'https://auth.docker.io/token' };

/**
 * The digest that a tag has in the registry. It is computed of the manifest, so that a registry cannot name another
 * one.
 */
export async function digestOf({ name, tag }, { registry, auth } = dockerHub) {
  // Docker's official images are in `library`.
  const path = name.includes('/') ? name : `library/${name}`;
  const get = async (url, headers) => {
    const response = await fetch(url, { headers, signal: AbortSignal.timeout(30_000) });
    if (!response.ok) throw new Error(`${url} responded ${response.status}`);
    return Buffer.from(await response.arrayBuffer());
  };
  const scope = `${auth}?service=registry.docker.io&scope=repository:${path}:pull`;
  const { token } = JSON.parse((await get(scope, {})).toString());
  const manifest = await get(`${registry}/v2/${path}/manifests/${tag}`, {
    Accept: manifestTypes,
    Authorization: `Bearer ${token}`,
  });
  const { schemaVersion, mediaType = '' } = JSON.parse(manifest.toString());
  if (schemaVersion !== 2 || !manifestTypes.includes(mediaType)) throw new Error(`${name}:${tag} is no image`);
  return `sha256:${createHash('sha256').update(manifest).digest('hex')}`;
}

/** Pins the images of these files, and prints what changed. Changes nothing if one of them cannot be found. */
export async function pinImages({
  directory = root,
  files = filesWithImages,
  hub = dockerHub,
  print = console.log,
} = {}) {
  const texts = new Map(files.map((file) => [file, readFileSync(join(directory, file), 'utf8')]));
  const changes = new Map();
  for (const image of [...texts.values()].flatMap(imagesIn)) {
    const digest = await digestOf(image, hub);
    changes.set(image.reference, image.reference.replace(image.digest, digest));
    print(`${image.name}:${image.tag}: ${digest === image.digest ? 'unchanged' : `${image.digest} is now ${digest}`}`);
  }
  for (const [file, text] of texts) {
    writeFileSync(
      join(directory, file),
      text.replace(pinned, (reference) => changes.get(reference)),
    );
  }
}
