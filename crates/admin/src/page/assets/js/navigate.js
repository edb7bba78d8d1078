// Goes from one state of the page to another without loading it anew: links, forms, back and forward.

import { all, byId, find, on } from "./dom.js";
import { fetchPage, why } from "./fragments.js";
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
    showFailure(`This view could not be loaded: ${why(error)}`);
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
  byId("more")?.removeAttribute("open");
  document.dispatchEvent(new Event("shown"));
  if (isOtherView) {
    scrollTo(0, 0);
    (find(document, "main [autofocus]") || byId("main")).focus({ preventScroll: true });
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
  for (const form of all(document, "form[data-live-filter]")) {
    const wanted = find(form, "input[data-search]").value.toLowerCase();
    for (const row of all(form.parentElement, "[data-filter]")) {
      row.hidden = !(find(row, "summary") || row).textContent.toLowerCase().includes(wanted);
    }
  }
}

export function startNavigation() {
  on("click", (target, event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = target.closest("a[href]");
    if (link) {
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
  on("submit", (form, event) => {
    if (form.method !== "get") return;
    event.preventDefault();
    if (form.dataset.liveFilter !== undefined) reapplyFilter();
    else goTo(form);
    // What was searched for stands in the view.
    if (form.matches(".find")) form.reset();
  });
  on("change", (field) => {
    const form = field.closest("form[data-auto-submit]");
    // A text that was searched while it was typed is shown already.
    if (form && !(field.matches("[data-search]") && form.matches("[data-search-live]"))) goTo(form);
  });
  on("input", (field) => {
    const form = field.closest("form");
    if (form?.matches("[data-live-filter]")) reapplyFilter();
    else if (form?.matches("[data-search-live]") && field.matches("[data-search]")) search(form);
  });
  addEventListener("popstate", () => {
    // The page that asks for a key has no views. To load it anew would break off the trade of a ticket.
    if (document.querySelector("nav")) go(location.pathname + location.search, "keep");
  });
}
