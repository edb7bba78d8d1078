// Fetches HTML of our own origin and turns it into elements. The only place that makes markup of text.

const rules = { createHTML: (/** @type {string} */ text) => text };
// Not every browser has it, nor do the types of the DOM.
const trusted = /** @type {any} */ (globalThis).trustedTypes;
const policy = trusted ? trusted.createPolicy("moongate", rules) : rules;

/** @param {string} path @returns {Promise<Response>} */
async function fetchOwn(path) {
  const url = new URL(path, location.href);
  if (url.origin !== location.origin) throw new Error("not of this origin");
  const response = await fetch(url, { headers: { accept: "text/html" }, credentials: "same-origin", redirect: "error" });
  if (!(response.headers.get("content-type") || "").startsWith("text/html")) throw new Error(await reason(response));
  return response;
}

/** The message of an answer that is no HTML. @param {Response} response */
export async function reason(response) {
  try {
    return (await response.json()).message || response.statusText;
  } catch {
    return `${response.status} ${response.statusText}`;
  }
}

/** Fetches one fragment. @param {string} path @returns {Promise<Element | null>} */
export async function fetchPart(path) {
  const response = await fetchOwn(path);
  if (!response.ok) throw new Error(String(response.status));
  const holder = document.createElement("template");
  holder.innerHTML = policy.createHTML(await response.text());
  return holder.content.firstElementChild;
}

/** Fetches a whole page, also one that says that something is missing. @param {string} path */
export async function fetchPage(path) {
  const response = await fetchOwn(path);
  if (response.status === 401) location.reload();
  return new DOMParser().parseFromString(policy.createHTML(await response.text()), "text/html");
}
