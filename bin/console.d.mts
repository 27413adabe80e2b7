// For the test that compares the built script with its sources.

export const consoleFile: string;

export function bundleConsole(): Promise<string>;
