// One event stream. It says what changed; the fragments of that are fetched, at most ten times a second.

import { showFailure } from "./actions.js";
import { all, byId } from "./dom.js";
import { morph } from "./morph.js";
import { go, reapplyFilter } from "./navigate.js";
import { fetchPart, send } from "./requests.js";

const INTERVAL = 100;
/** Delays of reconnecting, in milliseconds. The last one repeats. */
const DELAYS = [300, 700, 1500, 2000];

/** @type {Set<string>} */
const changed = new Set();
/** @type {Map<string, string>} */
const states = new Map();
let timer = 0, leaving = 0, lastPaint = 0, attempts = 0, held = 0, paused = false, busy = false, shownAt = new Date();
/** @type {EventSource | null} */
let source = null;

/** @param {string} what */
export function markChanged(what) {
  changed.add(what);
  if (!timer && !busy) timer = setTimeout(paint, Math.max(0, lastPaint + INTERVAL - performance.now()));
}

/** True while new calls collect, so that rows do not move under the reader. */
const holds = () => byId("calls") !== null && (paused || scrollY > 300);

async function paint() {
  timer = 0;
  busy = true;
  lastPaint = performance.now();
  const wanted = new Set(changed);
  changed.clear();
  if (wanted.has("calls") && holds()) wanted.delete("calls");
  const regions = all(document, "[data-part]").filter((region) => region.dataset.on.split(" ").some((/** @type {string} */ on) => wanted.has(on)));
  // A region inside of another one that is fetched comes with that.
  const outer = regions.filter((region) => !regions.some((other) => other !== region && other.contains(region)));
  await Promise.all(outer.map(refresh));
  busy = false;
  if (changed.size) markChanged([...changed][0]);
}

/** @param {HTMLElement} region */
async function refresh(region) {
  const path = region.dataset.part || "";
  try {
    const part = await fetchPart(path);
    // The reader may have gone on to another state meanwhile.
    if (part && region.isConnected && region.dataset.part === path) morph(region, part);
    shownAt = new Date();
    reapplyFilter();
  } catch (error) {
    if (/** @type {any} */ (error).status === 404) region.remove();
  }
}

/** @param {any} server */
function onServer(server) {
  const before = states.get(server.name);
  if (server.removed) {
    states.delete(server.name);
    if (location.pathname === `/servers/${encodeURIComponent(server.name)}`) go("/", "replace");
  }
  else states.set(server.name, server.state);
  markChanged("servers");
  markChanged(server.removed || before === undefined ? "list" : `server:${server.name}`);
  if (before !== server.state) announce(`${server.name}: ${server.removed ? "removed" : server.state.replace("_", " ")}`);
}

/** @type {string[]} */
let news = [];
let announcing = 0;

/** Tells screen readers, at most every five seconds. @param {string} text */
function announce(text) {
  news.push(text);
  announcing ||= setTimeout(() => {
    const place = byId("announce");
    if (place) place.textContent = news.slice(-5).join(". ");
    news = [];
    announcing = 0;
  }, 5000);
}

/** @param {string} state @param {string} text */
function showLight(state, text) {
  const light = byId("live");
  if (!light) return;
  light.dataset.state = state;
  if (light.textContent !== text) light.textContent = text;
}

function onCalls(count = 1) {
  if (holds()) {
    held += count;
    showHeld();
  }
  markChanged("calls");
}

function showHeld() {
  const button = byId("held");
  button.hidden = !held;
  button.textContent = `${held} new`;
}

/** @param {boolean} on */
export function setPaused(on) {
  paused = on;
  byId("pause")?.setAttribute("aria-pressed", String(on));
  if (on) return;
  held = 0;
  if (byId("held")) showHeld();
  markChanged("calls");
}

export const isPaused = () => paused;

/** @param {MessageEvent} event */
function onSnapshot(event) {
  const data = JSON.parse(event.data);
  // Another version has other scripts.
  if (data.version !== document.documentElement.dataset.version) return location.reload();
  // What failed meanwhile, failed for that.
  if (attempts) showFailure("");
  attempts = 0;
  showLight("live", "live");
  states.clear();
  for (const server of data.servers) states.set(server.name, server.state);
  // What changed since the page was rendered is not known.
  markChanged("snapshot");
}

/** A key or a session may have ended. Then the page asks for a key. */
async function askForKey() {
  // A key that is shown once would be lost with the page.
  if (byId("newkey")?.open) return;
  await send("/api/v1/me", "GET").catch((error) => { if (error.status === 401) location.reload(); });
}

export function connect() {
  source?.close();
  // A browser opens six connections to a host. Pages that nobody sees must not hold them all.
  if (document.hidden) return;
  const stream = new EventSource("/api/v1/events");
  source = stream;
  stream.addEventListener("snapshot", onSnapshot);
  stream.addEventListener("server", (event) => onServer(JSON.parse(event.data)));
  stream.addEventListener("call", () => onCalls());
  stream.addEventListener("calls", (event) => onCalls(JSON.parse(event.data).started));
  stream.addEventListener("config", () => markChanged("config"));
  stream.addEventListener("sessions", () => markChanged("sessions"));
  stream.onerror = () => {
    if (stream.readyState === EventSource.CLOSED) askForKey();
    stream.close();
    const delay = DELAYS[Math.min(attempts, DELAYS.length - 1)];
    attempts += 1;
    const since = shownAt.toLocaleTimeString();
    if (attempts > 5) showLight("offline", `offline: as of ${since}`);
    else showLight("waiting", `reconnecting in ${delay / 1000} s`);
    setTimeout(connect, delay);
  };
}

/** Times that run are rendered again while they are shown. */
setInterval(() => {
  const slow = Date.now() % 5000 < 1000;
  for (const region of all(document, "[data-ticks]")) {
    if (document.hidden || source?.readyState !== EventSource.OPEN) continue;
    if (region.dataset.ticks === "slow" && !slow) continue;
    if (region.id === "calls" && holds()) continue;
    markChanged(region.dataset.on.split(" ")[0]);
  }
}, 1000);
document.addEventListener("visibilitychange", () => {
  clearTimeout(leaving);
  if (document.hidden) leaving = setTimeout(connect, 5000);
  else if (byId("live") && source?.readyState !== EventSource.OPEN) connect();
});
addEventListener("scroll", () => { if (held && !holds()) setPaused(false); }, { passive: true });
