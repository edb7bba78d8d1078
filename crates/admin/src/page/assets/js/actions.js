// Buttons that act: they call the API, ask before what cannot be undone, and say what came of it.

import { reason } from "./fragments.js";

/** Shows why something failed, until the next action. @param {string} text */
export function showFailure(text) {
  const banner = document.getElementById("failure");
  if (!banner) return;
  banner.textContent = text;
  banner.hidden = text === "";
}

/** Shows for a moment that something is done. @param {string} text */
export function say(text) {
  document.getElementById("said")?.remove();
  const note = document.createElement("p");
  note.id = "said";
  note.setAttribute("role", "status");
  note.textContent = text;
  document.getElementById("main")?.append(note);
  setTimeout(() => note.remove(), 4000);
}

/** Asks before an action. Enter and Escape keep things as they are. @param {string} text @param {string} verb @returns {Promise<boolean>} */
function confirmAction(text, verb) {
  const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("confirm"));
  const yes = /** @type {HTMLButtonElement} */ (document.getElementById("confirm-yes"));
  const place = /** @type {HTMLElement} */ (document.getElementById("confirm-text"));
  place.textContent = text;
  yes.textContent = verb;
  dialog.returnValue = "no";
  yes.onclick = () => dialog.close("yes");
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
    dialog.showModal();
  });
}

/** @param {HTMLButtonElement} button */
export async function act(button) {
  const { action, method, done, confirm, verb } = button.dataset;
  if (!action || button.disabled) return;
  if (confirm && !(await confirmAction(confirm, verb || "Go on"))) return;
  showFailure("");
  button.disabled = true;
  const label = button.textContent;
  try {
    const headers = { "content-type": "application/json" };
    const response = await fetch(action, { method, headers, credentials: "same-origin", redirect: "error" });
    if (response.ok) say(done || "Done.");
    else showFailure(`${label}: ${await reason(response)}`);
  } catch {
    showFailure(`${label}: the gateway does not answer. Nothing is known to have changed.`);
  } finally {
    button.disabled = false;
  }
}

/** Copies the text before a button. @param {HTMLElement} button */
async function copy(button) {
  const text = button.previousElementSibling?.textContent || "";
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "copied";
    setTimeout(() => { button.textContent = "copy"; }, 2000);
  } catch {
    showFailure(`The browser does not allow copying: ${text}`);
  }
}

export function startActions() {
  document.addEventListener("click", (event) => {
    const button = /** @type {Element} */ (event.target).closest("button");
    if (!button) return;
    if (button.dataset.action) act(button);
    else if (button.dataset.copy !== undefined) copy(button);
  });
}
