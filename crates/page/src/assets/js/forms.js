// Forms that change the config: settings, keys, new servers. What the API refuses stands beside its field.

import { say, showFailure } from "./actions.js";
import { clearErrors, showErrors } from "./arguments.js";
import { all, byId, find, on } from "./dom.js";
import { go } from "./navigate.js";
import { fetchPart, send, why } from "./requests.js";
import { element } from "./result.js";

/** The value that a field began with. @param {any} field */
const before = (field) => field.options ? ([...field.options].find((option) => option.defaultSelected) || field.options[0]).value : field.defaultValue;

/** What a form says, as the API wants it. @param {HTMLFormElement} form */
function bodyOf(form) {
  /** @type {Record<string, any>} */
  const body = {};
  for (const field of /** @type {any} */ (form.elements)) {
    const { name, value, disabled, dataset } = field;
    const isSame = form.dataset.changed === undefined ? value?.trim() === "" : value === before(field);
    if (!name || disabled || isSame) continue;
    body[name] = value === "" ? null : dataset.list === undefined ? value : value.split(/[\s,]+/).filter(Boolean);
  }
  for (const pair of all(form, ".pair")) {
    const [name, value] = all(pair, "input");
    if (name.value.trim()) (body.headers ??= {})[name.value.trim()] = value.value;
  }
  const [name, command] = [find(form, "[data-server]"), find(form, "[data-command]")];
  if (command) body.text = `moongate mcp add ${name.value.trim()} -- ${command.value}`;
  const given = all(form, "input[data-arg]").map((field) => field.value);
  return given.length ? { ...body, args: given } : body;
}

/** Shows a refusal at the fields that it names, or else above. @param {HTMLFormElement} form @param {any} error */
function showRefusal(form, error) {
  const texts = [...(error.answer?.problems || []).map((/** @type {any} */ { message, hint }) => (hint ? `${message}; ${hint}` : message)), why(error)];
  const named = all(form, "[name]").flatMap((field) => {
    const text = texts.find((text) => new RegExp(`\\b${field.name}\\b`).test(text));
    return text ? [{ node: field.closest(".f") || form, text }] : [];
  });
  if (named.length) showErrors(named);
  else showFailure(why(error), error);
}

/** A key is shown once. Nothing keeps it when the dialog closes. @param {any} answer */
function showKey(answer) {
  const dialog = byId("newkey");
  const code = find(dialog, "code");
  code.textContent = answer.key;
  find(dialog, "[data-first]").hidden = !answer.first_key;
  dialog.addEventListener("close", () => { code.textContent = ""; }, { once: true });
  dialog.showModal();
}

/** Sends a form, and keeps what was typed if it is refused. @param {HTMLFormElement} form @param {string} path @param {string} method @param {unknown} body */
async function submit(form, path, method, body) {
  clearErrors(form);
  showFailure("");
  const button = find(form, "button:not([type])");
  button.disabled = true;
  try {
    return await (await send(path, method, JSON.stringify(body))).json();
  } catch (error) {
    showRefusal(form, error);
  } finally {
    button.disabled = false;
  }
}

/** @param {HTMLFormElement} form */
async function save(form) {
  const { under, done, method, changed } = form.dataset;
  const body = bodyOf(form);
  if (changed !== undefined && !Object.keys(body).length) return say("Nothing has changed.");
  const answer = await submit(form, form.dataset.send || "", method || "POST", under ? { [under]: body } : body);
  if (!answer) return;
  // What was saved is where the next change begins. The reset lets an undo show.
  if (changed !== undefined) for (const field of /** @type {any} */ (form.elements)) {
    if (field.options) for (const option of field.options) option.defaultSelected = option.selected;
    else field.defaultValue = field.value;
  }
  form.reset();
  if (answer.key) showKey(answer);
  say(done || "Done.", answer.undo ? answer.etag : undefined);
}

/** Servers that the preview shows, as they were asked for. @type {Record<string, any>} */
let shown = {};
let latest = 0, typing = 0;

