// Cost of watching: calls through a gateway with its page open in a browser, against those without, in turns.
//
//   node tests/page/watching.mjs --bin target/dist/moongate
//
//   --bin PATH      the gateway (also its mock server); needed
//   --view PATH     the view that is open: /calls, unless named
//   --seconds S     length of a turn: 5
//   --turns N       turns of each kind: 6
//   --connections N clients, each with one call at a time: 16
//
// tests/page/setup.sh installs what this needs. Linux only (/proc). Read the ratios: on a machine with few processors the
// browser and the load compete, and then only the CPU time of the gateway says what watching costs the gateway.

import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

process.env.PAGE_HOME ||= join(dirname(fileURLToPath(import.meta.url)), "../../target/page");
const { openBrowser } = await import("./browser.mjs");

const text = (preset) => ({ type: "string", default: preset });
const { values } = parseArgs({
  options: { bin: { type: "string" }, view: text("/calls"), seconds: text("5"), turns: text("6"), connections: text("16") },
});
if (!values.bin) throw new Error("--bin PATH names the gateway to measure");
const bin = resolve(values.bin);
const seconds = Number(values.seconds);
/** Time for the page to settle, and for the machine after it is closed. Nothing is counted meanwhile. */
const SETTLE_MS = 1500;
/** Time until the allocator has given back what the loading of a page left: memory counts while nothing happens. */
const IDLE_MS = 30_000;
const home = mkdtempSync(join(tmpdir(), "watching-"));
const children = [];

/** Starts the program, and waits for the line on stderr that has an address after this text. */
async function start(args, mark) {
  const child = spawn(bin, args, { cwd: home, env: { PATH: process.env.PATH, HOME: home }, stdio: ["ignore", "ignore", "pipe"] });
  children.push(child);
  const found = {};
  for await (const line of createInterface({ input: child.stderr })) {
    for (const name of Object.keys(mark)) found[name] ||= line.match(mark[name])?.[1];
    if (Object.keys(mark).every((name) => found[name])) break;
  }
  // Its log must not fill the pipe.
  child.stderr.resume();
  return { ...found, pid: child.pid };
}

async function startGateway() {
  const server = await start(["mock", "--demo", "--http", "127.0.0.1:0"], { url: /(http:\/\/127[^ ]*\/mcp)/ });
  const listen = 'listen = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\nstate = "memory"';
  writeFileSync(join(home, "moongate.toml"), `[gateway]\n${listen}\n[servers.demo]\nurl = "${server.url}"\n`);
  const gateway = await start(["serve"], { address: /listening on http:\/\/([^/]+)\/mcp/, admin: /page on (http:[^ ]+)/ });
  for (;;) {
    const status = await (await fetch(`${gateway.admin}/api/v1/status`)).json();
    if (status.servers.every(({ state }) => state === "ready")) return gateway;
    await new Promise((done) => setTimeout(done, 50));
  }
}

/** A call as bytes. */
function callBytes(address) {
  const meta = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": { name: "load", version: "1" },
    "io.modelcontextprotocol/clientCapabilities": {},
  };
  const params = { name: "demo__add", arguments: { a: 20, b: 22 }, _meta: meta };
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params });
  const head = [
    "POST /mcp HTTP/1.1", `host: ${address}`, "content-type: application/json", "accept: application/json, text/event-stream",
    "mcp-protocol-version: 2026-07-28", "mcp-method: tools/call", "mcp-name: demo__add", `content-length: ${body.length}`,
  ];
  return `${head.join("\r\n")}\r\n\r\n${body}`;
}

/** Keeps connections busy. Plain sockets, since an HTTP client would cost more than the gateway. */
function startLoad(address) {
  const [host, port] = address.split(":");
  const call = callBytes(address);
  const load = { done: 0, failed: null };
  for (let n = 0; n < Number(values.connections); n += 1) {
    const socket = connect(Number(port), host, () => socket.write(call));
    socket.setNoDelay(true).setEncoding("latin1");
    let read = "";
    socket.on("data", (piece) => {
      read += piece;
      const end = read.indexOf("\r\n\r\n");
      const length = Number(/\r\ncontent-length: (\d+)/i.exec(read)?.[1]);
      if (end < 0 || read.length < end + 4 + length) return;
      if (!read.startsWith("HTTP/1.1 200") || !read.includes('"42"')) load.failed = read.slice(0, 500);
      load.done += 1;
      read = "";
      socket.write(call);
    });
    socket.on("error", (error) => { load.failed = String(error); });
  }
  return load;
}

/** Processor time of a process so far, in milliseconds. */
function cpuTime(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ");
  // utime and stime, in ticks of 10 ms.
  return (Number(fields[11]) + Number(fields[12])) * 10;
}

/** Memory of a process in KiB: all that is resident, and without the pages of the program's file. */
function memoryKb(pid) {
  // Exact, unlike VmRSS, which the kernel counts in large steps for each thread.
  const text = readFileSync(`/proc/${pid}/smaps_rollup`, "utf8");
  const [resident, own] = ["Rss", "Anonymous"].map((name) => Number(new RegExp(`^${name}:\\s+(\\d+)`, "m").exec(text)[1]));
  return { resident, own };
}
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const median = (all) => [...all].sort((one, other) => one - other)[Math.floor(all.length / 2)];

async function measure() {
  const gateway = await startGateway();
  const browser = await openBrowser();
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
  const show = async (isOpen) => {
    await page.goto(isOpen ? gateway.admin + values.view : "about:blank");
    if (isOpen) await page.locator("#live[data-state=live]").waitFor();
    await sleep(SETTLE_MS);
  };
  const memory = {};
  for (const isOpen of [false, true]) {
    await show(isOpen);
    await sleep(IDLE_MS);
    memory[isOpen ? "open" : "closed"] = memoryKb(gateway.pid);
  }
  const load = startLoad(gateway.address);
  const turns = { closed: [], open: [] };
  for (let turn = 0; turn < Number(values.turns) * 2; turn += 1) {
    // Closed, open, open, closed: what changes slowly hits both alike.
    const isOpen = turn % 4 === 1 || turn % 4 === 2;
    await show(isOpen);
    const before = { done: load.done, cpu: cpuTime(gateway.pid), at: performance.now() };
    await sleep(seconds * 1000);
    const took = (performance.now() - before.at) / 1000;
    const calls = load.done - before.done;
    if (load.failed || calls === 0) throw new Error(`a call failed: ${load.failed}`);
    const cpu = ((cpuTime(gateway.pid) - before.cpu) * 1000) / calls;
    turns[isOpen ? "open" : "closed"].push({ rate: calls / took, cpu });
    console.log(`${isOpen ? "open  " : "closed"} ${(calls / took).toFixed(0).padStart(8)} calls/s ${cpu.toFixed(1).padStart(7)} CPU µs/call`);
  }
  await browser.close();
  const ratio = (what) => median(turns.open.map((turn) => turn[what])) / median(turns.closed.map((turn) => turn[what]));
  console.log(`calls/s, open ÷ closed: ${ratio("rate").toFixed(3)}`);
  console.log(`CPU µs of the gateway a call, open ÷ closed: ${ratio("cpu").toFixed(3)}`);
  for (const [kind, { resident, own }] of Object.entries(memory)) {
    console.log(`memory without calls, ${kind}: ${resident} KiB resident, ${own} KiB of it the gateway's own data`);
  }
}

try {
  await measure();
} finally {
  for (const child of children) child.kill("SIGKILL");
  rmSync(home, { recursive: true, force: true });
}
process.exit(0);
