// For the tests, which build as the programs of bin/ do.

export function build(): void;
