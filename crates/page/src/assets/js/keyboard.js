// Keys: `/` to the filter, `g` and a letter to a view, `j` and `k` between rows, `?`, and those of buttons.

import { showFailure } from "./actions.js";
import { all, byId, find, on } from "./dom.js";
import { closeMenus, go } from "./navigate.js";

let wentAt = 0;
/** @type {any} */
let cameFrom = null;

const isOn = () => {
  try {
    return localStorage.getItem("keys") !== "off";
  } catch {
    return true;
  }
};

/** @param {number} step */
function move(step) {
  const rows = all(document, "[data-row]").filter((row) => row.offsetParent !== null);
  const at = rows.indexOf(document.activeElement);
  const next = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + step))];
  next?.focus();
}

/** Goes to the search field of the view, or to the search over all tools. */
async function focusSearch() {
  if (!find(document, "main input[data-search]")) await go("/tools");
  cameFrom = document.activeElement;
  find(document, "main input[data-search]")?.focus();
}

/** @param {any} target @param {KeyboardEvent} event */
function onKey(target, event) {
  const types = target.matches("input:not([type=checkbox]), textarea, select");
  if (event.key === "Escape") {
    showFailure("");
    closeMenus(null);
  }
  if (event.key === "Escape" && types) return cameFrom?.isConnected && cameFrom !== document.body ? cameFrom.focus() : target.blur();
  if (types || event.metaKey || event.ctrlKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.key === "?") return byId("help").showModal();
  if (!isOn()) return;
  if (Date.now() - wentAt < 1200) {
    wentAt = 0;
    const link = find(document, `[data-go="${CSS.escape(event.key)}"]`);
    if (link) return link.click();
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
    case " ": {
      const toggle = target.matches("[data-row]") && find(target.closest(".toolrow, .head") || target, "[role=switch]");
      if (!toggle) break;
      event.preventDefault();
      toggle.click();
      break;
    }
    // Views name the keys of their buttons and links.
    default: find(document, `[data-key="${CSS.escape(event.key)}"]`)?.click();
  }
}

export function startKeyboard() {
  on("keydown", onKey);
  const box = byId("keys-on");
  if (!box) return;
  box.checked = isOn();
  box.addEventListener("change", () => {
    try {
      localStorage.setItem("keys", box.checked ? "on" : "off");
    } catch { /* Storage may be off; then the keys are on. */ }
  });
}
