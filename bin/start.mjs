// npm start: makes everything ready on a fresh clone, then becomes the server, so that signals reach it directly.
import { build, checkNode, hasRedis, install, installRedis } from './prepare.mjs';

checkNode();
install();
build();
if (!process.env.REDIS_URL && !hasRedis()) installRedis();

await import('../dist/main.js');
