// examples/nginx/tollgate-lua.conf in a real nginx with its Lua module.

import { hasLuaOfNginx, nginxLua } from '../../bench/support/gateways.mjs';
import { describeGateway, missingProgram } from './gateway.ts';

const missingNginx = missingProgram('nginx', '-v');

describeGateway('nginx with Lua', {
  file: 'nginx/tollgate-lua.conf',
  open: [['local open = false', 'local open = true']],
  missing: () => missingNginx() ?? (hasLuaOfNginx() ? undefined : 'nginx has no Lua module here'),
  start: nginxLua,
  addresses: { listen: 'listen 80;', tollgate: '"127.0.0.1", 8080', api: 'server 127.0.0.1:3000;' },
  away: 503,
  misconfigured: 500,
  http2: {
    onSamePort: false,
    changes: (port) => [['    location / {', `    listen 127.0.0.1:${port} http2;\n    location / {`]],
  },
  address: [['-- .. "X-Real-IP: "', '.. "X-Real-IP: "']],
  ratelimitOnSuccess: true,
});
