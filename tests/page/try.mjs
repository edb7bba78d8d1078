// Tries tools as a person does: fills forms, watches a call, answers a server, stops.

import { join } from "node:path";
import { check, checkAxe, checkClean, checkNoSideScroll, openTab } from "./browser.mjs";
import { base, pictures, runSteps } from "./session.mjs";

const status = (page) => page.locator("[data-status]");
const ended = (page) => page.locator("[data-status]:not(:text('Running'))").waitFor();
const json = async (page) => {
  await page.getByRole("button", { name: "JSON" }).click();
  const text = await page.getByLabel("Arguments").inputValue();
  await page.getByRole("button", { name: "Form", exact: true }).click();
  return text;
};

async function fillsAForm(page) {
  await page.goto(`${base}/servers/a`);
  await page.locator("summary.tool", { hasText: "plan_trip" }).click();
  await page.getByRole("link", { name: "Try it" }).first().click();
  await page.waitForURL(/\/try\/a\/plan_trip$/);
  const more = page.locator("[data-fold]");
  check((await more.locator("summary").textContent()) === "4 more: hotel, when, tags, odd" && (await more.getAttribute("open")) === null, "rare fields stand behind a line");
  await page.getByRole("button", { name: "Call", exact: true }).click();
  check(await page.getByText("This is required.").first().isVisible(), "what is required is asked for");
  await page.getByLabel(/^place/).fill("Rhein \"Main\" 'süd'");
  await page.getByLabel(/^days/).fill("0");
  await page.getByRole("button", { name: "Call", exact: true }).click();
  check(await page.getByText("At least 1.").isVisible(), "a bound is checked");
  await page.getByLabel(/^days/).fill("12345678901234567890");
  await page.getByRole("radio", { name: "train" }).check();
  await page.getByLabel("State of note").selectOption("value");
  await page.getByLabel("State of budget").selectOption("null");
  await page.getByRole("group", { name: /^stops/ }).getByLabel("State of stops").selectOption("value");
  for (const name of ["Mainz", "Koblenz"]) {
    await page.getByRole("button", { name: "Add", exact: true }).first().click();
    await page.keyboard.type(name);
  }
  const text = await json(page);
  check(text.includes("12345678901234567890") && text.includes('"note": ""') && text.includes('"budget": null') && /"stops": \[\s*"Mainz",\s*"Koblenz"\s*\]/.test(text) && !text.includes("colour"), `unset, empty and null differ, digits stay: ${text}`);
  await page.getByRole("button", { name: "JSON" }).click();
  await page.getByLabel("Arguments").fill('{"place":"x","days":1.0,"by":"train","extra":[1.50,"<b>"],"stops":["a",7],"hotel":{"stars":"five"}}');
  await page.getByRole("button", { name: "Form", exact: true }).click();
  check((await page.getByLabel("Other properties, as JSON").last().inputValue()).includes("1.50"), "members without a field are kept");
  check((await json(page)).includes("1.50"), "both ways keep the values");
  check((await more.getAttribute("open")) === "" && (await more.locator("[data-raw]").inputValue()) === '"five"', "the line opens for what is set");
  await page.getByRole("button", { name: "Call", exact: true }).click();
  check(await page.getByText("This is not a whole number.").count() === 0, "1.0 is whole");
  await ended(page);
  check((await status(page).textContent()).startsWith("Done, "), `it is done: ${await status(page).textContent()}`);
  await page.getByRole("button", { name: "raw", exact: true }).click();
  check((await page.getByRole("region", { name: "Raw result" }).textContent()).includes("1.50"), "the result is shown as it came");
  await page.getByRole("button", { name: "structured" }).click();
  const leaves = await page.locator("[data-result] .tree .leaf").allTextContents();
  check(leaves.includes("days: 1.0") && leaves.includes("1: 7") && leaves.some((leaf) => leaf === '1: "<b>"'), `the structured result is a tree: ${leaves}`);
  await checkAxe(page, "a tree");
  await page.getByText("curl", { exact: true }).click();
  const line = await page.locator("#repeat-0").textContent();
  check(line.startsWith("curl -sS 'http") && line.includes("$MOONGATE_KEY") && line.includes("1.50"), `a line repeats it: ${line}`);
  await page.reload();
  check((await page.getByLabel(/^place/).inputValue()) === "x", "what was typed stays in this tab");
  check((await page.evaluate(() => localStorage.length)) === 0, "nothing is stored beyond it");
}

