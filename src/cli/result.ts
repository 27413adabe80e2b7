/** What a command prints: lines of text, or JSON with `--json`. */
export interface CommandResult {
  lines: readonly string[];
  json: unknown;
  /** Print to standard error, because standard output carries data. */
  toStderr?: boolean;
  /** The command did not complete: exit code 1. */
  failed?: boolean;
}
