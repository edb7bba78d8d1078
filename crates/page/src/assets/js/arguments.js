// Arguments of a call, as a form or as JSON, with errors beside their fields.

import { all, find, unfold } from "./dom.js";
import { writeField } from "./fill.js";
import { parse, readField, toText } from "./form.js";
import { why } from "./requests.js";
import { element } from "./result.js";

/** @param {Element} section */
const isJson = (section) => !find(section, "[data-json]").hidden;

/** Shows what is wrong beside its field. @param {import("./dom.js").FieldError[]} errors */
export function showErrors(errors) {
  for (const { node, text } of errors) {
    const note = element("p", text, "err red");
    note.id = `err-${Math.random().toString(36).slice(2)}`;
    const control = find(node, "input, textarea, select");
    control?.setAttribute("aria-invalid", "true");
    control?.setAttribute("aria-describedby", note.id);
    node.append(note);
    unfold(node);
  }
  const first = errors[0] && find(errors[0].node, "input, textarea, select");
  first?.focus();
}

/** @param {Element} place */
export function clearErrors(place) {
  place.querySelectorAll(".err").forEach((note) => note.remove());
  place.querySelectorAll("[aria-invalid]").forEach((control) => control.removeAttribute("aria-invalid"));
}

/** The arguments as JSON, or undefined if they are wrong. @param {HTMLElement} section @param {boolean} aloud */
export function readArguments(section, aloud) {
  /** @type {import("./dom.js").FieldError[]} */
  const errors = [];
  let text;
  if (isJson(section)) {
    try {
      text = toText(parse(find(section, "[data-json] textarea").value || "{}"));
      if (!text.startsWith("{")) throw new Error("the arguments must be an object");
    } catch (error) {
      text = undefined;
      errors.push({ node: find(section, "[data-json]"), text: `This is not valid JSON: ${why(error)}` });
    }
  } else {
    text = readField(find(section, "[data-root] > [data-f]"), errors);
  }
  if (aloud) {
    clearErrors(section);
    showErrors(errors);
  }
  return errors.length ? undefined : text;
}

/** @param {HTMLElement} section @param {boolean} json */
export function setMode(section, json) {
  const form = find(section, "[data-root]");
  const box = find(section, "[data-json] textarea");
  if (json !== isJson(section)) {
    if (json) {
      box.value = toText(parse(readField(find(form, ":scope > [data-f]"), []) ?? "{}"), "");
    } else {
      const text = readArguments(section, true);
      if (text === undefined) return;
      writeField(find(form, ":scope > [data-f]"), parse(text));
    }
  }
  form.hidden = json;
  find(section, "[data-json]").hidden = !json;
  for (const button of all(section, "[data-mode]")) button.ariaPressed = String((button.dataset.mode === "json") === json);
}

/** Keeps the arguments for this tab, and writes the lines that repeat the call. @param {HTMLElement} section */
export function keep(section) {
  const text = readArguments(section, false);
  if (text === undefined) return;
  for (const line of all(section, "[data-before]")) {
    const { before, after } = line.dataset;
    line.textContent = before + text.replaceAll("'", "'\\''") + after;
  }
  try {
    sessionStorage.setItem(section.id, text);
  } catch { /* Storage may be off or full; then a reload starts empty. */ }
}
