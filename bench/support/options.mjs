// The command line of a bench.
import { parseArgs } from 'node:util';

/** Parses the command line. Prints `help` and exits for --help and for an invalid command line. */
export function readOptions(help, options) {
  try {
    const { values } = parseArgs({ options: { ...options, help: { type: 'boolean' } } });
    if (!values.help) return values;
    console.log(help);
    process.exit();
  } catch (error) {
    refuse(error.message, help);
  }
}

export function refuse(message, help) {
  console.error(`bench: ${message}\n\n${help}`);
  process.exit(1);
}

/** The positive integers of an option such as `1,16,64`; `fallback` when the option is missing. */
export function numbersOf(text, fallback, help) {
  if (text === undefined) return fallback;
  const numbers = text.split(',').map(Number);
  if (numbers.every((number) => Number.isSafeInteger(number) && number > 0)) return numbers;
  return refuse(`${text} is not a positive integer or a list of them.`, help);
}
