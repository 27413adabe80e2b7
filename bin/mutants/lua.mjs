// Mutants of a Lua file: small changes that keep it valid Lua. Comments and a first line `#!lua …` are not changed. lua/
// is formatted by StyLua, so a statement begins at a line or after `then`, `else` or `do`, and ends at the end of a
// line.

const token =
  /--\[\[[\s\S]*?\]\]|--[^\n]*|^#![^\n]*|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|[A-Za-z_]\w*|\d+(?:\.\d+)?|==|~=|<=|>=|\.{2,3}|\S/g;

const keywords = new Set(
  'and break do else elseif end false for function if in local nil not or repeat return then true until while'.split(
    ' ',
  ),
);

/** Replacements of tokens that are operators or words. */
const swaps = {
  '<': ['<=', '>='],
  '<=': ['<', '>'],
  '>': ['>=', '<='],
  '>=': ['>', '<'],
  '==': ['~='],
  '~=': ['=='],
  '*': ['/'],
  '/': ['*'],
  '%': ['+'],
  and: ['or'],
  or: ['and'],
  true: ['false'],
  false: ['true'],
  min: ['max'],
  max: ['min'],
  floor: ['ceil'],
  ceil: ['floor'],
  // Options of commands.
  "'NX'": ["'XX'"],
  "'XX'": ["'NX'"],
  "'GT'": ["'LT'"],
  "'LT'": ["'GT'"],
  "'EX'": ["'PX'"],
  "'PX'": ["'EX'"],
  "'ZRANGE'": ["'ZREVRANGE'"],
  "'ZREVRANGE'": ["'ZRANGE'"],
};
/** Options that can be omitted. */
const optional = new Set(["'NX'", "'XX'", "'GT'", "'LT'", "'REV'", "'KEEPTTL'", "'MKSTREAM'"]);

export function luaMutants(source) {
  const tokens = [...source.matchAll(token)]
    .filter(([text]) => !text.startsWith('--') && !text.startsWith('#!'))
    .map(({ 0: text, index }) => ({ text, start: index, end: index + text.length }));
  const lines = lineNumbers(source);
  let depth = 0;
  for (const each of tokens) {
    if (/^[)\]}]$/.test(each.text)) depth--;
    each.depth = depth;
    each.line = lines(each.start);
    if (/^[([{]$/.test(each.text)) depth++;
  }
  const found = [];
  const add = (start, end, text) => found.push({ start, end, text });
  for (const [at, each] of tokens.entries()) {
    for (const text of replacementsOf(tokens, at)) add(each.start, each.end, text);
    if (each.text === 'not') add(each.start, each.end + 1, '');
    if (optional.has(each.text) && tokens[at - 1].text === ',') add(tokens[at - 1].start, each.end, '');
    if (each.text === 'if' || each.text === 'elseif') negate(source, tokens, at, add);
    if (each.text === 'sub' && tokens[at - 2]?.text === 'string') shift(source, tokens, at + 1, add);
    const last = endOfStatement(tokens, at);
    if (last !== undefined) add(each.start, tokens[last].end, '');
  }
  return found;
}

function replacementsOf(tokens, at) {
  const { text } = tokens[at];
  // For string.sub the positions 0 and 1 are the same.
  if (text === '1' && isFirstPosition(tokens, at)) return ['2'];
  const isOperand = (each) => each && (/^[\w'")\]}]/.test(each.text) ? !keywords.has(each.text) : false);
  if (text === '+' || text === '-') return isOperand(tokens[at - 1]) ? [text === '+' ? '-' : '+'] : [];
  if (/^\d+$/.test(text)) return Number(text) > 0 ? [`${Number(text) + 1}`, `${Number(text) - 1}`] : ['1'];
  return Object.hasOwn(swaps, text) ? swaps[text] : [];
}

/** Whether the token is the second argument of string.sub, whose first is a name. */
const isFirstPosition = (tokens, at) =>
  tokens[at - 4]?.text === 'sub' &&
  tokens[at - 3].text === '(' &&
  tokens[at - 1].text === ',' &&
  tokens[at + 1].text === ',';

/**
 * `if a then` becomes `if not (a) then`, unless another mutant inverts it already: without a `not`, or with another
 * comparison.
 */
function negate(source, tokens, at, add) {
  const then = tokens.findIndex(({ text }, index) => index > at && text === 'then');
  const operators = tokens
    .slice(at + 1, then)
    .filter((each) => each.depth === tokens[at].depth && /^(and|or|not|[=~<>]=|[<>])$/.test(each.text));
  if (operators.length === 1 && /^(not|[=~]=)$/.test(operators[0].text)) return;
  const [start, end] = [tokens[at + 1].start, tokens[then - 1].end];
  add(start, end, `not (${source.slice(start, end)})`);
}

/** Adds 1 to the positions of string.sub. Numbers are changed elsewhere. */
function shift(source, tokens, open, add) {
  const { depth } = tokens[open];
  let from = open + 1;
  for (let at = open + 1, place = 0; ; at++) {
    const isEnd = tokens[at].depth === depth && tokens[at].text === ')';
    if (isEnd || (tokens[at].depth === depth + 1 && tokens[at].text === ',')) {
      const [start, end] = [tokens[from].start, tokens[at - 1].end];
      const text = source.slice(start, end);
      if (place > 0 && !/^-?\d+$/.test(text)) add(start, end, `${text} + 1`);
      from = at + 1;
      place++;
    }
    if (isEnd) return;
  }
}

/**
 * The last token of a statement that can be removed: a call, an assignment, or a return within a block. Else undefined.
 */
function endOfStatement(tokens, at) {
  const first = tokens[at];
  const before = tokens[at - 1];
  const isContinuing =
    before && (/^[=,+*/%<>~.-]/.test(before.text) || ['and', 'or', 'not', 'return', 'in'].includes(before.text));
  const begins = before && !isContinuing && (before.line < first.line || ['then', 'else', 'do'].includes(before.text));
  if (!begins || first.depth > 0) return undefined;
  const isReturn = first.text === 'return';
  if (!isReturn && (keywords.has(first.text) || !/^[A-Za-z_]/.test(first.text))) return undefined;
  let last = at;
  for (let next = at + 1; next < tokens.length; next++) {
    const { text, depth, line } = tokens[next];
    if (text === 'function') return undefined;
    if (depth === 0 && ['end', 'else', 'elseif'].includes(text)) break;
    const continues = depth > 0 || /^[)\]}]$/.test(text) || line === tokens[last].line;
    if (!continues) {
      // An operator at the begin or end of a line: the statement continues, and is not removed.
      if (!/^[A-Za-z_]/.test(text) || ['and', 'or'].includes(text) || /^(=|,|and|or|\.\.)$/.test(tokens[last].text))
        return undefined;
      break;
    }
    last = next;
  }
  if (isReturn) return last;
  const words = tokens.slice(at, last + 1).filter(({ depth }) => depth === 0);
  const isAssignment = words.some(({ text }) => text === '=');
  const isCall = tokens[last].text === ')' && words.every(({ text }) => /^[\w.()[\]:]+$/.test(text));
  return isAssignment || isCall ? last : undefined;
}

function lineNumbers(source) {
  const starts = [0, ...[...source.matchAll(/\n/g)].map(({ index }) => index + 1)];
  let line = 0;
  return (at) => {
    while (line + 1 < starts.length && starts[line + 1] <= at) line++;
    return line;
  };
}
