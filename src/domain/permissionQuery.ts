// The permission query of keys.verifyKey (docs/contract.md §7). Parsed here, and evaluated in Lua.
//
//   expr := and (OR and)*      and := primary (AND primary)*      primary := slug | ( expr )

/** Slugs, and operators as numbers, in postfix order, as lua/include/permissions.lua expects them. */
export type PostfixQuery = (string | typeof AND | typeof OR)[];

export const AND = 1;
export const OR = 2;
const slugsMax = 100;

export class QuerySyntaxError extends Error {
  /** Counted from 0, in characters. */
  readonly position: number;

  constructor(message: string, position: number) {
    super(message);
    this.position = position;
  }
}

interface Token {
  kind: 'slug' | 'and' | 'or' | '(' | ')' | 'end';
  text: string;
  position: number;
}

function tokenize(query: string): Token[] {
  const tokens: Token[] = [];
  const pattern = /\s+|([()])|([a-zA-Z0-9._*:/-]+)/y;
  while (pattern.lastIndex < query.length) {
    const position = pattern.lastIndex;
    const match = pattern.exec(query);
    if (!match) {
      const character = String.fromCodePoint(query.codePointAt(position)!);
      throw new QuerySyntaxError(`Unexpected character ${JSON.stringify(character)}`, position);
    }
    const [, parenthesis, word] = match;
    if (parenthesis) tokens.push({ kind: parenthesis as '(' | ')', text: parenthesis, position });
    else if (word) {
      const lower = word.toLowerCase();
      tokens.push({ kind: lower === 'and' || lower === 'or' ? lower : 'slug', text: word, position });
    }
  }
  tokens.push({ kind: 'end', text: 'the end', position: query.length });
  return tokens;
}

export function parsePermissionQuery(query: string): PostfixQuery {
  const tokens = tokenize(query);
  const postfix: PostfixQuery = [];
  let next = 0;
  let slugs = 0;

  function primary() {
    const token = tokens[next]!;
    next++;
    if (token.kind === 'slug') {
      slugs++;
      if (slugs > slugsMax) throw new QuerySyntaxError(`More than ${slugsMax} permissions`, token.position);
      postfix.push(token.text);
    } else if (token.kind === '(') {
      expression();
      const closing = tokens[next]!;
      if (closing.kind !== ')') throw new QuerySyntaxError(`Expected ")" instead of ${closing.text}`, closing.position);
      next++;
    } else {
      throw new QuerySyntaxError(`Expected a permission or "(" instead of ${token.text}`, token.position);
    }
  }

  function chain(operand: () => void, operator: 'and' | 'or', code: typeof AND | typeof OR) {
    operand();
    while (tokens[next]!.kind === operator) {
      next++;
      operand();
      postfix.push(code);
    }
  }

  const conjunction = () => chain(primary, 'and', AND);
  const expression = () => chain(conjunction, 'or', OR);

  expression();
  const rest = tokens[next]!;
  if (rest.kind !== 'end')
    throw new QuerySyntaxError(`Expected "AND", "OR" or the end instead of ${rest.text}`, rest.position);
  return postfix;
}
