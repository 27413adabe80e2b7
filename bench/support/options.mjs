// The command line of a bench.
import { parseArgs } from 'node:util';

/** What parseArgs reads. Prints `help` and ends when that is asked for, or when the command line cannot be read. */
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

/** The whole numbers, from 1, of an option such as `1,16,64`; a list without the option takes its default. */
export function numbersOf(text, fallback, help) {
  if (text === undefined) return fallback;
  const numbers = text.split(',').map(Number);
  if (numbers.every((number) => Number.isSafeInteger(number) && number > 0)) return numbers;
  return refuse(`${text} is not a whole number, or a list of them.`, help);
}
