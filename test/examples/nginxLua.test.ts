// examples/nginx/tollgate-lua.conf in a real nginx with its Lua module.

import { existsSync } from 'node:fs';
import { describeGateway, missingProgram } from './gateway.ts';
import { startNginx } from './nginx.ts';

const modules = ['ndk_http_module', 'ngx_http_lua_module'].map((name) => `/usr/lib/nginx/modules/${name}.so`);
const missingNginx = missingProgram('nginx', '-v');

describeGateway('nginx with Lua', {
  file: 'nginx/tollgate-lua.conf',
  open: [['local open = false', 'local open = true']],
  missing: () => missingNginx() ?? (modules.every(existsSync) ? undefined : 'nginx has no Lua module here'),
  start: (dir, example) => startNginx(dir, example, modules.map((module) => `load_module ${module};`).join(' ')),
  addresses: { listen: 'listen 80;', tollgate: '"127.0.0.1", 8080', api: 'server 127.0.0.1:3000;' },
  away: 503,
  misconfigured: 500,
  http2: (port) => [['    location / {', `    listen 127.0.0.1:${port} http2;\n    location / {`]],
  ratelimitOnSuccess: true,
});
