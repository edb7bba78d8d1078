// Goes from one state of the page to another without loading it anew: links, forms, back and forward.

import { fetchPage } from "./fragments.js";
import { morph } from "./morph.js";
import { showFailure } from "./actions.js";

let latest = 0;

/** Shows another state. @param {string} path @param {"push" | "replace" | "keep"} entry how the history takes it */
export async function go(path, entry = "push") {
  const mine = ++latest;
  let page;
  try {
    page = await fetchPage(path);
  } catch (error) {
    showFailure(`This view could not be loaded: ${error instanceof Error ? error.message : error}`);
    return;
  }
  if (mine !== latest) return;
  const isOtherView = page.title !== document.title;
  if (entry === "push") history.pushState(null, "", path);
  if (entry === "replace") history.replaceState(null, "", path);
  document.title = page.title;
  for (const part of ["nav", "main"]) {
    const [old, fresh] = [document.querySelector(part), page.querySelector(part)];
    if (!old || !fresh) return location.assign(path);
    morph(old, fresh);
  }
  document.dispatchEvent(new Event("shown"));
  if (isOtherView) {
    scrollTo(0, 0);
    document.getElementById("main")?.focus({ preventScroll: true });
  }
}

/** True for addresses of views. @param {URL} url */
const isView = (url) => url.origin === location.origin && !/^\/(api|assets|parts|metrics|healthz|livez|readyz)/.test(url.pathname);

/** @param {HTMLFormElement} form @param {"push" | "replace"} entry */
function goTo(form, entry = "push") {
  const url = new URL(form.action);
  const pairs = [...new FormData(form)].filter(([, value]) => value !== "").map(([name, value]) => [name, String(value)]);
  url.search = new URLSearchParams(pairs).toString();
  return go(url.pathname + url.search, entry);
}

let isSearching = false, searchesAgain = false;

/** Shows what fits the typed text: one request at a time, the last text in the end. @param {HTMLFormElement} form */
async function search(form) {
  searchesAgain = isSearching;
  if (isSearching) return;
  isSearching = true;
  await goTo(form, "replace");
  isSearching = false;
  if (searchesAgain) search(form);
}

/** Hides the rows that do not fit, without asking the gateway. */
export function reapplyFilter() {
  for (const form of document.querySelectorAll("form[data-live-filter]")) {
    const input = form.querySelector("input[data-search]");
    if (!(input instanceof HTMLInputElement)) continue;
    const wanted = input.value.toLowerCase();
    for (const row of form.parentElement?.querySelectorAll("[data-filter]") || []) {
      const fits = ((row.querySelector("summary") || row).textContent || "").toLowerCase().includes(wanted);
      /** @type {HTMLElement} */ (row).hidden = !fits;
    }
  }
}

export function startNavigation() {
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const target = /** @type {Element} */ (event.target);
    const link = target.closest("a[href]");
    if (link instanceof HTMLAnchorElement) {
      const url = new URL(link.href);
      if (!isView(url) || (url.hash && url.pathname === location.pathname)) return;
      event.preventDefault();
      go(url.pathname + url.search);
      return;
    }
    const head = target.closest(".head");
    if (head && !target.closest("button, a, input, label") && !String(getSelection())) {
      head.querySelector("button.name")?.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }));
    }
  });
  document.addEventListener("submit", (event) => {
    const form = /** @type {HTMLFormElement} */ (event.target);
    if (form.method !== "get") return;
    event.preventDefault();
    if (form.dataset.liveFilter !== undefined) reapplyFilter();
    else goTo(form);
  });
  document.addEventListener("change", (event) => {
    const field = /** @type {Element} */ (event.target);
    const form = field.closest("form[data-auto-submit]");
    // A text that was searched while it was typed is shown already.
    if (form instanceof HTMLFormElement && !(field.matches("[data-search]") && form.matches("[data-search-live]"))) goTo(form);
  });
  document.addEventListener("input", (event) => {
    const form = /** @type {Element} */ (event.target).closest("form");
    if (form?.matches("[data-live-filter]")) reapplyFilter();
    else if (form?.matches("[data-search-live]") && /** @type {Element} */ (event.target).matches("[data-search]")) search(form);
  });
  addEventListener("popstate", () => {
    // The page that asks for a key has no views. To load it anew would break off the trade of a ticket.
    if (document.querySelector("nav")) go(location.pathname + location.search, "keep");
  });
}
