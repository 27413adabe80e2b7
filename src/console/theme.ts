// Light, dark, or the preference of the system. The choice is stored in localStorage: it is not secret.

export type Theme = 'system' | 'light' | 'dark';
const stored = 'tollgate.theme';
export const themeEvent = 'tollgate.theme';

export function currentTheme(): Theme {
  const theme = localStorage.getItem(stored);
  return theme === 'light' || theme === 'dark' ? theme : 'system';
}

const dark = matchMedia('(prefers-color-scheme: dark)');
dark.addEventListener('change', applyTheme);

/** Sets the theme of the page. Charts then draw themselves again. */
export function applyTheme() {
  const theme = currentTheme();
  document.documentElement.dataset.theme = theme === 'system' ? (dark.matches ? 'dark' : 'light') : theme;
  dispatchEvent(new Event(themeEvent));
}

export function setTheme(theme: Theme) {
  localStorage.setItem(stored, theme);
  applyTheme();
}
