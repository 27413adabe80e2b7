// Mutants of TypeScript files, from the compiler's syntax tree. Types, imports and texts of messages are not changed.
import { join } from 'node:path';
import { SyntaxKind } from 'typescript/unstable/ast';
import * as is from 'typescript/unstable/ast/is';
import { API } from 'typescript/unstable/sync';

const swaps = {
  '<': ['<=', '>='],
  '<=': ['<', '>'],
  '>': ['>=', '<='],
  '>=': ['>', '<'],
  '===': ['!=='],
  '!==': ['==='],
  '+': ['-'],
  '-': ['+'],
  '*': ['/'],
  '/': ['*'],
  '%': ['+'],
  '**': ['*'],
  '&&': ['||'],
  '||': ['&&'],
  '??': ['&&'],
  '+=': ['-='],
  '-=': ['+='],
  '++': ['--'],
  '--': ['++'],
  true: ['false'],
  false: ['true'],
};
const methods = {
  startsWith: 'endsWith',
  endsWith: 'startsWith',
  every: 'some',
  some: 'every',
  min: 'max',
  max: 'min',
  floor: 'ceil',
  ceil: 'floor',
  has: 'delete',
};

/** Returns the mutants of each of these files, whose paths are relative to `root`. */
export function typescriptMutants(root, files) {
  const api = new API({ cwd: root });
  try {
    const project = api.updateSnapshot({ openProject: join(root, 'tsconfig.json') }).getProjects()[0];
    return new Map(files.map((file) => [file, mutantsOf(project.program.getSourceFile(join(root, file)))]));
  } finally {
    api.close();
  }
}

function mutantsOf(sourceFile) {
  const { text: source } = sourceFile;
  const found = [];
  const textOf = (node) => source.slice(node.getStart(sourceFile), node.end);
  const add = (node, text) => found.push({ start: node.getStart(sourceFile), end: node.end, text });

  function visit(node) {
    if (isLeftOut(node)) return;
    for (const text of replacementsOf(node, textOf)) add(node, text);
    const condition = is.isIfStatement(node) ? node.expression : is.isConditionalExpression(node) && node.condition;
    if (condition && !isInvertedElsewhere(condition, textOf)) add(condition, `!(${textOf(condition)})`);
    if (is.isBinaryExpression(node))
      for (const text of swaps[textOf(node.operatorToken)] ?? []) add(node.operatorToken, text);
    if (
      is.isPropertyAccessExpression(node) &&
      Object.hasOwn(methods, textOf(node.name)) &&
      is.isCallExpression(node.parent)
    )
      add(node.name, methods[textOf(node.name)]);
    node.forEachChild(visit);
  }
  sourceFile.forEachChild(visit);
  return found;
}

const isLeftOut = (node) =>
  is.isTypeNode(node) ||
  is.isInterfaceDeclaration(node) ||
  is.isTypeAliasDeclaration(node) ||
  is.isImportDeclaration(node);

/** Whether another mutant inverts this condition already: the one without its `!`, or with another comparison. */
const isInvertedElsewhere = (node, textOf) =>
  is.isPrefixUnaryExpression(node) || (is.isBinaryExpression(node) && /^[=!]==$/.test(textOf(node.operatorToken)));

function replacementsOf(node, textOf) {
  const text = textOf(node);
  if (node.kind === SyntaxKind.TrueKeyword || node.kind === SyntaxKind.FalseKeyword) return swaps[text];
  if (is.isNumericLiteral(node)) {
    const number = Number(text.replaceAll('_', ''));
    return number > 0 ? [`${number + 1}`, `${number - 1}`] : ['1'];
  }
  if (is.isPrefixUnaryExpression(node) && text.startsWith('!')) return [text.slice(1)];
  if (is.isPostfixUnaryExpression(node)) return [text.slice(0, -2) + swaps[text.slice(-2)][0]];
  if (is.isExpressionStatement(node)) return [';'];
  const isBranch = node.parent && is.isIfStatement(node.parent) && node.parent.thenStatement === node;
  if (is.isReturnStatement(node) || is.isThrowStatement(node)) return isBranch || is.isBlock(node.parent) ? [';'] : [];
  if (is.isRegularExpressionLiteral(node)) return withoutAnchors(text);
  const isOperand =
    is.isStringLiteral(node) && (is.isCallExpression(node.parent) || is.isBinaryExpression(node.parent));
  return isOperand && text.length > 2 ? ["''"] : [];
}

function withoutAnchors(text) {
  const [, body, flags] = /^\/(.*)\/(\w*)$/s.exec(text);
  const found = [];
  if (body.startsWith('^')) found.push(`/${body.slice(1)}/${flags}`);
  if (/[^\\]\$$/.test(body)) found.push(`/${body.slice(0, -1)}/${flags}`);
  return found;
}
