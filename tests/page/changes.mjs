// Changes servers as a person does: switches, settings, removal, undo. Each change reaches a connected client and the file.

import { check } from "./browser.mjs";
import { base, goLive, order, runSteps } from "./session.mjs";

const toggle = (page, name) => page.getByRole("switch", { name, exact: true });
const failure = (page) => page.locator("#failure:visible");

async function undone(page, before, what) {
  await page.getByRole("button", { name: "Undo" }).click();
  await page.getByText("Undone.").waitFor();
  check((await order("config")) === before, `${what}: undo restores the bytes`);
}

async function switchesATool(page) {
  const before = await order("config");
  await goLive(page, "/servers/weather");
  await toggle(page, "report_sighting").click();
  await page.getByText("report_sighting is switched off.").waitFor();
  check((await toggle(page, "report_sighting").getAttribute("aria-checked")) === "false", "the switch is off");
  check((await order("client-lacks weather__report_sighting")) === "yes", "a connected client loses the tool");
  await undone(page, before, "a tool");
  check((await order("client-has weather__report_sighting")) === "yes", "and gets it back");
  await page.waitForFunction(() => document.querySelector("[aria-label=report_sighting]").ariaChecked === "true");
  await page.getByRole("button", { name: "All off" }).click();
  await page.getByText("3 tools are switched off.").waitFor();
  check((await order("client-lacks weather__forecast")) === "yes", "all are off in one edit");
  await undone(page, before, "all tools");
}

/** The change may be shown before its answer is there. The next press means what is shown then. */
async function switchesBackAfterASlowAnswer(page) {
  const before = await order("config");
  await goLive(page, "/servers/weather");
  await page.route("**/api/v1/servers/weather", async (route) => {
    const response = await route.fetch();
    await page.locator("#server-weather .num", { hasText: "2 of 4 tools" }).waitFor();
    await route.fulfill({ response });
  });
  await toggle(page, "report_sighting").click();
  await page.getByText("report_sighting is switched off.").waitFor();
  await page.unroute("**/api/v1/servers/weather");
  await toggle(page, "report_sighting").click();
  await page.getByText("report_sighting is switched on.").waitFor();
  check((await order("client-has weather__report_sighting")) === "yes", "the second press switches it on");
  await order("restore");
  await page.locator("#server-weather .num", { hasText: "3 of 4 tools" }).waitFor();
  check((await order("config")) === before, "the config is as before");
}

/** The view of all tools has the same switches, and follows changes that are made elsewhere. */
async function switchesInTheListOfTools(page) {
  const before = await order("config");
  await goLive(page, "/tools");
  const row = page.locator("#row-weather-delete_report");
  check((await row.getByText("off by").count()) === 1 && /moongate\.toml:\d+/.test(await row.textContent()), `the rule and its line are named: ${await row.textContent()}`);
  await toggle(page, "watch_storm").click();
  await page.getByText("watch_storm is switched off.").waitFor();
  await page.waitForFunction(() => document.querySelector("[aria-label=watch_storm]").ariaChecked === "false");
  await undone(page, before, "in the list of tools");
  await order("deny-forecast");
  await page.waitForFunction(() => document.querySelector("#row-weather-forecast [role=switch]")?.ariaChecked === "false");
  check(true, "a change of the file appears");
  await order("restore");
  await page.waitForFunction(() => document.querySelector("#row-weather-forecast [role=switch]")?.ariaChecked === "true");
}

async function switchesAndRemovesAServer(page) {
  const before = await order("config");
  await goLive(page, "/");
  await toggle(page, "notes").click();
  await page.locator("#server-notes b", { hasText: "Off" }).waitFor();
  check((await order("client-lacks notes__note_1")) === "yes", "a client loses the tools of a server that is off");
  await undone(page, before, "a server");
  check((await order("client-has notes__note_1")) === "yes", "and gets them back");
  await page.getByRole("button", { name: "notes", exact: true }).click();
  const remove = page.getByRole("button", { name: "Remove…" });
  await remove.click();
  check((await page.locator("#confirm-text").textContent()).includes("Remove notes?"), "the dialog names the server");
  await page.keyboard.press("Enter");
  check((await order("config")) === before, "Enter keeps it");
  await remove.click();
  await page.getByRole("button", { name: "Remove server" }).click();
  await page.locator("#server-notes").waitFor({ state: "detached" });
  await undone(page, before, "a removed server");
  await page.locator("#server-notes .dot.green").waitFor();
}

