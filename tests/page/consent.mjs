// Says no and yes on the consent page of a login, in a browser that enforces the policy of each page.

import { check, checkAxe, checkNoSideScroll, finish, openBrowser, openTab } from "./browser.mjs";
import { base, order, pictures, trySteps } from "./session.mjs";
import { join } from "node:path";

const approve = (page) => page.getByRole("button", { name: /^Approve/ });
const others = (page) => page.getByRole("button").filter({ hasNotText: /^\s*Approve/ });

/** Checks the page as people see it: light and dark, wide and narrow. */
async function checkLooks(page, name) {
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    for (const width of [1280, 390]) {
      await page.setViewportSize({ width, height: 800 });
      await checkAxe(page, `${name} ${colorScheme} ${width}`);
      await checkNoSideScroll(page, `${name} ${colorScheme} ${width}`);
      await page.screenshot({ path: join(pictures, `${name}-${colorScheme}-${width}.png`) });
    }
  }
}

async function saysNo(page) {
  await page.goto(await order("address"));
  await checkLooks(page, "consent");
  await others(page).first().click();
  const link = page.locator("a[href*='error=access_denied']");
  await link.waitFor();
  check(page.url().startsWith(base), "a no stays here");
  await checkLooks(page, "consent-denied");
  check((await order("logins")) === "0", "a no logs in to nothing");
}

/** The way over the company's login ends at the client by itself. */
async function saysYes(page) {
  await page.goto(await order("address"));
  await approve(page).click();
  await page.waitForURL(/\/client\/callback\?/);
  check((await order(`exchange ${page.url()}`)) === "good", "a yes ends in a token");
  check((await order("logins")) === "1", "there is one login");
}

/** A framed page takes no click. */
async function isNotFramed(page) {
  const address = await order("address");
  await page.goto("about:blank");
  await page.setContent(`<iframe src="${address.replaceAll("&", "&amp;")}"></iframe>`);
  await page.waitForTimeout(500);
  const frame = page.frames().find((other) => other !== page.mainFrame());
  const buttons = await frame.getByRole("button").count().catch(() => 0);
  check(buttons === 0, "the consent page shows in no frame");
}

const browser = await openBrowser();
const { context, page, seen } = await openTab(browser, base);
page.setDefaultTimeout(30_000);
await trySteps([saysNo, saysYes], page, browser);
check(seen.errors.length === 0, `no policy refused anything: ${seen.errors}`);
await trySteps([isNotFramed], page, browser);
await context.close();
await browser.close();
finish();
