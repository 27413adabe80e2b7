// The operations as tools of a language model. Which of them it gets follows from their declarations: secrets are
// marked in schemas (`isSecret`), and an operation that only reads needs nothing but grants to read.

import { publishedWhole } from '../input/published.ts';
import { type AnyOperation, onlyReads } from '../operation.ts';
import { type OperationName, operations } from '../operations/index.ts';

export type Tool = ReturnType<typeof toolOf>;

interface Input {
  type: string;
  properties: Record<string, object>;
  required?: string[];
}

/** By the name of the tool: the tool, or why there is none. Clients refuse a dot in a name. */
export const toolsOf = (write: boolean): Map<string, Tool | string> =>
  new Map(
    (operations as readonly AnyOperation[]).map((operation) => {
      const input = withoutOptionalSecrets(operation);
      const name = operation.name.replace('.', '_');
      return [name, reasonAgainst(operation, input, write) ?? toolOf(operation, name, input)];
    }),
  );

const hasSecret = (schema: unknown): boolean => JSON.stringify(schema).includes('"isSecret":true');

function withoutOptionalSecrets({ input }: AnyOperation): Input {
  const { properties = {}, ...rest }: Input = JSON.parse(JSON.stringify(input));
  const kept = Object.entries(properties).filter(([name, of]) => rest.required?.includes(name) || !hasSecret(of));
  return { ...rest, properties: Object.fromEntries(kept) };
}

function reasonAgainst(operation: AnyOperation, input: Input, write: boolean): string | undefined {
  if (hasSecret([input, operation.output]))
    return 'takes or returns the strings of keys, which no model should have. A person uses the console or `tollgate key`.';
  if (operation.kind === 'manages' && operation.streams) return 'has a result without an end. Use `tollgate tail`.';
  if (input.type !== 'object') return 'takes a list, which no tool can. Call the tool for a single one.';
  if (!write && !onlyReads(operation)) return 'changes or charges something. Only `tollgate mcp --write` offers it.';
  return undefined;
}

function toolOf(operation: AnyOperation, name: string, input: Input) {
  const readOnlyHint = onlyReads(operation);
  const needs = Object.values(operation.needs).flat();
  const adds = needs.length > 0 && needs.every((action) => /^(create|add)_/.test(action));
  const annotations = { readOnlyHint, destructiveHint: !readOnlyHint && !adds, openWorldHint: false };
  const listed = { name, description: operation.summary, inputSchema: publishedWhole(input), annotations };
  return { operation: operation.name as OperationName, listed };
}