async function saves(page) {
  const before = await order("config");
  await goLive(page, "/servers/weather?tab=settings");
  const timeout = page.locator("[name=timeout]");
  await timeout.fill("soon");
  await page.getByLabel(/^Title/).fill("Wetter");
  await page.getByRole("button", { name: "Save" }).click();
  await page.locator("[data-key-of=timeout] .err").waitFor();
  check((await timeout.inputValue()) === "soon" && (await timeout.getAttribute("aria-invalid")) === "true", "what is wrong stands at its field, and the text stays");
  check((await order("config")) === before, "nothing is written");
  await timeout.fill("9s");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("The settings of weather are saved.").waitFor();
  const after = await order("config");
  check(after.includes("timeout = \\\"9s\\\"") && after.includes("Wetter"), `both are written: ${after}`);
  check((await page.getByText("is stored in plain text in the file").count()) === 1 && !(await page.content()).includes("hush-hush"), "a secret is dots, with advice");
  await undone(page, before, "settings");
  await page.waitForFunction(() => document.querySelector("[name=timeout]").value === "");
  check(true, "the form shows the restored values");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("Nothing has changed.").waitFor();
}

async function notices(page) {
  await goLive(page, "/calls");
  await order("break-config");
  const banner = page.locator("#notices .banner.red");
  await banner.waitFor();
  const words = await banner.textContent();
  check(/moongate\.toml:\d+/.test(words) && words.includes("Nothing changed: the gateway still runs the config from"), `a refused config is told: ${words}`);
  await order("restore");
  await banner.waitFor({ state: "detached" });
  await order("move-listener");
  await page.locator("#notices", { hasText: "needs a gateway restart" }).waitFor();
  check((await page.locator("#notices").textContent()).includes("gateway.socket_mode"), "what needs a gateway restart is named");
  await order("restore");
  await page.locator("#notices .banner").waitFor({ state: "detached" });
}

/** Whatever the API answers, the old state stays, with a message. */
async function refusals(page) {
  await goLive(page, "/servers/weather");
  const box = toggle(page, "forecast");
  for (const status of [401, 403, 409, 412, 422, 500, 0]) {
    await page.route("**/api/v1/servers/weather", (route) => status === 0 ? route.abort()
      : route.fulfill({ status, contentType: "application/json", body: JSON.stringify({ error: "x", message: `refused with ${status}` }) }));
    await box.click();
    await failure(page).waitFor();
    const words = await failure(page).textContent();
    check(words.includes(status ? `refused with ${status}` : "does not answer"), `${status}: ${words}`);
    check((await box.getAttribute("aria-checked")) === "true", `${status}: the switch is as before`);
    await page.unroute("**/api/v1/servers/weather");
    await page.keyboard.press("Escape");
  }
}

async function explains(page) {
  await goLive(page, "/servers/weather");
  await page.locator("summary.tool", { hasText: "delete_report" }).click();
  await page.locator("li", { hasText: "delete_report" }).getByRole("link", { name: "Explain" }).click();
  await page.locator("#explained .red", { hasText: "No" }).waitFor();
  const words = await page.locator("#explained").textContent();
  check(/servers\.weather\.tools\.deny/.test(words) && /moongate\.toml:\d+/.test(words) && words.includes("moongate enable weather delete_report"), `rule, line and command are shown: ${words}`);
  await page.goto(`${base}/tools?q=storm`);
  await page.getByRole("link", { name: "What would the model see?" }).click();
  await page.locator(".model pre").waitFor();
  check((await page.locator(".model pre").textContent()).includes("weather__watch_storm(text: string"), "the answer of search_tools is shown");
}

await runSteps([switchesATool, switchesBackAfterASlowAnswer, switchesInTheListOfTools, switchesAndRemovesAServer, saves, notices, refusals, explains]);