/** Shows what would be added. Nothing is written. @param {HTMLFormElement} form @param {boolean} probe */
async function preview(form, probe) {
  const [mine, place, body] = [++latest, byId("preview"), bodyOf(form)];
  clearTimeout(typing);
  if (!Object.keys(body).length) return place.replaceChildren();
  place.ariaBusy = "true";
  if (probe) place.replaceChildren(element("p", "Connecting to the server…", "soft"));
  showFailure("");
  try {
    const part = await fetchPart("/parts/preview", JSON.stringify({ ...body, probe }));
    if (mine !== latest || !part) return;
    place.replaceChildren(part);
    shown = body;
    count();
  } catch (error) {
    if (mine === latest) showFailure(why(error));
  }
  if (mine === latest) place.ariaBusy = null;
}

/** The names that are chosen, each with the one that it gets. */
const chosen = () => all(document, "#preview [data-name]").flatMap((row) => {
  const [box, name] = all(row, "input");
  return box?.checked ? [[row.dataset.name, name.value.trim()]] : [];
});

function count() {
  const button = find(document, "#preview [data-count]");
  if (button) [button.disabled, button.textContent] = [!chosen().length, chosen().length === 1 ? "Add" : `Add ${chosen().length}`];
}

/** Writes the difference anew, as the boxes and the names say. */
async function showDiff() {
  const mine = latest;
  const part = chosen().length ? await fetchPart("/parts/preview", JSON.stringify({ ...shown, ...choice() })).catch(() => null) : null;
  const place = find(document, "#preview .diff");
  if (place && mine === latest) place.textContent = part && find(part, ".diff")?.textContent;
}

/** What the boxes and the names say, as the API wants it. */
function choice() {
  const all = chosen();
  return { only: all.map(([old]) => old), names: Object.fromEntries(all.filter(([old, name]) => name && name !== old)) };
}

/** @param {HTMLFormElement} form */
async function add(form) {
  const { only, names } = choice();
  const answer = await submit(form, "/api/v1/servers", "POST", { from: shown, only, names });
  if (!answer) return;
  const added = only.map((old) => names[old] || old);
  shown = {};
  await go(added.length === 1 ? `/servers/${encodeURIComponent(added[0])}` : "/");
  say(`${added.join(", ")} ${added.length === 1 ? "is" : "are"} added.`, answer.undo ? answer.etag : undefined);
}

/** Looks at once where the address says what at. */
function begin() {
  const form = find(document, "form[data-preview][data-now]");
  if (form) preview(form, true);
}

export function startForms() {
  on("submit", (form, event) => {
    const { send, preview: looks, add: adds } = form.dataset;
    if (send) save(form);
    else if (looks !== undefined) preview(form, true);
    else if (adds !== undefined) add(form);
    else if (form.dataset.build === undefined) return;
    event.preventDefault();
  });
  on("input", (field) => {
    if (field.closest("#preview")) {
      const beginning = find(field.parentElement, "code[data-after]");
      if (beginning && field.type !== "checkbox") beginning.textContent = field.value.trim() + beginning.dataset.after;
      count();
      clearTimeout(typing);
      typing = setTimeout(showDiff, 250);
    }
    const build = field.closest("[data-build]");
    if (build) {
      const [name, command] = [find(build, "[data-server]"), find(build, "[data-command]")].map((one) => one.value || one.placeholder);
      find(build.parentElement, ".code pre").textContent = `moongate add ${name} -- ${command}`;
    }
    if (!field.matches("[data-live]")) return;
    clearTimeout(typing);
    typing = setTimeout(preview, 250, field.form, false);
  });
  on("click", (target) => {
    const pair = target.closest("[data-more]")?.previousElementSibling;
    if (!pair) return;
    const fresh = pair.cloneNode(true);
    for (const field of all(fresh, "input")) field.value = "";
    pair.after(fresh);
    find(fresh, "input").focus();
  });
  on("shown", begin);
  begin();
}
