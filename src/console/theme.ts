// Light, dark, or what the system prefers. The choice is kept in localStorage: it is no secret.

export type Theme = 'system' | 'light' | 'dark';
const stored = 'tollgate.theme';

export function currentTheme(): Theme {
  const theme = localStorage.getItem(stored);
  return theme === 'light' || theme === 'dark' ? theme : 'system';
}

const dark = matchMedia('(prefers-color-scheme: dark)');
dark.addEventListener('change', showTheme);

/** Sets the theme of the page. */
export function showTheme() {
  const theme = currentTheme();
  document.documentElement.dataset.theme = theme === 'system' ? (dark.matches ? 'dark' : 'light') : theme;
}

export function setTheme(theme: Theme) {
  localStorage.setItem(stored, theme);
  showTheme();
}
