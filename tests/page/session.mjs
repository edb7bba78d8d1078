// Scene of a test: where the page is, and orders to the test that started this. Orders of the form `do: NAME` on stdout
// are done by that test, which answers with a line.

import { createInterface } from "node:readline";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { check, checkAxe, checkClean, checkNoSideScroll, finish, openBrowser, openTab } from "./browser.mjs";

export const base = process.env.PAGE_BASE;
export const pictures = process.env.PAGE_PICTURES;
mkdirSync(pictures, { recursive: true });
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

export async function order(name) {
  console.log(`do: ${name}`);
  return (await answers.next()).value;
}

export async function goLive(page, path) {
  await page.goto(base + path);
  await page.locator("#live[data-state=live]").waitFor();
}

/** Looks at views light and dark, wide and narrow. */
export async function everyLook(browser, views, prepare = async () => {}) {
  for (const colorScheme of ["light", "dark"]) {
    for (const [width, height] of [[1280, 800], [390, 844]]) {
      const { context, page, seen } = await openTab(browser, base, { colorScheme, viewport: { width, height } });
      for (const [name, path] of Object.entries(views)) {
        const what = `${name} ${colorScheme} ${width}`;
        await goLive(page, path);
        await prepare(page, name);
        await checkAxe(page, what);
        await checkNoSideScroll(page, what);
        await page.screenshot({ path: join(pictures, `${name}-${colorScheme}-${width}.png`) });
      }
      checkClean(seen, base, `${colorScheme} ${width}`);
      const weight = [...seen.weight.values()].reduce((sum, bytes) => sum + bytes, 0);
      check(weight > 10_000 && weight <= 80_000, `page weight ${weight}`);
      await context.close();
    }
  }
  const { context, page } = await openTab(browser, base, { viewport: { width: 320, height: 640 } });
  for (const [name, path] of Object.entries(views)) {
    await page.goto(base + path);
    await checkNoSideScroll(page, `${name} 320`);
  }
  await context.close();
}

/** Runs steps in a tab. A step that fails does not stop the others, and leaves a picture. */
export async function trySteps(steps, page, browser) {
  for (const step of steps) {
    try {
      await step(page, browser);
    } catch (error) {
      check(false, `${step.name}: ${error}`);
      await page.screenshot({ path: join(pictures, `failed-${step.name}.png`) });
    }
  }
}

/** Runs steps in a browser of their own, and ends the script. */
export async function runSteps(steps, permissions = []) {
  const browser = await openBrowser();
  const { context, page, seen } = await openTab(browser, base);
  page.setDefaultTimeout(30_000);
  await context.grantPermissions(permissions);
  await trySteps(steps, page, browser);
  checkClean(seen, base, "in use");
  await context.close();
  await browser.close();
  finish();
}
