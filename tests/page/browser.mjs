// A browser, and the checks that hold for every view.

import { createRequire } from "node:module";
import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";

const home = process.env.PAGE_HOME;
const require = createRequire(join(home, "npm", "package.json"));
const { chromium } = require("playwright-core");
const { AxeBuilder } = require("@axe-core/playwright");

const names = ["chromium", "chromium-browser", "google-chrome"];
const places = (process.env.PATH || "").split(delimiter).flatMap((folder) => names.map((name) => join(folder, name)));

const failures = [];

/** Notes a failure, and goes on: one run shows all. */
export function check(holds, what) {
  if (!holds) failures.push(what);
  console.log(`${holds ? "ok" : "FAILED"}: ${what}`);
}

/** Notes a time. Only a quiet machine with a release build can be held to a goal: PAGE_GOALS is set there. */
export function checkTime(holds, what) {
  if (process.env.PAGE_GOALS) check(holds, what);
  else console.log(`measured: ${what}`);
}

/** Ends the script, with the number of failures. */
export function finish() {
  console.log(failures.length ? `end: ${failures.length} failed` : "end: all passed");
  process.exit(failures.length ? 1 : 0);
}

export async function openBrowser() {
  const executablePath = places.find((place) => existsSync(place));
  return chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
}

/** Opens a tab that records what must not happen. */
export async function openTab(browser, base, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, deviceScaleFactor: 1.5, reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  const seen = { requests: [], errors: [], weight: new Map() };
  page.on("request", (request) => seen.requests.push(request.url()));
  page.on("pageerror", (error) => seen.errors.push(String(error)));
  page.on("console", (message) => {
    const text = message.text();
    if (/Content.Security.Policy|TrustedHTML|Refused to/i.test(text)) seen.errors.push(text);
  });
  page.on("response", async (response) => {
    const url = new URL(response.url());
    if (url.pathname.startsWith("/assets/") && response.status() === 200) {
      seen.weight.set(url.pathname, (await response.body().catch(() => "")).length);
    }
  });
  return { context, page, seen };
}

/** All requests went to the page's own origin, and nothing was refused by its policy. */
export function checkClean(seen, base, what) {
  const foreign = seen.requests.filter((url) => new URL(url).origin !== base && !url.startsWith("data:"));
  check(foreign.length === 0, `${what}: no request to another origin ${foreign.slice(0, 3)}`);
  check(seen.errors.length === 0, `${what}: no error and no CSP report ${seen.errors.slice(0, 3)}`);
}

/** No violation of accessibility rules. */
export async function checkAxe(page, what) {
  const { violations } = await new AxeBuilder({ page }).analyze();
  const found = violations.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map((node) => `${node.html.slice(0, 120)} ${node.failureSummary.split("\n")[1] || ""}`).join(" | ")}`);
  check(violations.length === 0, `${what}: axe ${found.join("; ")}`);
}

export async function checkNoSideScroll(page, what) {
  const extra = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  check(extra <= 0, `${what}: no scrolling sideways (${extra})`);
}
