// Starts what makes the page live. Without scripts the page reads as it was rendered.

import { startActions } from "./actions.js";
import { startKeyboard } from "./keyboard.js";
import { connect, isPaused, setPaused } from "./live.js";
import { startNavigation } from "./navigate.js";
import { startTry } from "./try-view.js";
import { startSignIn } from "./signin.js";

const THEMES = ["system", "light", "dark"];

function startTheme() {
  const button = document.getElementById("theme");
  if (!button) return;
  const root = document.documentElement;
  const show = () => { button.textContent = `Theme: ${root.dataset.theme || "system"}`; };
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(root.dataset.theme || "system") + 1) % THEMES.length];
    if (next === "system") delete root.dataset.theme;
    else root.dataset.theme = next;
    try {
      localStorage.setItem("theme", next);
    } catch { /* Storage may be off; the choice holds for this page. */ }
    show();
  });
  show();
}

document.addEventListener("click", (event) => {
  if (/** @type {Element} */ (event.target).id === "pause") setPaused(!isPaused());
});
startTheme();
startActions();
startNavigation();
startKeyboard();
startTry();
startSignIn();
// A link to an open card or row shows it.
document.querySelector(".card .body, .toolrow > div > .more")?.closest(".card, .toolrow")?.scrollIntoView({ block: "nearest" });
// A page for readers without a key has no light.
if (document.getElementById("live")) connect();
