// A script of its own, since the page's policy allows none in the page. `src/lib/preferences.ts` writes what it reads.
try {
  const theme = localStorage.getItem("bellwire.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage is blocked: the system's theme it is.
}
