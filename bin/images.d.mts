// For the tests.

export const filesWithImages: readonly string[];

export interface PinnedImage {
  reference: string;
  name: string;
  tag: string;
  digest: string;
}

export function imagesIn(text: string): PinnedImage[];

export function pinImages(options: {
  directory: string;
  files: readonly string[];
  hub: { registry: string; auth: string };
  print: (line: string) => void;
}): Promise<void>;
