// npm start: installs and builds what is missing, then becomes the server, so that signals reach it directly.
import { prepare } from './prepare.mjs';

prepare({ needsRedis: () => !process.env.REDIS_URL });

await import('../dist/main.js');
