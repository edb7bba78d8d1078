// Calls a tool from its form, one at a time: progress, log, its server's questions.

import { showFailure } from "./actions.js";
import { clearErrors, keep, readArguments, showErrors } from "./arguments.js";
import { all, find } from "./dom.js";
import { readField, sync } from "./form.js";
import { fetchPart, send, why } from "./requests.js";
import { element, showResult } from "./result.js";

const LINES_MAX = 200;
/** @type {{ section: HTMLElement, id: string, stop: AbortController } | null} */
let running = null;

/** @param {ReadableStream<Uint8Array>} body */
async function* readEvents(body) {
  const reader = body.pipeThrough(/** @type {any} */ (new TextDecoderStream())).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop() || "";
    for (const part of parts) {
      const found = /^event: (\w+)\ndata: (.*)$/s.exec(part);
      if (found) yield { kind: found[1], data: JSON.parse(found[2]) };
    }
  }
}

/** @param {HTMLElement} out @param {string} kind @param {any} data */
async function onEvent(out, kind, data) {
  if (kind === "started" && running) running.id = data.id;
  if (kind === "progress") {
    const bar = find(out, "progress");
    bar.hidden = false;
    if (data.total > 0) [bar.max, bar.value] = [data.total, data.progress];
    else bar.removeAttribute("value");
    find(out, "[data-message]").replaceChildren(element("span", `${data.progress}${data.total ? ` of ${data.total}` : ""} ${data.message ?? ""}`));
  }
  if (kind === "log") {
    const lines = find(out, "[data-log]");
    const text = typeof data.data === "string" ? data.data : JSON.stringify(data.data);
    lines.append(element("li", `${data.level ?? "log"}${data.logger ? ` (${data.logger})` : ""}: ${text}`.slice(0, 4000)));
    if (lines.children.length > LINES_MAX) lines.firstElementChild.remove();
  }
  if (kind === "ask") {
    const part = await fetchPart(`/parts/try/${running?.id}/${data.ask}`);
    if (part) find(out, "[data-asks]").append(part);
    if (part) all(part, "[data-f]").forEach(sync);
    find(out, "[data-asks]").lastElementChild?.querySelector("input, textarea, select, a, button")?.focus();
  }
  if (kind === "done") showEnd(out, data);
}

/** @param {HTMLElement} out @param {any} data */
function showEnd(out, data) {
  const words = /** @type {Record<string, string>} */ ({ ok: "Done", tool_error: "The tool reported an error", error: "Error", cancelled: "Stopped" });
  const time = `${data.ms < 10 ? data.ms.toFixed(1) : Math.round(data.ms)} ms${data.own_ms === null ? "" : ` (${data.own_ms.toFixed(1)} in the gateway)`}`;
  const status = find(out, "[data-status]");
  status.textContent = `${words[data.outcome]}, ${time}${data.bytes === undefined ? "" : `, ${data.bytes} bytes`}`;
  status.className = data.outcome === "ok" ? "green" : "red";
  for (const gone of ["progress", "[data-message]"]) find(out, gone).hidden = true;
  find(out, "[data-asks]").replaceChildren();
  const place = find(out, "[data-result]");
  place.className = data.outcome === "tool_error" ? "failed" : "";
  if (data.error) place.append(element("pre", data.error, "red"));
  if (data.result) showResult(place, data.result);
  status.scrollIntoView({ block: "nearest" });
}

/** @param {HTMLElement} section */
export async function call(section) {
  const text = readArguments(section, true);
  if (text === undefined || running) return;
  keep(section);
  const out = find(section, "[data-out]");
  out.replaceChildren(find(section, "template[data-fresh]").content.cloneNode(true));
  out.hidden = false;
  const stop = new AbortController();
  running = { section, id: "", stop };
  find(section, "[data-call]").disabled = true;
  find(section, "[data-stop]").hidden = false;
  showFailure("");
  const { server, tool } = section.dataset;
  const body = `{"server":${JSON.stringify(server)},"tool":${JSON.stringify(tool)},"arguments":${text}}`;
  const began = performance.now();
  let ended = false;
  try {
    const response = await send("/api/v1/try", "POST", body, stop.signal);
    for await (const { kind, data } of readEvents(/** @type {any} */ (response.body))) {
      await onEvent(out, kind, data);
      ended ||= kind === "done";
    }
    if (!ended) throw new Error("The stream of this call was cut off, so it is not known whether the tool ran.");
  } catch (error) {
    const left = stop.signal.aborted;
    if (!ended) showEnd(out, { outcome: left ? "cancelled" : "error", ms: performance.now() - began, own_ms: null, error: !left && why(error) });
  } finally {
    running = null;
    find(section, "[data-call]").disabled = false;
    find(section, "[data-stop]").hidden = true;
  }
}

/** Stops the call: by its id, or by leaving its stream. */
export async function stopCall() {
  if (!running) return;
  const { id, stop } = running;
  const stopped = id && (await send(`/api/v1/try/${id}`, "DELETE").then(() => true, () => false));
  if (!stopped) stop.abort();
}

/** Leaves a call whose view is gone. */
export function leaveCall() {
  if (running && !running.section.isConnected) running.stop.abort();
}

/** Sends the answer of a person. @param {HTMLFormElement} form @param {string} action */
export async function answer(form, action) {
  clearErrors(form);
  let content = "";
  const root = find(form, "[data-f]");
  if (action === "accept" && root) {
    /** @type {import("./dom.js").FieldError[]} */
    const errors = [];
    const text = readField(root, errors);
    if (text === undefined || errors.length) return showErrors(errors);
    content = `,"content":${text}`;
  }
  const body = `{"ask":${JSON.stringify(form.dataset.ask)},"action":"${action}"${content}}`;
  try {
    await send(`/api/v1/try/${form.dataset.call}/answer`, "POST", body);
    form.replaceWith(element("p", { accept: "Answered.", decline: "Declined." }[action] ?? "Cancelled.", "soft"));
  } catch (error) {
    showFailure(`Answer: ${why(error)}`);
  }
}