/** A value that no variant can show yet is still the value of one, and a blank row is nothing that could be sent. */
async function choosesAVariant(page) {
  await page.goto(`${base}/try/a/send`);
  check((await json(page)).includes('"target": {}'), "an empty form is shown as JSON");
  check((await page.locator("[data-raw]").count()) === 0, "it comes back as a form");
  await page.getByLabel("Form of target").selectOption("1");
  await page.getByLabel(/^name/).fill("Bob");
  await page.getByRole("button", { name: "Add", exact: true }).click();
  await page.keyboard.type("5");
  await page.getByRole("button", { name: "Add", exact: true }).click();
  await page.getByRole("button", { name: "Call", exact: true }).click();
  check(await page.getByText("Fill this in, or remove it.").isVisible(), "a blank row is named");
  await page.getByRole("button", { name: "Remove", exact: true }).last().click();
  await page.getByRole("button", { name: "Call", exact: true }).click();
  await ended(page);
  await page.getByRole("button", { name: "raw", exact: true }).click();
  const raw = await page.getByRole("region", { name: "Raw result" }).textContent();
  check(/target\W+name\W+Bob/.test(raw) && /sizes\W+5/.test(raw), `what the form shows is sent: ${raw}`);
}

async function watchesAndAnswers(page) {
  await page.goto(`${base}/try/a/count`);
  await page.getByLabel(/^steps/).fill("8");
  await page.getByLabel(/^ms/).fill("1000");
  await page.getByRole("button", { name: "Call", exact: true }).click();
  await page.locator("progress[value]:not([hidden])").waitFor();
  await page.getByText(/\d of 8/).waitFor();
  check(true, "progress is shown");
  // Slow steps, so that a busy browser shows some of them. Nobody waits for the last one.
  await page.getByRole("button", { name: "Stop" }).click();
  await ended(page);
  await page.goto(`${base}/try/a/ask_name`);
  await page.getByRole("button", { name: "Call", exact: true }).click();
  await page.getByRole("heading", { name: "The server asks" }).waitFor();
  await checkAxe(page, "a question");
  await page.getByRole("button", { name: "Send" }).click();
  check(await page.getByText("This is required.").isVisible(), "the same form asks for what is required");
  await page.locator("form.ask").getByLabel(/^name/).fill("Ada");
  await page.getByRole("button", { name: "Send" }).click();
  await ended(page);
  check((await page.locator("[data-result]").textContent()).includes("Ada"), "the answer arrives");
  await page.goto(`${base}/try/a/ask_page`);
  await page.getByRole("button", { name: "Call", exact: true }).click();
  const link = page.locator("form.ask a");
  await link.waitFor();
  check((await link.locator("b").textContent()) === "example.com" && /noopener/.test(await link.getAttribute("rel")), "a page is a link with its host in bold");
  await page.getByRole("button", { name: "Decline" }).click();
  await ended(page);
  await page.goto(`${base}/try/a/fail`);
  await page.getByRole("button", { name: "Call", exact: true }).click();
  await ended(page);
  check((await status(page).getAttribute("class")) === "red" && (await page.locator(".failed").count()) === 1, "a tool's own error is red");
}

