// Scripts that complete commands and options in shells, made from the commands themselves.

import type { Command } from 'commander';

/** A group or a command: the words before it, and what may follow. */
interface Place {
  path: string;
  isGroup: boolean;
  words: { word: string; about: string }[];
}

export function placesOf(command: Command, path = ''): Place[] {
  const words = [
    ...command.commands.map((each) => ({ word: each.name(), about: each.description() })),
    ...command.options.map(({ long, description }) => ({ word: long!, about: description })),
    { word: '--help', about: 'display help' },
  ];
  const below = command.commands.flatMap((each) => placesOf(each, `${path} ${each.name()}`.trim()));
  return [{ path, isGroup: below.length > 0, words }, ...below];
}

const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;

/** `at` is the longest path that the words begin with, without options. */
const bash = ([root, ...places]: readonly Place[]) => `_tollgate() {
  local at='' word offers=${quoted(root!.words.map(({ word }) => word).join(' '))}
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "\${at:+$at }$word" in
${places.map(({ path, words }) => `      ${quoted(path)}) at=${quoted(path)} offers=${quoted(words.map(({ word }) => word).join(' '))} ;;`).join('\n')}
    esac
  done
  COMPREPLY=($(compgen -W "$offers" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _tollgate tollgate
`;

/** Zsh runs the function of bash, in which `words` would be a variable of zsh. */
const zsh = (places: readonly Place[]) =>
  `autoload -Uz compinit bashcompinit && compinit && bashcompinit\n${bash(places)}`;

const fish = (places: readonly Place[]) => `function __tollgate_at
    string match -qr -- $argv[1] "$(string match -v -- '-*' (commandline -opc)[2..-1] | string join ' ')"
end
${places
  .flatMap(({ path, isGroup, words }) =>
    words.map(({ word, about }) => {
      const at = quoted(`__tollgate_at '^${path}${isGroup ? '$' : '( |$)'}'`);
      return `complete -c tollgate -n ${at} ${word.startsWith('--') ? `-l ${word.slice(2)}` : `-f -a ${word}`} -d ${quoted(about)}`;
    }),
  )
  .join('\n')}
`;

export const completions = { bash, fish, zsh };
