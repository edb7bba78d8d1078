// Clients of the pictures: they open sessions and call tools, so that the views have something to show.

const LAPTOP = "mg_of_the_laptop";
const BUILD = "mg_of_the_build";
const WITH_SESSIONS = "2025-11-25";
const WITHOUT = "2026-07-28";

let lastId = 0;

async function post(url, key, headers, method, params) {
  lastId += 1;
  const reply = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/json, text/event-stream", authorization: `Bearer ${key}`, ...headers },
    body: JSON.stringify({ jsonrpc: "2.0", id: method.startsWith("notifications/") ? undefined : lastId, method, params }),
  });
  if (!reply.ok) throw new Error(`${method}: HTTP status ${reply.status}: ${await reply.text()}`);
  await reply.text();
  return reply;
}

/** Opens a session. Returns the function that calls a tool in it. */
async function openSession(url, key, name, version) {
  const params = { protocolVersion: WITH_SESSIONS, capabilities: {}, clientInfo: { name, version } };
  const reply = await post(url, key, {}, "initialize", params);
  const headers = { "mcp-session-id": reply.headers.get("mcp-session-id"), "mcp-protocol-version": WITH_SESSIONS };
  await post(url, key, headers, "notifications/initialized", {});
  return (tool, args) => post(url, key, headers, "tools/call", { name: tool, arguments: args });
}

/** Returns the function that calls a tool without a session. */
function withoutSession(url, key, name, version) {
  const meta = {
    "io.modelcontextprotocol/protocolVersion": WITHOUT,
    "io.modelcontextprotocol/clientInfo": { name, version },
    "io.modelcontextprotocol/clientCapabilities": {},
  };
  return (tool, args) => {
    const headers = { "mcp-protocol-version": WITHOUT, "mcp-method": "tools/call", "mcp-name": tool };
    return post(url, key, headers, "tools/call", { name: tool, arguments: args, _meta: meta });
  };
}

/** Lets clients work. One call is still running at the end. */
export async function work(url) {
  const claude = await openSession(url, LAPTOP, "claude-code", "2.1.37");
  const cursor = await openSession(url, LAPTOP, "cursor-vscode", "1.0.0");
  const build = await openSession(`${url}/office`, BUILD, "build-agent", "4.2.0");
  const codex = withoutSession(url, LAPTOP, "codex-mcp-client", "0.61.0");
  await claude("weather__forecast", { place: "Mainz", days: 3 });
  await claude("notes__search_notes", { query: "garden" });
  await claude("notes__read_note", { name: "Ideas for the garden" });
  await cursor("tickets__find_tickets", { query: "export" });
  await cursor("tickets__get_ticket", { number: 214 });
  await build("tickets__find_tickets", { query: "label:release" });
  await codex("files__search_files", { words: "apple" });
  await codex("files__read_text_file", { path: "garden/trees.md" });
  await codex("files__read_file", { path: "garden/trees.md" });
  await cursor("tickets__assign_ticket", { number: 214, person: "grace" });
  await cursor("tickets__create_ticket", { project: "shop", title: "Export fails for long names" });
  await build("tickets__get_ticket", { number: 198 });
  await claude("weather__conditions", { place: "Mainz" });
  await claude("weather__warnings", { region: "Hessen" });
  // It ends with the gateway.
  codex("weather__watch_storm", { region: "Hessen", ms: 600_000 }).catch(() => {});
}
