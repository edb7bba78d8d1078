// Goes from one state of the page to another without loading it anew: links, forms, back and forward.

import { all, byId, find, on } from "./dom.js";
import { fetchPage, why } from "./requests.js";
import { morph } from "./morph.js";
import { showFailure } from "./actions.js";

let latest = 0;
/** The view of an address: a card that opens leaves it, and so does a filter. */
const viewOf = (path = location.href) => {
  const { pathname, searchParams } = new URL(path, location.href);
  return pathname.replace(/^\/servers\/.*/, "/") + (searchParams.get("server") && pathname === "/add" ? searchParams.get("server") : "");
};
let view = viewOf();

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
  const isOtherView = view !== viewOf(path);
  view = viewOf(path);
  if (entry === "push") history.pushState(null, "", path);
  if (entry === "replace") history.replaceState(null, "", path);
  document.title = page.title;
  for (const part of ["nav", "main"]) {
    const [old, fresh] = [document.querySelector(part), page.querySelector(part)];
    if (!old || !fresh) return location.assign(path);
    morph(old, fresh);
  }
  byId("more")?.removeAttribute("open");
  const active = document.activeElement || document.body;
  // The fields say what is shown, also where they said something else.
  for (const form of all(document, "main form[data-auto-submit], main form[data-search-live]")) if (!form.contains(active)) form.reset();
  document.dispatchEvent(new Event("shown"));
  if (isOtherView) scrollTo(0, 0);
  // What had the focus may be gone, or hidden.
  if (isOtherView || active === document.body || !active.getClientRects().length) (find(document, "main [autofocus]") || byId("main")).focus({ preventScroll: true });
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
    let shown = false;
    for (const row of all(form.parentElement, "[data-filter]")) {
      row.hidden = !(find(row, "summary") || row).textContent.toLowerCase().includes(wanted);
      shown ||= !row.hidden;
    }
    const none = find(form.parentElement, "[data-none]");
    if (none) none.hidden = shown || !wanted;
  }
}

/** Writes a parameter into the address, so that a link shows the same. @param {string} name @param {string} value */
function note(name, value) {
  const url = new URL(location.href);
  if (value) url.searchParams.set(name, value);
  else url.searchParams.delete(name);
  history.replaceState(null, "", url);
}

/** Menus close when something else is used. @param {Node | null} used */
export const closeMenus = (used) => {
  for (const menu of all(document, "details[data-menu][open]")) if (!menu.contains(used)) menu.open = false;
};

export function startNavigation() {
  on("click", closeMenus);
  document.addEventListener("toggle", ({ target }) => {
    const row = /** @type {any} */ (target);
    if (row.dataset.tool && row.isConnected && location.pathname.startsWith("/servers/")) note("tool", row.open ? decodeURIComponent(row.dataset.tool) : "");
  }, true);
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
    if (form?.matches("[data-live-filter]")) {
      reapplyFilter();
      if (field.name) note(field.name, field.value);
    } else if (form?.matches("[data-search-live]") && field.matches("[data-search]")) search(form);
  });
  addEventListener("popstate", () => {
    // The page that asks for a key has no views. To load it anew would break off the trade of a ticket.
    if (document.querySelector("nav")) go(location.pathname + location.search, "keep");
  });
}
