// The fields that Unkey's SDK does not send or return, in the table of docs/unkey-differences.md. UPDATE=1 writes it.

import { readFileSync, writeFileSync } from 'node:fs';
import * as components from '@unkey/api/models/components';
import { expect, test } from 'vitest';
import { operations } from '../src/operations/index.ts';

/** A schema of zod, as the SDK uses it. */
interface Zod {
  _def: { typeName: string; innerType?: Zod; schema?: Zod; type?: Zod; in?: Zod; options?: Zod[]; getter?: () => Zod };
  shape?: Record<string, Zod>;
}
interface Json {
  description?: string;
  type?: string | string[];
  properties?: Record<string, Json>;
  items?: Json;
  anyOf?: Json[];
}

/** The members of an object, of the items of a list, or of all alternatives. Undefined if there are none, or any. */
function membersOf(schema: Zod): Record<string, Zod> | undefined {
  const { innerType, schema: inner, type, in: before, options, getter } = schema._def;
  if (schema.shape) return schema.shape;
  if (options) return Object.assign({}, ...options.map(membersOf));
  const next = innerType ?? inner ?? before ?? getter?.() ?? (schema._def.typeName === 'ZodArray' ? type : undefined);
  return next && membersOf(next);
}

const ownMembersOf = ({ properties, items, anyOf }: Json): Record<string, Json> | undefined =>
  properties ?? (items ? ownMembersOf(items) : anyOf && Object.assign({}, ...anyOf.map((one) => ownMembersOf(one))));

/** Paths of the members of `ours` that `theirs` drops. */
function dropped(ours: Json, theirs: Zod, at = ''): string[] {
  const [own, known] = [ownMembersOf(ours), membersOf(theirs)];
  if (!own || !known) return [];
  return Object.entries(own).flatMap(([name, schema]) => {
    // Lists may be sent as they were read.
    if (schema.description?.startsWith('Accepted and ignored')) return [];
    const path = at + name;
    return known[name] ? dropped(schema, known[name], `${path}.`) : [path];
  });
}

const schemas = components as unknown as Record<string, Zod | undefined>;
function schemaOf(operation: string, part: string): Zod | undefined {
  // Its request is a list of those of `ratelimits.limit`.
  if (operation === 'ratelimits.multiLimit' && part.startsWith('Request')) return schemaOf('ratelimits.limit', part);
  const [service = '', method = ''] = operation.replace('ratelimits.', 'ratelimit.').split('.');
  return schemas[
    `V2${service[0]!.toUpperCase()}${service.slice(1)}${method[0]!.toUpperCase()}${method.slice(1)}${part}`
  ];
}

const inBackticks = (names: readonly string[]) => names.map((name) => `\`${name}\``).join(' ');

/** Paths as text. Those of one object have its path once, before the members: `ratelimits.{type period}`. */
function listed(paths: readonly string[]): string {
  const members = new Map<string, string[]>();
  for (const path of paths) {
    const end = path.lastIndexOf('.') + 1;
    const object = path.slice(0, end);
    members.set(object, [...(members.get(object) ?? []), path.slice(end)]);
  }
  const grouped = [...members].flatMap(([object, names]) => {
    if (object === '') return names;
    return names.length === 1 ? [object + names[0]] : [`${object}{${names.join(' ')}}`];
  });
  return inBackticks(grouped);
}

test('docs/unkey-differences.md lists what the SDK drops, and the operations that it does not have', () => {
  /** The operations with the same fields, by the cells of their row. */
  const rows = new Map<string, string[]>();
  const without: string[] = [];
  for (const { name, input, output } of operations) {
    const [request, response] = [
      schemaOf(name, 'RequestBody$outboundSchema'),
      schemaOf(name, 'ResponseBody$inboundSchema'),
    ];
    if (!request && !response) {
      without.push(name);
      continue;
    }
    const [notSent, notReturned] = [
      request ? dropped(input as Json, request) : [],
      response
        ? dropped({ properties: { data: output as Json } }, response).map((path) => path.replace('data.', ''))
        : [],
    ];
    if (notSent.length + notReturned.length === 0) continue;
    const cells = `| ${listed(notSent)} | ${listed(notReturned)} |`;
    rows.set(cells, [...(rows.get(cells) ?? []), name]);
  }
  const lines = [...rows].map(([cells, names]) => `| ${inBackticks(names)} ${cells}`);
  const head = '| Operation | Not sent | Not returned |\n|---|---|---|';
  const table = [head, ...lines, `| No method for | ${listed(without)} |  |`, ''].join('\n');
  const page = new URL('../docs/unkey-differences.md', import.meta.url);
  const text = readFileSync(page, 'utf8');
  const [start, end] = ['<!-- fields of @unkey/api -->\n', '<!-- end of fields -->'];
  const [before, rest] = text.split(start);
  const [written, after] = rest!.split(end);
  if (process.env.UPDATE) writeFileSync(page, before + start + table + end + after);
  else expect(written).toBe(table);
});
