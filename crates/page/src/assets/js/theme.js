// Runs before the first paint: applies the chosen theme, and marks that scripts run. page.js has the button that changes it.
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  try {
    const theme = localStorage.getItem("theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  } catch { /* Storage may be off; the system's theme holds. */ }
})();
