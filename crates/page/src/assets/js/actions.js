// Buttons that act: they call the API, ask before what cannot be undone, and say what came of it.

import { byId, find, on } from "./dom.js";
import { send, why } from "./requests.js";

/** Shows why something failed, until the next action, with what can be pasted instead. @param {string} text @param {any} [error] */
export function showFailure(text, error) {
  const banner = byId("failure");
  if (!banner) return;
  banner.textContent = text;
  banner.hidden = text === "";
  const snippet = error?.answer?.snippet;
  if (!snippet) return;
  const [box, button] = [document.createElement("pre"), document.createElement("button")];
  box.textContent = snippet;
  Object.assign(button, { className: "btn small", textContent: "copy" }).dataset.copy = "";
  banner.append(box, button);
}

/** Milliseconds for which a change can be undone from the page. */
const UNDO_TIME = 10_000;

let leaving = 0;

/** Shows for a moment that something is done. @param {string} text @param {string} [tag] contents of the config to undo from */
export function say(text, tag) {
  const note = byId("said");
  const undo = find(note, "button");
  find(note, "span").textContent = text;
  note.hidden = false;
  undo.hidden = !tag;
  undo.dataset.body = JSON.stringify({ etag: tag });
  // Who reaches for the button has the time for it.
  const leave = () => { if (note.matches(":hover, :focus-within")) leaving = setTimeout(leave, 1000); else note.hidden = true; };
  clearTimeout(leaving);
  leaving = setTimeout(leave, tag ? UNDO_TIME : 4000);
}

/** Sends a request to the API, and says what came of it. @param {DOMStringMap} request @param {string} label */
async function perform({ action, method, body, done }, label) {
  showFailure("");
  try {
    const answer = await (await send(action || "", method || "POST", body)).json().catch(() => ({}));
    say(answer.message || done || "Done.", answer.undo && answer.outcome === "changed" && done !== "Undone." ? answer.etag : undefined);
    return true;
  } catch (error) {
    showFailure(`${label}: ${why(error)}`, error);
    return false;
  }
}

/** Switches at once, and back if the API refuses. @param {HTMLElement} toggle */
async function flip(toggle) {
  if (toggle.ariaBusy === "true") return;
  const was = toggle.ariaChecked;
  toggle.ariaBusy = "true";
  toggle.ariaChecked = String(was !== "true");
  const isDone = await perform({ ...toggle.dataset, action: toggle.dataset.switch, method: "PATCH" }, toggle.ariaLabel || "");
  toggle.ariaBusy = null;
  if (!isDone) toggle.ariaChecked = was;
}

/** Asks before an action, for some by typing a name. Enter and Escape keep things as they are. @param {DOMStringMap} request */
function confirmAction({ confirm, verb, typed }) {
  const dialog = byId("confirm");
  const yes = byId("confirm-yes");
  const name = find(dialog, "input");
  byId("confirm-text").textContent = confirm;
  yes.textContent = verb || "Continue";
  name.parentElement.hidden = !typed;
  name.value = "";
  yes.disabled = !!typed;
  name.oninput = () => { yes.disabled = name.value !== typed; };
  dialog.returnValue = "no";
  yes.onclick = () => dialog.close("yes");
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
    dialog.showModal();
  });
}

/** @param {HTMLButtonElement} button */
export async function act(button) {
  if (button.disabled || (button.dataset.confirm && !(await confirmAction(button.dataset)))) return;
  button.disabled = true;
  await perform(button.dataset, button.textContent || "");
  button.disabled = false;
}

/** Opens an empty tab. Browsers allow that in a click, but not once an answer is there. */
function openTab() {
  const tab = window.open("about:blank", "_blank");
  // As with `noopener`, which would leave nothing to lead anywhere.
  if (tab) tab.opener = null;
  return tab;
}

/** Leads a tab to the page of a login. @param {Window | null} tab @param {string} address */
function leadTo(tab, address) {
  if (!/^https?:$/.test(new URL(address).protocol)) throw new Error("the login's address cannot be opened in a browser.");
  if (!tab) return showFailure("The browser blocked the new tab. Open this address to sign in:", { answer: { snippet: address } });
  tab.location.href = address;
  say("Continue in the new tab. The card here shows when you are signed in.");
}

/** Signs in to a server, in a new tab. A login on another domain is confirmed first. @param {HTMLButtonElement} button @param {string} [host] the host that was agreed to */
async function signIn(button, host) {
  const tab = openTab();
  button.disabled = true;
  showFailure("");
  try {
    const body = JSON.stringify({ confirmed: host !== undefined, host });
    const answer = await (await send(button.dataset.login || "", "POST", body)).json();
    if (!answer.must_confirm) return leadTo(tab, answer.url);
    // The question is on this page, so the tab must not cover it.
    tab?.close();
    const confirm = `The sign-in is at ${answer.host}. ${answer.server_host} gets the access that you grant there. Continue only if you trust ${answer.server_host} with it.`;
    if (await confirmAction({ confirm, verb: "Continue" })) await signIn(button, answer.host);
  } catch (error) {
    tab?.close();
    showFailure(`${button.textContent}: ${why(error)}`, error);
  } finally {
    button.disabled = false;
  }
}

/** Copies the text before a button. @param {HTMLElement} button */
async function copy(button) {
  const text = button.previousElementSibling?.textContent || "";
  try {
    await navigator.clipboard.writeText(text);
    const label = button.textContent;
    button.textContent = "copied";
    setTimeout(() => { button.textContent = label; }, 2000);
  } catch {
    showFailure(`The browser does not allow copying: ${text}`);
  }
}

export function startActions() {
  on("click", (target) => {
    if (target.id === "failure") showFailure("");
    const button = target.closest("button");
    if (!button) return;
    if (button.dataset.action) act(button);
    else if (button.dataset.switch) flip(button);
    else if (button.dataset.login) signIn(button);
    else if (button.dataset.copy !== undefined) copy(button);
  });
}
