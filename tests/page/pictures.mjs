// Pictures of the documentation. Compares them with the page, or takes them again (UPDATE_PICTURES=1).
//
// Pixels differ between versions of fonts and browsers, so a fingerprint is compared: the text that a view shows, without
// numbers, and the bytes of the page's style and scripts. Orders of the form `do: NAME` on stdout are done by the test
// that started this, which answers with a line.

import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { homedir, hostname, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { check, checkClean, checkNoSideScroll, finish, openBrowser, openTab } from "./browser.mjs";
import { shrink } from "./png.mjs";
import { work } from "./scene/clients.mjs";
import { base, order } from "./session.mjs";
import { drawTerminal } from "./terminal.mjs";

const isUpdate = Boolean(process.env.UPDATE_PICTURES);
const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const folder = join(root, "docs/pictures");
const assets = join(root, "crates/page/src/assets");
/** Texts that were compared, for a look at a difference. */
const texts = join(process.env.PAGE_PICTURES, "texts");
const BYTES_MAX = 200_000;
const WIDE = { width: 1280, height: 800 };
/** The form and what it found fit in this one, and so do all cards. */
const TALL = { width: 1280, height: 900 };
const PHONE = { width: 390, height: 844 };

/** A picture a line: its name, its path, and where it differs the colours, the size, and what is done before. */
const PICTURES = [
  { name: "servers-light", path: "/", viewport: TALL },
  { name: "servers-dark", path: "/", colorScheme: "dark", viewport: TALL },
  { name: "servers-phone", path: "/", viewport: PHONE },
  { name: "server", path: "/servers/tickets?state=ready&sort=cost" },
  { name: "tools", path: "/tools?q=find%20a%20note%20or%20ticket" },
  { name: "calls", path: "/calls" },
  { name: "sessions", path: "/sessions" },
  { name: "context", path: "/context" },
  { name: "connect", path: "/connect?client=cursor" },
  { name: "try", path: "/try/weather/forecast", act: tryTool },
  { name: "try-phone", path: "/try/weather/forecast", viewport: PHONE, act: tryTool },
  { name: "add", path: "/add", viewport: TALL, act: lookAtServer },
  { name: "keys", path: "/keys" },
  { name: "sign-in", path: "/", before: "operator-key", isClosed: true },
];

async function tryTool(page) {
  await page.getByLabel(/^place/).fill("Mainz");
  await page.getByRole("button", { name: "Call", exact: true }).click();
  await page.getByText(/^Done, /).waitFor();
  await page.evaluate(() => { /** @type {HTMLElement} */ (document.activeElement)?.blur(); scrollTo(0, 0); });
}

async function lookAtServer(page) {
  await page.getByLabel(/^URL/).fill("https://wiki.example.com/mcp");
  await page.getByRole("button", { name: "Preview" }).click();
  await page.locator("#preview .diff").waitFor();
  await page.evaluate(() => { /** @type {HTMLElement} */ (document.activeElement)?.blur(); scrollTo(0, 0); });
}

/** Writes paths as a shell does, since the folder of the test is another one each time. */
async function hideFolder(page, home) {
  await page.evaluate((path) => {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) texts.currentNode.nodeValue = texts.currentNode.nodeValue.replaceAll(path, "~");
  }, home);
}

const digest = (...parts) => {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(part);
  return hash.digest("hex").slice(0, 16);
};