async function stops(page) {
  await page.goto(`${base}/try/a/wait`);
  await page.getByLabel(/^ms/).fill("60000");
  const stopCall = async (when, begun) => {
    await page.getByRole("button", { name: "Call", exact: true }).click();
    await begun;
    await page.getByRole("button", { name: "Stop" }).click();
    await page.getByText(/^Stopped, /).waitFor();
    check(true, `a call is stopped ${when}`);
  };
  // A request that nobody answers has no id by which the gateway could stop it.
  await page.route("**/api/v1/try", () => {});
  await stopCall("before the gateway knows it");
  await page.unroute("**/api/v1/try");
  await stopCall("while it runs", page.waitForResponse("**/api/v1/try"));
  await page.getByRole("button", { name: "Call", exact: true }).click();
  await page.locator("[data-status]").waitFor();
  await page.getByRole("link", { name: "Calls" }).click();
  await page.locator("tbody").getByText("cancelled").nth(1).waitFor();
  check((await page.locator("tbody").getByText("admin").count()) > 0, "leaving cancels, and calls are recorded as the operator's");
}

/** A tenth of a second of silence. */
const silence = () => {
  const bytes = Buffer.alloc(844, 0x80);
  bytes.write("RIFF\x44\x03\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\x01\0\x08\0data\x20\x03\0\0", "latin1");
  return bytes.toString("base64");
};

async function hears(page) {
  await page.goto(`${base}/try/a/plan_trip`);
  const sound = { type: "audio", mimeType: "audio/wav", data: silence() };
  const other = { ...sound, mimeType: "audio/x-unknown" };
  const done = { outcome: "ok", ms: 1, own_ms: 0, bytes: 1, result: JSON.stringify({ content: [sound, other] }) };
  const body = `event: started\ndata: {"id":"t-1"}\n\nevent: done\ndata: ${JSON.stringify(done)}\n\n`;
  await page.route("**/api/v1/try", (route) => route.fulfill({ contentType: "text/event-stream", body }));
  await page.getByLabel(/^place/).fill("Mainz");
  await page.getByLabel(/^days/).fill("3");
  await page.getByRole("radio", { name: "train" }).check();
  await page.getByRole("button", { name: "Call", exact: true }).click();
  await page.waitForFunction(() => document.querySelector("[data-result] audio")?.duration > 0);
  check((await page.locator("[data-result] audio").count()) === 1, "a sound that browsers know can be heard");
  await checkAxe(page, "a sound");
  await page.unroute("**/api/v1/try");
}

async function everyLook(_, browser) {
  for (const colorScheme of ["light", "dark"]) {
    for (const [width, height] of [[1280, 800], [390, 844]]) {
      const { context, page, seen } = await openTab(browser, base, { colorScheme, viewport: { width, height } });
      const what = `try ${colorScheme} ${width}`;
      await page.goto(`${base}/try/a/plan_trip`);
      await page.locator("#live[data-state=live]").waitFor();
      await checkAxe(page, `${what} empty`);
      await page.getByLabel(/^place/).fill("Mainz");
      await page.getByLabel("State of stops").selectOption("value");
      await page.getByRole("button", { name: "Add", exact: true }).first().click();
      await page.getByLabel(/^days/).fill("3");
      await page.getByRole("radio", { name: "train" }).check();
      await page.getByRole("button", { name: "Call", exact: true }).click();
      await ended(page);
      await checkAxe(page, what);
      await checkNoSideScroll(page, what);
      await page.screenshot({ path: join(pictures, `try-${colorScheme}-${width}.png`), fullPage: true });
      await page.goto(`${base}/try/a/hostile`);
      await page.getByRole("button", { name: "Call", exact: true }).click();
      await ended(page);
      await checkNoSideScroll(page, `${what} hostile`);
      checkClean(seen, base, what);
      await context.close();
    }
  }
  const { context, page } = await openTab(browser, base, { javaScriptEnabled: false });
  const response = await page.goto(`${base}/try/a/plan_trip`);
  check(response.status() === 200 && !(await page.getByRole("button", { name: "Call", exact: true }).isVisible()), "without script no dead button is shown");
  await context.close();
}

await runSteps([fillsAForm, choosesAVariant, watchesAndAnswers, stops, hears, everyLook]);
