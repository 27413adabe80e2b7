// npm start: makes everything ready on a fresh clone, then becomes the server, so that signals reach it directly.
import { prepare } from './prepare.mjs';

prepare({ needsRedis: () => !process.env.REDIS_URL });

await import('../dist/main.js');
