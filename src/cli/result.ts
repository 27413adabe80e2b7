/** The output of a command: lines of text, or JSON with `--json`. */
export interface CommandResult {
  lines: readonly string[];
  json: unknown;
  /** Lines about the result, after the lines; with `--json` or `isData` on standard error. */
  notes?: readonly string[];
  /** The lines are for another program, as JSON is. */
  isData?: boolean;
  /** Print to standard error, because standard output carries data. */
  toStderr?: boolean;
  /** The command did not complete: exit code 1. */
  failed?: boolean;
}
