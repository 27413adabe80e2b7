// The console: a client of /v2 and nothing else.

import { render } from 'preact';
import { App } from './app.tsx';
import { askOtherTabs } from './tabs.ts';
import { applyTheme } from './theme.ts';
import { markAll } from './visibleText.ts';

applyTheme();
markAll();
await askOtherTabs();
render(<App />, document.getElementById('root')!);
