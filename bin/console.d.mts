// For the test that compares the built files with their sources.

type Name = 'js' | 'css';

export function consoleFile(name: Name): string;

export function bundleConsole(): Promise<Record<Name, string>>;
