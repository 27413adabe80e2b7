export interface Start {
  command: string;
  args: string[];
  env?: NodeJS.ProcessEnv;
}
export declare function hasLuaOfNginx(): boolean;
export declare function nginx(dir: string, example: string): Start;
export declare function nginxLua(dir: string, example: string): Start;
export declare function haproxy(dir: string, example: string, lua: string): Start;
export declare function findCaddy(): string | undefined;
export declare function caddy(dir: string, example: string, options?: string): Start;
export declare function traefik(dir: string, example: string, address: string): Start;
export declare function envoy(dir: string, example: string): Start;
