// For the tests.

export function versionProblems(options: {
  version: string;
  lock: string;
  released: readonly string[];
  here: readonly string[];
}): string[];

export function changelogProblems(changelog: string, options: { version: string; dataVersion: number }): string[];

export function dated(changelog: string, version: string, day: string): string;

export function newestNotes(changelog: string): string;
