// The console: a client of /v2 and nothing else.

import { render } from 'preact';
import { App } from './app.tsx';
import { applyTheme } from './theme.ts';
import { markAll } from './visibleText.ts';

applyTheme();
markAll();
render(<App />, document.getElementById('root')!);
