// Adds servers as a person does: by URL, by paste, and without a mouse.

import { check, checkAxe } from "./browser.mjs";
import { base, goLive, order, runSteps } from "./session.mjs";

async function byUrl(page) {
  const before = await order("config");
  const url = await order("extra-url");
  await goLive(page, "/");
  await page.getByRole("link", { name: "Add server" }).first().click();
  await page.getByLabel(/^URL/).fill(url);
  await page.getByRole("button", { name: "Preview" }).click();
  const found = page.locator("#preview .found").first();
  await found.getByText("2 tools").waitFor();
  check((await page.locator(".diff").textContent()).includes(url), "what is written is shown before");
  check((await order("config")) === before, "a look writes nothing");
  await checkAxe(page, "a preview");
  await found.getByLabel(/^Name of/).fill("extra");
  check((await found.textContent()).includes("tool names start with extra__"), "the names of its tools are shown before");
  await page.getByRole("button", { name: "Add", exact: true }).click();
  await page.waitForURL(`${base}/servers/extra`);
  await page.locator("#server-extra .dot.green").waitFor();
  check((await order("client-has extra__echo")) === "yes", "a connected client gets the new tool");
  await page.getByRole("button", { name: "Undo" }).click();
  await page.locator("#server-extra").waitFor({ state: "detached" });
  check((await order("config")) === before, "undo restores the bytes");
  check((await order("client-lacks extra__echo")) === "yes", "and the client loses it");
}

/** A server that is gone says why, in the page that is open. */
async function diesUnderThePage(page) {
  await goLive(page, `/add?url=${encodeURIComponent(await order("extra-url"))}`);
  await page.getByRole("button", { name: "Preview" }).click();
  await page.locator("#preview [data-name]").getByLabel(/^Name of/).fill("extra");
  await page.getByRole("button", { name: "Add", exact: true }).click();
  await page.locator("#server-extra .dot.green").waitFor();
  await order("kill-extra");
  await page.locator("#server-extra .state b").waitFor({ timeout: 20_000 });
  const words = await page.locator("#server-extra .state").textContent();
  check(words.length > 15, `the reason is shown: ${words}`);
  await page.getByRole("button", { name: "Remove…" }).click();
  await page.getByRole("button", { name: "Remove server" }).click();
  await page.locator("#server-extra").waitFor({ state: "detached" });
}

async function byPaste(page) {
  await goLive(page, "/add?tab=paste");
  const servers = { one: { url: "http://127.0.0.1:9/mcp", headers: { Authorization: "Bearer hush-hush-1234" } }, two: { url: "http://127.0.0.1:9/two" }, run: { command: "npx", args: ["-y", "x"] } };
  await page.getByLabel(/^Text/).fill(JSON.stringify({ mcpServers: servers }));
  await page.locator("#preview [data-name=one]").waitFor();
  check(!(await page.locator("#preview").innerHTML()).includes("hush-hush"), "a secret is not shown");
  check((await page.locator("#preview").textContent()).includes("admin.allow_commands"), "a program needs the command line, and the page says why");
  const add = page.locator("#preview [data-count]");
  check((await add.textContent()) === "Add 2", `the button counts: ${await add.textContent()}`);
  await page.locator("#preview [data-name=two] input[type=checkbox]").uncheck();
  check((await add.textContent()) === "Add", "what is not checked is not added");
  await page.locator("#preview [data-name=one] input:not([type])").fill("uno");
  await page.waitForFunction(() => /servers\.uno/.test(document.querySelector("#preview .diff").textContent));
  const diff = await page.locator("#preview .diff").textContent();
  check(!diff.includes("servers.two") && !diff.includes("servers.one"), `the difference follows boxes and names: ${diff}`);
  await page.locator("#preview [data-name=one] input:not([type])").fill("one");
  check((await page.locator("#preview").textContent()).includes("moongate add run -- npx -y x"), "the line for a program can be copied");
  await checkAxe(page, "pasted servers");
  await add.click();
  await page.waitForURL(`${base}/servers/one`);
  const config = await order("config");
  check(config.includes("servers.one") && config.includes("hush-hush-1234") && !config.includes("servers.two"), "only what was checked is written, with its secret");
  await page.getByRole("button", { name: "Undo" }).click();
  await page.locator("#server-one").waitFor({ state: "detached" });
  await page.goto(`${base}/add?tab=paste`);
  await page.getByLabel(/^Text/).fill('{"mcpServers": {');
  await page.locator("#preview .red").first().waitFor();
  check((await page.locator("#preview [data-count]").count()) === 0, "a broken text adds nothing, and says where it breaks");
}

