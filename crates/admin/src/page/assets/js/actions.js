// Buttons that act: they call the API, ask before what cannot be undone, and say what came of it.

import { reason } from "./fragments.js";

/** Shows why something failed, until the next action. @param {string} text */
export function showFailure(text) {
  const banner = document.getElementById("failure");
  if (!banner) return;
  banner.textContent = text;
  banner.hidden = text === "";
}

/** Milliseconds for which a change can be undone from the page. */
const UNDO_TIME = 10_000;

/** Shows for a moment that something is done. @param {string} text @param {string} [tag] contents of the config to undo from */
export function say(text, tag) {
  document.getElementById("said")?.remove();
  const note = document.createElement("div");
  note.id = "said";
  const words = document.createElement("span");
  words.setAttribute("role", "status");
  note.append(words);
  document.body.append(note);
  words.textContent = text;
  if (tag) note.append(undoButton(tag));
  // Who reaches for the button has the time for it.
  const leave = () => { if (note.matches(":hover, :focus-within")) setTimeout(leave, 1000); else note.remove(); };
  setTimeout(leave, tag ? UNDO_TIME : 4000);
}

/** @param {string} tag */
function undoButton(tag) {
  const button = document.createElement("button");
  button.textContent = "Undo";
  Object.assign(button.dataset, { action: "/api/v1/config/undo", method: "POST", body: JSON.stringify({ etag: tag }), done: "Undone." });
  return button;
}

/** Sends a request to the API, and says what came of it. @param {DOMStringMap} request @param {string} label @returns {Promise<boolean>} */
async function send({ action, method, body, done }, label) {
  showFailure("");
  try {
    const headers = { "content-type": "application/json" };
    const response = await fetch(action || "", { method, headers, body, credentials: "same-origin", redirect: "error" });
    if (!response.ok) throw new Error(await reason(response));
    const answer = await response.json().catch(() => ({}));
    say(done || "Done.", answer.undo && answer.outcome === "changed" && done !== "Undone." ? answer.etag : undefined);
    return true;
  } catch (error) {
    const why = error instanceof TypeError ? "the gateway does not answer. Nothing is known to have changed." : error instanceof Error ? error.message : error;
    showFailure(`${label}: ${why}`);
    return false;
  }
}

/** Switches at once, and back if the API refuses. @param {HTMLElement} toggle */
async function flip(toggle) {
  if (toggle.ariaBusy === "true") return;
  const was = toggle.ariaChecked;
  toggle.ariaBusy = "true";
  toggle.ariaChecked = String(was !== "true");
  const isDone = await send({ ...toggle.dataset, action: toggle.dataset.switch, method: "PATCH" }, toggle.ariaLabel || "");
  toggle.ariaBusy = null;
  if (!isDone) toggle.ariaChecked = was;
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
  const { action, confirm, verb } = button.dataset;
  if (!action || button.disabled) return;
  if (confirm && !(await confirmAction(confirm, verb || "Go on"))) return;
  button.disabled = true;
  await send(button.dataset, button.textContent || "");
  button.disabled = false;
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
    const target = /** @type {Element} */ (event.target);
    if (target.id === "failure") showFailure("");
    const button = target.closest("button");
    if (!button) return;
    if (button.dataset.action) act(button);
    else if (button.dataset.switch) flip(button);
    else if (button.dataset.copy !== undefined) copy(button);
  });
}
