// Starts the gateways of examples/, for the bench and for the tests: each function writes the files of a gateway to a
// directory and returns its command.
import { spawnSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';

const luaModules = ['ndk_http_module', 'ngx_http_lua_module'].map((name) => `/usr/lib/nginx/modules/${name}.so`);
export const hasLuaOfNginx = () => luaModules.every((file) => existsSync(file));

/** nginx with this text in its http block. */
export function nginx(dir, example, before = '') {
  const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((name) => `${name}_temp_path ${dir}/${name};`);
  // When nginx runs as root, its workers run as another user, which may not write here.
  const user = process.getuid?.() === 0 ? 'user root;' : '';
  const conf = `${before} ${user} daemon off; worker_processes 1; pid ${dir}/pid; error_log ${dir}/error.log;
    worker_rlimit_nofile 4096; events { worker_connections 2048; }
    http { ${paths.join(' ')} access_log off;\n${example} }`;
  writeFileSync(join(dir, 'nginx.conf'), conf);
  return { command: 'nginx', args: ['-c', join(dir, 'nginx.conf'), '-p', dir, '-e', join(dir, 'error.log')] };
}

/** nginx with its Lua module. */
export const nginxLua = (dir, example) =>
  nginx(dir, example, luaModules.map((module) => `load_module ${module};`).join(' '));

/** `lua` is the text of tollgate.lua. */
export function haproxy(dir, example, lua) {
  writeFileSync(join(dir, 'tollgate.lua'), lua);
  writeFileSync(join(dir, 'haproxy.cfg'), example.replace('/etc/haproxy/', `${dir}/`));
  return { command: 'haproxy', args: ['-db', '-f', join(dir, 'haproxy.cfg')] };
}

/** The first Caddy on the PATH that is new enough: that of Debian 12 is not. */
export const findCaddy = () =>
  (process.env.PATH ?? '')
    .split(delimiter)
    .map((folder) => join(folder, 'caddy'))
    .find((program) => {
      const { stdout } = spawnSync(program, ['version'], { encoding: 'utf8' });
      const [, major, minor] = /^v?(\d+)\.(\d+)/.exec(stdout ?? '') ?? [];
      return Number(major) > 2 || (Number(major) === 2 && Number(minor) >= 7);
    });

/** `options` are global ones. */
export function caddy(dir, example, options = '') {
  writeFileSync(join(dir, 'Caddyfile'), `{\nadmin off\nauto_https off\n${options}\n}\n${example}`);
  const env = { ...process.env, HOME: dir, XDG_DATA_HOME: dir, XDG_CONFIG_HOME: dir };
  return { command: findCaddy(), args: ['run', '--adapter', 'caddyfile', '--config', join(dir, 'Caddyfile')], env };
}

/** `address` is the one on which it listens, which is not in the example. */
export function traefik(dir, example, address) {
  writeFileSync(join(dir, 'tollgate.yml'), example);
  const args = [
    `--entrypoints.web.address=${address}`,
    `--providers.file.filename=${join(dir, 'tollgate.yml')}`,
    '--global.checknewversion=false',
    '--global.sendanonymoususage=false',
  ];
  return { command: 'traefik', args, env: { ...process.env, HOME: dir } };
}

export function envoy(dir, example) {
  writeFileSync(join(dir, 'envoy.yaml'), example);
  const quiet = ['--disable-hot-restart', '--concurrency', '1', '--log-level', 'error'];
  return { command: 'envoy', args: ['--config-path', join(dir, 'envoy.yaml'), ...quiet] };
}
