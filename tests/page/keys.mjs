// Makes and revokes keys as a person does.

import { join } from "node:path";
import { check, checkAxe, checkNoSideScroll } from "./browser.mjs";
import { base, goLive, order, pictures, runSteps } from "./session.mjs";

const dialog = (page) => page.locator("#newkey[open]");

async function makesAndRevokes(page) {
  await goLive(page, "/keys");
  const form = page.locator("form", { hasText: "For a client" });
  await form.getByLabel(/^Name/).fill("laptop");
  await form.getByText("What it may do").click();
  await form.getByLabel(/^Tools/).fill("weather__*, !*__delete_*");
  await form.getByRole("button", { name: "Create key" }).click();
  await dialog(page).waitFor();
  const key = await dialog(page).locator("code").textContent();
  check(/^mg_[\w-]{20,}/.test(key), "the key is shown");
  check(await dialog(page).getByText("the first key").isVisible(), "the first key says that it closes the endpoint");
  await checkAxe(page, "a new key");
  await page.screenshot({ path: join(pictures, "new-key.png") });
  await dialog(page).getByRole("button", { name: "I have copied it" }).click();
  // The dialog tells of its end a moment later.
  await page.waitForFunction((text) => !document.documentElement.innerHTML.includes(text), key);
  check(true, "it is shown once");
  const row = page.locator("#key-clients-laptop");
  await row.waitFor();
  check((await row.textContent()).includes("weather__*, !*__delete_*"), `its rules are listed: ${await row.textContent()}`);
  check((await order(`tools-with ${key}`)).includes("weather__forecast"), "a client gets in with it");
  for (const width of [1280, 390]) {
    await page.setViewportSize({ width, height: 800 });
    await checkAxe(page, `keys ${width}`);
    await checkNoSideScroll(page, `keys ${width}`);
    await page.screenshot({ path: join(pictures, `keys-${width}.png`) });
  }
  await page.setViewportSize({ width: 1280, height: 800 });
  await form.getByLabel(/^Name/).fill("laptop");
  await form.getByRole("button", { name: "Create key" }).click();
  await form.locator(".err, #failure:visible").or(page.locator("#failure:visible")).first().waitFor();
  check(true, "a name that is taken is refused");
  await row.getByRole("button", { name: "Revoke…" }).click();
  const yes = page.getByRole("button", { name: "Revoke key" });
  check(await yes.isDisabled(), "revoking wants the name");
  await page.locator("#confirm input").fill("laptop");
  await yes.click();
  await row.waitFor({ state: "detached" });
  check(!(await order("config")).includes("laptop"), "the key is gone from the config");
}

async function forAClient(page) {
  await goLive(page, "/connect?client=cursor");
  await page.getByRole("button", { name: "Create a key for Cursor" }).click();
  await dialog(page).waitFor();
  check(/^mg_/.test(await dialog(page).locator("code").textContent()), "a client gets a key of its own");
  await dialog(page).getByRole("button", { name: "I have copied it" }).click();
  await page.goto(`${base}/keys`);
  check((await page.locator("#key-clients-cursor").count()) === 1, "it has the client's name");
  await page.goto(`${base}/connect?client=codex`);
  check((await page.locator(".steps").textContent()).includes("if you still have it: cursor."), "keys that may use the endpoint are named");
}

/** The first key of an operator closes the page: it stays until the key was noted, and asks for it then. */
async function firstOperator(page) {
  await goLive(page, "/keys");
  const form = page.locator("form", { hasText: "For an operator" });
  await form.getByLabel(/^Name/).fill("me");
  await form.getByLabel("Role").selectOption("operate");
  await form.getByRole("button", { name: "Create key" }).click();
  await dialog(page).waitFor();
  const key = await dialog(page).locator("code").textContent();
  await page.waitForTimeout(1500);
  check(await dialog(page).isVisible(), "the dialog stays while the page is closed");
  await dialog(page).getByRole("button", { name: "I have copied it" }).click();
  await page.getByLabel("Admin key").waitFor();
  await page.getByLabel("Admin key").fill(key);
  await page.keyboard.press("Enter");
  await page.locator("#key-operators-me").waitFor();
  check(true, "the new key signs in");
}

await runSteps([makesAndRevokes, forAClient, firstOperator]);
