// Requests to our own origin: HTML that becomes elements, and JSON for the API. The only place that makes markup of text.

const rules = { createHTML: (/** @type {string} */ text) => text };
// Not every browser has it, nor do the types of the DOM.
const trusted = /** @type {any} */ (globalThis).trustedTypes;
const policy = trusted ? trusted.createPolicy("moongate", rules) : rules;

/** The words for people of what went wrong. @param {unknown} error */
export const why = (error) => error instanceof Error ? error.message : String(error);

/** Sends a request. What the API refuses is thrown in its own words. @param {string} path @param {RequestInit} options */
async function request(path, options) {
  const url = new URL(path, location.href);
  if (url.origin !== location.origin) throw new Error("not of this origin");
  const response = await fetch(url, { ...options, credentials: "same-origin", redirect: "error" }).catch(() => {
    throw new Error("the gateway does not answer, so it is not known whether anything changed.");
  });
  const isPage = (response.headers.get("content-type") || "").startsWith("text/html");
  if (response.ok || isPage) return response;
  const answer = await response.json().catch(() => ({}));
  throw Object.assign(new Error(answer.message || `${response.status} ${response.statusText}`), { answer, status: response.status });
}

/** Sends JSON to the API. @param {string} path @param {string} method @param {string} [body] @param {AbortSignal} [signal] */
export const send = (path, method, body, signal) => request(path, { method, body, signal, headers: { "content-type": "application/json" } });

/** @param {Response} response */
const markup = async (response) => policy.createHTML(await response.text());

/** Fetches one fragment, with a body by POST. @param {string} path @param {string} [body] */
export async function fetchPart(path, body) {
  const headers = { accept: "text/html", "content-type": "application/json" };
  const response = await request(path, { method: body ? "POST" : "GET", body, headers });
  if (!response.ok) throw Object.assign(new Error(response.statusText), { status: response.status });
  const holder = document.createElement("template");
  holder.innerHTML = await markup(response);
  return holder.content.firstElementChild;
}

/** Fetches a whole page, also one that says that something is missing. @param {string} path */
export async function fetchPage(path) {
  const response = await request(path, { headers: { accept: "text/html" } });
  if (response.status === 401) location.reload();
  return new DOMParser().parseFromString(await markup(response), "text/html");
}
