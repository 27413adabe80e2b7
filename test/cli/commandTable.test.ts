// The table of all commands in docs/commands.md. UPDATE=1 writes it.

import { readFileSync, writeFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { storeRows, workspaceRows } from '../../src/cli/commandLine.ts';
import { optionsOf } from '../../src/cli/commandRow.ts';
import { commandRows } from '../../src/cli/keyCommands.ts';
import { rootKeyRows } from '../../src/cli/rootKeyCommands.ts';
import { tailRow } from '../../src/cli/tailCommand.ts';
import { runCli } from '../support/cli.ts';

type Row = readonly [words: string, options: readonly (readonly [flags: string, ...unknown[]])[]];

const ofStore = ({ words, argument, options = [] }: (typeof storeRows)[number]): Row => [
  [words, ...(argument?.slice(0, 1) ?? [])].join(' '),
  options,
];
/** Commands that are registered without a row are named here. */
const rows: readonly Row[] = [
  ['start', []],
  ['mcp', [['--write']]],
  ...workspaceRows.map(ofStore),
  ...[...rootKeyRows, ...commandRows, tailRow].map((row): Row => [row.words, optionsOf(row)]),
  ...storeRows.map(ofStore),
  ['completion <shell>', []],
];

test('docs/commands.md lists every command with its options', () => {
  const code = (text: string) => `\`${text}\``;
  const lines = rows.map(([words, options]) => {
    const flags = options.map(([flags]) => flags).join(' ');
    return `| ${code(words)} | ${flags && code(flags)} |`;
  });
  const table = `| Command | Options |\n|---|---|\n${lines.join('\n')}\n`;
  const [start, end] = ['<!-- commands -->\n', '<!-- /commands -->'];
  const [before, rest] = readFileSync('docs/commands.md', 'utf8').split(start);
  const [written, after] = rest!.split(end);
  if (process.env.UPDATE) writeFileSync('docs/commands.md', before + start + table + end + after);
  else expect(written).toBe(table);
});

test('these are the registered commands', async () => {
  const { out } = await runCli(['completion', 'bash'], {});
  const paths = [...out.matchAll(/^ {6}'([a-z -]+)'\) at=/gm)].map(([, path]) => path!);
  const commands = paths.filter((path) => !paths.some((other) => other.startsWith(`${path} `)));
  expect(commands.length).toBeGreaterThan(50);
  expect(rows.map(([words]) => words.replace(/ [<[].*/, '')).sort()).toEqual(commands.sort());
});