/** What is there without a key is not added a second time, unless somebody says so. */
async function withAKey(page) {
  const before = await order("config");
  await goLive(page, "/add");
  await page.getByLabel(/^URL/).fill(await order("notes-url"));
  await page.getByLabel("Header name").fill("Authorization");
  await page.getByLabel("Header value").fill("Bearer hush-hush-1234");
  await page.getByRole("button", { name: "Preview" }).click();
  const found = page.locator("#preview [data-name]");
  await found.getByText("2 tools").waitFor();
  const words = await found.textContent();
  check(words.includes("lacks:headers.Authorization = ***"), `what is missing is named: ${words}`);
  check((await found.locator(".code pre").textContent()).includes("Bearer ${NOTES_TOKEN}"), "the lines for the entry can be copied");
  check(!(await page.locator("#preview").innerHTML()).includes("hush-hush"), "the key is not shown");
  check(await page.locator("#preview [data-count]").isDisabled(), "nothing is chosen at first");
  await checkAxe(page, "a server that differs");
  await found.getByRole("checkbox").check();
  await found.getByLabel(/^Name of/).fill("keyed");
  await page.waitForFunction(() => /servers\.keyed/.test(document.querySelector("#preview .diff").textContent));
  await page.getByRole("button", { name: "Add", exact: true }).click();
  await page.waitForURL(`${base}/servers/keyed`);
  check((await order("config")).includes("hush-hush-1234"), "it is added with its key");
  await page.getByRole("button", { name: "Undo" }).click();
  await page.locator("#server-keyed").waitFor({ state: "detached" });
  await goLive(page, "/add?tab=paste");
  const keyed = { url: await order("notes-url"), headers: { "X-Key": "hush-hush-1234" } };
  await page.getByLabel(/^Text/).fill(JSON.stringify({ mcpServers: { notes: keyed, fresh: { url: "http://127.0.0.1:9/fresh" } } }));
  await page.locator("#preview [data-name=fresh]").waitFor();
  const add = page.locator("#preview [data-count]");
  check((await add.textContent()) === "Add", `only what is new is chosen: ${await add.textContent()}`);
  await page.locator("#preview [data-name=notes-2]").getByRole("checkbox").check();
  check((await add.textContent()) === "Add 2", `one button adds both: ${await add.textContent()}`);
  check((await order("config")) === before, "undo restores the bytes");
}

/** A page may start no program, so it writes the line that does. */
async function byCommand(page) {
  await goLive(page, "/add?tab=command");
  await page.getByLabel("Name", { exact: true }).fill("notes-2");
  await page.locator("[data-command]").fill("./notes-server --all");
  const line = await page.locator("main .code pre").textContent();
  check(line === "moongate add notes-2 -- ./notes-server --all", `the line for a terminal: ${line}`);
}

/** Presses Tab until an element has the focus. */
async function tabTo(page, fits, what) {
  for (let presses = 0; presses < 80; presses += 1) {
    if (await page.evaluate(fits)) return true;
    await page.keyboard.press("Tab");
  }
  check(false, `Tab reaches ${what}`);
  return false;
}

async function withoutAMouse(page) {
  const before = await order("config");
  await goLive(page, "/");
  await page.keyboard.press("a");
  await page.waitForFunction(() => document.activeElement?.getAttribute("name") === "url");
  await page.keyboard.type(await order("second-url"));
  await page.keyboard.press("Enter");
  await page.locator("#preview [data-count]").waitFor();
  await tabTo(page, () => document.activeElement.matches("[data-count]"), "Add");
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/servers\//);
  await page.locator(".card .body .toolrow").first().waitFor();
  const name = decodeURIComponent(new URL(page.url()).pathname.split("/")[2]);
  await tabTo(page, () => document.activeElement.matches("summary.tool"), "a tool");
  const tool = await page.evaluate(() => document.activeElement.querySelector("code").textContent);
  await page.keyboard.press(" ");
  await page.getByText(`${tool} is switched off.`).waitFor();
  check((await order(`client-lacks ${name}__${tool}`)) === "yes", "Space on a row switches the tool off");
  await tabTo(page, () => document.activeElement.textContent === "Undo", "Undo");
  await page.keyboard.press("Enter");
  await page.getByText("Undone.").waitFor();
  check((await order(`client-has ${name}__${tool}`)) === "yes", "the undo needs no mouse");
  await page.goto(`${base}/servers/${name}`);
  await page.locator("#live[data-state=live]").waitFor();
  await tabTo(page, () => document.activeElement.matches("summary.tool"), "a tool");
  await page.keyboard.press("Enter");
  await tabTo(page, () => document.activeElement.textContent === "Try it", "Try it");
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/try\//);
  await tabTo(page, () => document.activeElement.matches("[data-call]"), "Call");
  await page.keyboard.press("Enter");
  await page.locator("[data-status]:not(:text('Running'))").waitFor();
  check(true, "a tool is tried without a mouse");
  await order("restore");
  check((await order("config")) === before, "the config is as before");
  await page.goto(base);
  await page.locator(`#server-${name}`).waitFor({ state: "detached" });
}

await runSteps([byUrl, byPaste, withAKey, byCommand, withoutAMouse, diesUnderThePage]);
