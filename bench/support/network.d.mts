export declare function addNetwork(name: string, from?: string): { address: string; remove(): void };
export declare function missingNetworks(): string | undefined;
export declare function within(name: string): [string, ...string[]];
