// The console: a client of /v2 and nothing else.

import { render } from 'preact';
import { App } from './app.tsx';
import { showTheme } from './theme.ts';

showTheme();
render(<App />, document.getElementById('root')!);
