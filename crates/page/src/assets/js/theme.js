// Runs before the first paint: the theme that was chosen, and the mark that scripts run.
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  try {
    const theme = localStorage.getItem("theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  } catch { /* Storage may be off; the system's theme holds. */ }
})();