/** A text without what differs from run to run: numbers, times, sizes, space, and the order of rows. */
function withoutNumbers(text) {
  const lines = text.split("\n").map((line) => {
    const plain = line.replace(/\d[\d.,:-]*(?<=\d)|\d/g, "#").replace(/# ?(ms|s|m|h|d|B|kB|MB)\b/g, "#");
    return plain.replace(/#T#Z?/g, "#").replace(/#(\s*#)+/g, "#").replace(/\s+/g, " ").trim();
  });
  return lines.filter((line) => line !== "").sort().join("\n");
}

/** Bytes of the style and of all scripts. */
function readAssets() {
  const scripts = readdirSync(join(assets, "js")).sort().map((name) => join(assets, "js", name));
  return [join(assets, "app.css"), ...scripts].map((path) => readFileSync(path));
}

/** Fails if a text tells of the machine that took the picture. */
function checkPrivate(text, name) {
  const own = [homedir(), tmpdir(), root, hostname()].filter((part) => part.length > 4);
  const found = own.filter((part) => text.includes(part));
  check(found.length === 0, `${name} tells nothing of this machine: ${found}`);
}

/** Opens a view. Returns its picture and the text that it shows. */
async function take(browser, home, { name, path, colorScheme = "light", viewport = WIDE, act, before, isClosed }) {
  if (before) await order(before);
  const { context, page, seen } = await openTab(browser, base, { colorScheme, viewport });
  page.setDefaultTimeout(30_000);
  await page.goto(base + path);
  if (!isClosed) await page.locator("#live[data-state=live]").waitFor();
  await act?.(page);
  await page.waitForTimeout(300);
  await hideFolder(page, home);
  await checkNoSideScroll(page, name);
  const text = await page.locator("body").innerText();
  checkPrivate(text, name);
  const bytes = isUpdate ? shrink(await page.screenshot()) : Buffer.alloc(0);
  checkClean(seen, base, name);
  await context.close();
  return { file: `${name}.png`, bytes, text };
}

async function takeAll() {
  const browser = await openBrowser();
  const terminal = JSON.parse(await order("terminal"));
  const svg = Buffer.from(drawTerminal(terminal));
  const shots = [{ file: "cli.svg", bytes: svg, text: terminal.flat().join("\n") }];
  checkPrivate(shots[0].text, "cli.svg");
  await order("client-keys");
  await work(await order("endpoint"));
  const home = await order("home");
  for (const picture of PICTURES) shots.push(await take(browser, home, picture));
  await browser.close();
  return shots;
}

function write(index, shots) {
  mkdirSync(folder, { recursive: true });
  for (const { file, bytes } of shots) {
    check(bytes.length <= BYTES_MAX, `${file} has ${bytes.length} bytes, at most ${BYTES_MAX}`);
    writeFileSync(join(folder, file), bytes);
  }
  writeFileSync(join(folder, "index.json"), `${JSON.stringify(index, null, 2)}\n`);
}

function compare(index, shots) {
  const help = "run `UPDATE_PICTURES=1 tests/page/run.sh`, and look at the pictures before you commit them";
  const path = join(folder, "index.json");
  const kept = existsSync(path) ? JSON.parse(readFileSync(path, "utf8")) : { pictures: {} };
  check(kept.assets === index.assets, `style and scripts are those of docs/pictures; if not, ${help}`);
  for (const { file } of shots) {
    const [old, now] = [kept.pictures[file], index.pictures[file]];
    check(old?.text === now.text, `docs/pictures/${file} shows the text of the page; if not, ${help}`);
    const bytes = existsSync(join(folder, file)) ? readFileSync(join(folder, file)) : "";
    check(old?.bytes === digest(bytes), `docs/pictures/${file} is the one that index.json names; if not, ${help}`);
  }
  const files = existsSync(folder) ? readdirSync(folder).sort() : [];
  const wanted = ["index.json", ...shots.map(({ file }) => file)].sort();
  check(`${files}` === `${wanted}`, `docs/pictures has what is taken and nothing else: ${files}; if not, ${help}`);
}

const shots = await takeAll();
const index = { assets: digest(...readAssets()), pictures: {} };
mkdirSync(texts, { recursive: true });
for (const { file, bytes, text } of shots) {
  const plain = withoutNumbers(text);
  index.pictures[file] = { text: digest(plain), bytes: digest(bytes) };
  writeFileSync(join(texts, `${file}${isUpdate ? "" : ".now"}.txt`), plain);
}
if (isUpdate) write(index, shots);
else compare(index, shots);
finish();
