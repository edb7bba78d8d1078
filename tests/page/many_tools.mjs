// Measures the page with 100 servers of 50 tools: first paint, a typed letter, an opened server.

import { checkNoSideScroll, checkTime, finish, openBrowser, openTab } from "./browser.mjs";

const base = process.env.PAGE_BASE;
const browser = await openBrowser();
const { context, page } = await openTab(browser, base);

const median = (times) => [...times].sort((a, b) => a - b)[Math.floor(times.length / 2)];

async function firstPaint(path) {
  const times = [];
  for (let round = 0; round < 3; round += 1) {
    await page.goto(base + path);
    times.push(await page.evaluate(() => new Promise((resolve) => {
      new PerformanceObserver((list) => {
        const paint = list.getEntriesByName("first-contentful-paint")[0];
        if (paint) resolve(paint.startTime);
      }).observe({ type: "paint", buffered: true });
    })));
  }
  return median(times);
}

/** Times from a key to the frame with what it changes in a list. */
async function keystrokes(list, field, keys) {
  await field.focus();
  const times = [];
  for (const key of keys) {
    await page.evaluate((selector) => {
      window.painted = new Promise((resolve) => {
        let started = 0;
        addEventListener("keydown", () => { started = performance.now(); }, { once: true, capture: true });
        const observer = new MutationObserver(() => {
          if (!started) return;
          observer.disconnect();
          requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - started)));
        });
        const what = { childList: true, subtree: true, characterData: true, attributes: true, attributeFilter: ["hidden"] };
        observer.observe(document.querySelector(selector), what);
      });
    }, list);
    await page.keyboard.press(key);
    times.push(await page.evaluate(() => window.painted));
    await page.waitForTimeout(200);
  }
  return median(times);
}

for (const path of ["/", "/tools", "/servers/server042", "/tools?q=repository", "/context"]) {
  const time = await firstPaint(path);
  checkTime(time <= 500, `first paint of ${path}: ${time.toFixed(0)} ms`);
  await checkNoSideScroll(page, path);
}
const KEYS = ["4", "2", "Backspace", "3", "Backspace"];
await page.goto(base + "/servers/server042");
await page.locator("#live[data-state=live]").waitFor();
const filtered = await keystrokes(".card .rows", page.getByLabel("Filter tools"), KEYS);
checkTime(filtered <= 50, `a letter filters the tools of a server: ${filtered.toFixed(0)} ms`);
await page.goto(base + "/tools");
await page.locator("#live[data-state=live]").waitFor();
const searched = await keystrokes("#tools", page.getByLabel("Search tools"), KEYS);
checkTime(searched <= 50, `a letter searches 5,000 tools: ${searched.toFixed(0)} ms`);
await context.close();
await browser.close();
finish();
