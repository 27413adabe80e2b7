// For the tests, which build as the programs of bin/ do.

export const root: string;

export function build(): void;

export function versionSuffix(): string;
