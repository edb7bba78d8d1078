// Steps of a person who looks things up: tools, and how a client is connected.

import { check } from "./browser.mjs";
import { base, order } from "./session.mjs";

/** The text in the clipboard. The page's policy forbids to read it by script. */
async function pasted(page) {
  // The clipboard is written after the click returned.
  await page.locator("button:visible", { hasText: "copied" }).first().waitFor();
  await page.evaluate(() => document.body.appendChild(document.createElement("textarea")).focus());
  await page.keyboard.press("Control+V");
  return page.evaluate(() => {
    const area = document.querySelector("body > textarea");
    area.remove();
    return area.value;
  });
}

export async function tools(page) {
  await page.goto(base + "/sessions");
  await page.locator("#live[data-state=live]").waitFor();
  await page.keyboard.press("/");
  await page.waitForURL(/\/tools$/);
  await page.waitForFunction(() => document.activeElement?.matches("[data-search]"));
  check(true, "/ goes to the search over all tools where a view has no filter");
  await page.keyboard.type("storm");
  await page.waitForURL(/q=storm$/);
  await page.locator("text=best first").waitFor();
  check((await page.locator(".toolrow code").first().textContent()) === "watch_storm", "what fits best stands first");
  check((await page.getByLabel("Search tools").inputValue()) === "storm", "the typed text stays");
  await page.getByLabel("Search tools").fill("");
  await page.locator("#tools-weather").waitFor();
  await page.locator("#row-weather-forecast a.tool").click();
  await page.locator("#row-weather-forecast .more table").waitFor();
  check(/open=weather%2Fforecast/.test(page.url()), "an open tool is in the URL");
  await page.getByRole("button", { name: "Copy the name" }).click();
  const copied = await pasted(page);
  check(copied === "weather__forecast", `the exposed name is copied: ${copied}`);
  await page.getByLabel("Endpoint", { exact: true }).selectOption("reading");
  await page.waitForURL(/endpoint=reading/);
  await page.locator("#row-weather-watch_storm").waitFor({ state: "detached" });
  check((await page.locator(".toolrow").count()) === 2, "a view has the tools that it names");
}

export async function connect(page) {
  await page.goto(base + "/connect");
  await page.getByLabel("Filter clients").fill("curs");
  await page.getByRole("link", { name: "Cursor", exact: true }).click();
  await page.locator("#presence", { hasText: "Waiting for Cursor" }).waitFor();
  check((await page.getByRole("link", { name: "Add to Cursor" }).getAttribute("href")).startsWith("cursor://"), "the link is there");
  await page.getByRole("button", { name: "Copy the text" }).click();
  const copied = await pasted(page);
  check(JSON.parse(copied).mcpServers.moongate.url.endsWith("/mcp"), "the text of the file is copied");
  await order("cursor");
  await page.locator("#presence", { hasText: "Cursor is connected: cursor-vscode 1" }).waitFor();
  check(true, "a client that connects is seen at once");
}
