// Starts what makes the page live, and the theme button. Without scripts the page reads as it was rendered.

import { startActions } from "./actions.js";
import { byId, find, on } from "./dom.js";
import { startForms } from "./forms.js";
import { startKeyboard } from "./keyboard.js";
import { connect, isPaused, setPaused } from "./live.js";
import { startNavigation } from "./navigate.js";
import { startTry } from "./try-view.js";
import { startSignIn } from "./signin.js";

const THEMES = ["system", "light", "dark"];

function startTheme() {
  const button = byId("theme");
  if (!button) return;
  const root = document.documentElement;
  const show = () => { find(button, "span").textContent = `Theme: ${root.dataset.theme || "system"}`; };
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(root.dataset.theme || "system") + 1) % THEMES.length];
    if (next === "system") delete root.dataset.theme;
    else root.dataset.theme = next;
    try {
      localStorage.setItem("theme", next);
    } catch { /* Without storage the choice holds for this page. */ }
    show();
  });
  show();
}

on("click", (target) => {
  if (target.id === "pause") setPaused(!isPaused());
  if (target.id !== "held") return;
  scrollTo(0, 0);
  setPaused(false);
});
startTheme();
startActions();
startNavigation();
startForms();
startKeyboard();
startTry();
startSignIn();
// A link to an open card or row shows it.
document.querySelector(".card .body, .toolrow > div > .more")?.closest(".card, .toolrow")?.scrollIntoView({ block: "nearest" });
// A page for readers without a key has no light.
if (byId("live")) connect();
