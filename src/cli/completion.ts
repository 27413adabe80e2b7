// Scripts that complete commands and options in shells, made from the commands themselves.

import type { Command } from 'commander';

/** A place in the command line: the words before it, and what may follow. */
interface Place {
  path: string;
  words: { word: string; about: string }[];
}

export function placesOf(command: Command, path = ''): Place[] {
  const words = [
    ...command.commands.map((each) => ({ word: each.name(), about: each.description() })),
    ...command.options.map((each) => ({ word: each.long!, about: each.description })),
    { word: '--help', about: 'display help' },
  ];
  const below = command.commands.flatMap((each) => placesOf(each, `${path} ${each.name()}`.trim()));
  return [{ path, words }, ...below];
}

const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;
const wordsOf = ({ words }: Place) => words.map(({ word }) => word).join(' ');

/** Bash compares what was typed with the paths: `at` is the longest that it begins with, without options. */
const bash = (places: readonly Place[]) => `_tollgate() {
  local at='' word words=''
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "\${at:+$at }$word" in
      ${places
        .slice(1)
        .map(({ path }) => quoted(path))
        .join('|')}) at="\${at:+$at }$word" ;;
    esac
  done
  case "$at" in
${places.map((place) => `    ${quoted(place.path)}) words=${quoted(wordsOf(place))} ;;`).join('\n')}
  esac
  COMPREPLY=($(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _tollgate tollgate
`;

/** Zsh runs the function of bash. */
const zsh = (places: readonly Place[]) => `autoload -Uz compinit bashcompinit && compinit && bashcompinit
${bash(places)}`;

const fish = (places: readonly Place[]) => `function __tollgate_at
    set -l at
    for word in (commandline -opc)[2..-1]
        contains -- (string join ' ' $at $word) ${places
          .slice(1)
          .map(({ path }) => quoted(path))
          .join(' ')}; and set at $at $word
    end
    test (string join ' ' $at) = $argv[1]
end
${places
  .flatMap(({ path, words }) =>
    words.map(({ word, about }) => {
      const what = word.startsWith('--') ? `-l ${word.slice(2)}` : `-f -a ${word}`;
      return `complete -c tollgate -n ${quoted(`__tollgate_at ${quoted(path)}`)} ${what} -d ${quoted(about)}`;
    }),
  )
  .join('\n')}
`;

export const completions = { bash, fish, zsh };
