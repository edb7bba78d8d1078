// Keys: `/` to the filter, `g` and a letter to a view, `j` and `k` between rows, `?`, and those of buttons.

import { showFailure } from "./actions.js";
import { go } from "./navigate.js";

let wentAt = 0;

const isOn = () => {
  try {
    return localStorage.getItem("keys") !== "off";
  } catch {
    return true;
  }
};

/** @param {number} step */
function move(step) {
  const rows = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("[data-row]")].filter((row) =>
    /** @type {HTMLElement} */ (row).offsetParent !== null));
  const at = rows.indexOf(/** @type {HTMLElement} */ (document.activeElement));
  const next = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + step))];
  next?.focus();
}

/** Goes to the search field of the view, or to the search over all tools. */
async function focusSearch() {
  if (!document.querySelector("main input[data-search]")) await go("/tools");
  /** @type {HTMLElement | null} */ (document.querySelector("main input[data-search]"))?.focus();
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  const types = target.matches("input:not([type=checkbox]), textarea, select");
  if (event.key === "Escape") showFailure("");
  if (event.key === "Escape" && types) return target.blur();
  if (types || event.metaKey || event.ctrlKey || event.altKey || document.querySelector("dialog[open]")) return;
  const help = /** @type {HTMLDialogElement} */ (document.getElementById("help"));
  if (event.key === "?") return help.showModal();
  if (!isOn()) return;
  if (Date.now() - wentAt < 1200) {
    wentAt = 0;
    const link = document.querySelector(`[data-go="${CSS.escape(event.key)}"]`);
    if (link instanceof HTMLElement) return link.click();
  }
  switch (event.key) {
    case "g": wentAt = Date.now(); break;
    case "j": move(1); break;
    case "k": move(-1); break;
    case "/": {
      event.preventDefault();
      focusSearch();
      break;
    }
    // Views name the keys of their buttons and links.
    default: {
      const target = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
      if (target instanceof HTMLElement) target.click();
    }
  }
}

export function startKeyboard() {
  document.addEventListener("keydown", onKey);
  const box = document.getElementById("keys-on");
  if (!(box instanceof HTMLInputElement)) return;
  box.checked = isOn();
  box.addEventListener("change", () => {
    try {
      localStorage.setItem("keys", box.checked ? "on" : "off");
    } catch { /* Storage may be off; then the keys are on. */ }
  });
}
