// Signs in with a key or a ticket, and out again. A key leaves the form only in the body of one request.

import { reason } from "./fragments.js";
import { showFailure } from "./actions.js";

/** @param {string} path @param {unknown} body */
const post = (path, body) => fetch(path, {
  method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
  credentials: "same-origin", redirect: "error",
});

/** @param {{ key: string } | { ticket: string }} proof */
async function signIn(proof) {
  showFailure("");
  try {
    const response = await post("/api/v1/signin", proof);
    if (!response.ok) return showFailure(await reason(response));
  } catch {
    return showFailure("The gateway does not answer.");
  }
  if (location.pathname === "/signin") location.replace("/");
  else location.reload();
}

async function signOut() {
  try {
    const response = await post("/api/v1/signout", {});
    if (!response.ok) return showFailure(await reason(response));
  } catch {
    return showFailure("The gateway does not answer: you are still signed in.");
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
  document.getElementById("signout")?.addEventListener("click", signOut);
  const form = document.getElementById("signin");
  if (!form) return;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const field = /** @type {HTMLInputElement} */ (document.getElementById("key"));
    const key = field.value;
    field.value = "";
    signIn({ key });
  });
  tradeTicket();
  addEventListener("hashchange", tradeTicket);
}
