// Signs in to a server and out of it again, on its card, as a person does.

import { check, checkAxe, checkNoSideScroll } from "./browser.mjs";
import { base, everyLook, goLive, order, runSteps } from "./session.mjs";

const VIEWS = { servers: "/", card: "/servers/linear" };

const showsState = (page, words) => page.locator("#server-linear .state", { hasText: words }).waitFor();
const signIn = (page) => page.getByRole("button", { name: "Sign in", exact: true });
const signOut = (page) => page.getByRole("button", { name: "Sign out", exact: true });
const dialog = (page) => page.locator("#confirm");

/** Views by names that have the state of the login in them. */
const named = (login) => Object.fromEntries(Object.entries(VIEWS).map(([name, path]) => [`${name}-${login}`, path]));

/** Presses a button that leads a new tab through the login. Returns that tab, on its last page. */
async function openedBy(page, button) {
  const [tab] = await Promise.all([page.waitForEvent("popup"), button.click()]);
  await tab.waitForURL(/\/oauth\/callback\//);
  await tab.waitForLoadState();
  return tab;
}

/** Checks the page that a login ends on: light and dark, wide and narrow. */
async function checkLastPage(tab, title) {
  check((await tab.locator("h1").textContent()) === title, `the tab ends on "${title}": ${await tab.locator("main").textContent()}`);
  for (const colorScheme of ["light", "dark"]) {
    await tab.emulateMedia({ colorScheme });
    for (const width of [1280, 390]) {
      await tab.setViewportSize({ width, height: 800 });
      await checkAxe(tab, `${title} ${colorScheme} ${width}`);
      await checkNoSideScroll(tab, `${title} ${colorScheme} ${width}`);
    }
  }
  check((await tab.evaluate(() => window.opener)) === null, "the tab cannot reach the page");
  await tab.close();
}

async function asksForALogin(page, browser) {
  await goLive(page, "/");
  await showsState(page, "Sign-in needed");
  check(await signIn(page).isVisible(), "a closed card offers the sign-in");
  check((await signOut(page).count()) === 0, "there is nothing to sign out of");
  await everyLook(browser, named("needed"));
}

/** A login that is denied leaves the card as it is. */
async function isDenied(page) {
  await goLive(page, "/servers/linear");
  await order("deny");
  const tab = await openedBy(page, signIn(page));
  check((await tab.locator("main").textContent()).includes("access_denied"), "the tab says why");
  await tab.close();
  await order("allow");
  check(await signIn(page).isVisible(), "the card still offers the sign-in");
  check((await order("logins")) === "0", "nothing is kept of it");
}

async function signsIn(page, browser) {
  await goLive(page, "/servers/linear");
  const tab = await openedBy(page, signIn(page));
  await checkLastPage(tab, "You are logged in");
  await showsState(page, "Signed in, renews itself");
  await signOut(page).waitFor();
  check((await signIn(page).count()) === 0, "the card shows the login without a reload");
  check((await order("call")) === "good", "a call carries it");
  await everyLook(browser, named("signed-in"));
}

async function signsOut(page) {
  await goLive(page, "/servers/linear");
  await signOut(page).click();
  await dialog(page).waitFor();
  await checkAxe(page, "the question of a sign-out");
  await page.keyboard.press("Escape");
  await dialog(page).waitFor({ state: "hidden" });
  check((await order("logins")) === "1", "Escape keeps the login");
  await signOut(page).click();
  await dialog(page).getByRole("button", { name: "Sign out", exact: true }).click();
  await page.locator("#said").getByText("Signed out of linear.").waitFor();
  await signIn(page).waitFor();
  check((await order("logins")) === "0", "the login is revoked");
  check((await order("call")) === "refused", "calls need it again");
}

/** A login at another site is a question first, which names both. */
async function confirmsAnotherSite(page) {
  await order("elsewhere");
  await goLive(page, "/servers/linear");
  const [empty] = await Promise.all([page.waitForEvent("popup"), signIn(page).click()]);
  await dialog(page).waitFor();
  if (!empty.isClosed()) await empty.waitForEvent("close", { timeout: 10_000 }).catch(() => {});
  check(empty.isClosed(), "the tab does not cover the question");
  const question = await dialog(page).textContent();
  check(question.includes("The sign-in is at localhost.") && question.includes("127.0.0.1"), `it names both sites: ${question}`);
  await checkAxe(page, "the question of another site");
  await dialog(page).getByRole("button", { name: "Cancel" }).click();
  await dialog(page).waitFor({ state: "hidden" });
  check((await order("logins")) === "0", "a no logs in to nothing");
  await signIn(page).click();
  await dialog(page).waitFor();
  const tab = await openedBy(page, dialog(page).getByRole("button", { name: "Continue" }));
  check((await tab.locator("h1").textContent()) === "You are logged in", "a yes goes on to that site");
  await tab.close();
  await showsState(page, "Signed in");
}

/** The browser may block the tab. Then the address can be copied. */
async function staysWithoutATab(page) {
  await goLive(page, "/servers/linear");
  await signOut(page).click();
  await dialog(page).getByRole("button", { name: "Sign out", exact: true }).click();
  await signIn(page).waitFor();
  await page.evaluate(() => { window.open = () => null; });
  await order("home");
  await signIn(page).click();
  const failure = page.locator("#failure", { hasText: "The browser blocked the new tab" });
  await failure.waitFor();
  check(/^http:\/\/127\.0\.0\.1:\d+\/authorize\?/.test(await failure.locator("pre").textContent()), "the address is there to copy");
  await checkAxe(page, "a blocked tab");
}

async function withoutScript(_, browser) {
  const context = await browser.newContext({ javaScriptEnabled: false });
  const page = await context.newPage();
  await page.goto(`${base}/servers/linear`);
  check((await page.locator("#server-linear").count()) === 1, "without script: the card is there");
  check(!(await signIn(page).isVisible()), "without script: no dead button is shown");
  await context.close();
}

await runSteps([asksForALogin, isDenied, signsIn, signsOut, confirmsAnotherSite, staysWithoutATab, withoutScript]);
