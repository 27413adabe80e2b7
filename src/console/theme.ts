// Light, dark, or what the system prefers. The choice is kept in localStorage: it is no secret.

export type Theme = 'system' | 'light' | 'dark';
const stored = 'tollgate.theme';

export function currentTheme(): Theme {
  const theme = localStorage.getItem(stored);
  return theme === 'light' || theme === 'dark' ? theme : 'system';
}

export function showTheme() {
  const theme = currentTheme();
  if (theme === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

export function setTheme(theme: Theme) {
  localStorage.setItem(stored, theme);
  showTheme();
}
