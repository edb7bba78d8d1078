// Signs in with a key or a ticket, and out again. A key leaves the form only in the body of one request.

import { showFailure } from "./actions.js";
import { byId } from "./dom.js";
import { send, why } from "./requests.js";

/** @param {{ key: string } | { ticket: string }} proof */
async function signIn(proof) {
  showFailure("");
  try {
    await send("/api/v1/signin", "POST", JSON.stringify(proof));
  } catch (error) {
    return showFailure(why(error));
  }
  if (location.pathname === "/signin") location.replace("/");
  else location.reload();
}

async function signOut() {
  try {
    await send("/api/v1/signout", "POST", "{}");
  } catch (error) {
    return showFailure(`You are still signed in: ${why(error)}`);
  }
  try {
    sessionStorage.clear();
  } catch { /* Storage may be off; then there is nothing in it. */ }
  location.assign("/signin");
}

/** Trades the ticket of the address, if there is one. */
function tradeTicket() {
  const ticket = /^#t=([\w-]+)$/.exec(location.hash)?.[1];
  if (!ticket) return;
  // Before the trade, so that neither the history nor a copied link has it.
  history.replaceState(null, "", location.pathname);
  signIn({ ticket });
}

export function startSignIn() {
  byId("signout")?.addEventListener("click", signOut);
  const form = byId("signin");
  if (!form) return;
  form.addEventListener("submit", (/** @type {Event} */ event) => {
    event.preventDefault();
    const field = byId("key");
    const key = field.value;
    field.value = "";
    signIn({ key });
  });
  tradeTicket();
  addEventListener("hashchange", tradeTicket);
}
