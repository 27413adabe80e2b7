import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Program, run } from '../support/processes.ts';

/** nginx with this text in its http block. */
export function startNginx(dir: string, example: string, before = ''): Program {
  const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((name) => `${name}_temp_path ${dir}/${name};`);
  // When nginx runs as root, its workers run as another user, which may not write here.
  const user = process.getuid?.() === 0 ? 'user root;' : '';
  const conf = `${before} ${user} daemon off; worker_processes 1; pid ${dir}/pid; error_log ${dir}/error.log;
    events {}
    http { ${paths.join(' ')} access_log off;\n${example} }`;
  writeFileSync(join(dir, 'nginx.conf'), conf);
  return run('nginx', ['-c', join(dir, 'nginx.conf'), '-p', dir, '-e', join(dir, 'error.log')]);
}
