// Fills a form from JSON. A value that its field cannot show becomes a box of JSON in its place, so that nothing is lost.

import { all, find, kids, own, unfold } from "./dom.js";
import { Num, parse, sync, toText } from "./form.js";

let copies = 0;

/** @param {any} value */
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Num);

/** Adds a row to a list or a map. @param {HTMLElement} node */
export function addRow(node) {
  const row = own(node, "template").content.firstElementChild.cloneNode(true);
  copies += 1;
  for (const radio of all(row, "input[type=radio]")) radio.name += `-${copies}`;
  own(node, ".kids").append(row);
  all(row, "[data-f]").forEach(sync);
  return row;
}

/** True if a field can show a value. @param {HTMLElement} node @param {any} value @returns {boolean} */
function fits(node, value) {
  if (value === null && node.dataset.null !== undefined) return true;
  const control = find(node, "[data-v]");
  switch (node.dataset.f) {
    case "text":
      if (typeof value !== "string") return false;
      if (control.type === "date") return /^\d{4}-\d\d-\d\d$/.test(value);
      return control.nodeName === "TEXTAREA" || !/[\r\n]/.test(value);
    case "number": case "integer": return value instanceof Num;
    case "choice": return choiceOf(node, value) !== undefined;
    case "json": return true;
    case "variants": return kids(node).some((kid) => fits(kid, value));
    case "list": return Array.isArray(value);
    case "map": return isObject(value);
    default: return isObject(value) && kids(node).every((kid) => {
      const member = value[kid.dataset.name || ""];
      return member === undefined ? kid.dataset.required === undefined : kid.closest("[data-f=variants]") === null || fits(kid, member);
    });
  }
}

/** @param {HTMLElement} node @param {any} value @returns {any} */
const choiceOf = (node, value) => all(node, "[data-v] option, input[data-v]")
  .find((option) => option.value && toText(parse(option.value)) === toText(value));

/** The field for an object: this one, or the variant that shares most members. @param {HTMLElement} node @param {any} value @returns {HTMLElement | undefined} */
function objectOf(node, value) {
  if (node.dataset.f === "object") return node;
  const shared = (/** @type {HTMLElement} */ kid) => kids(kid).filter((one) => Object.hasOwn(value, one.dataset.name || "")).length;
  const objects = node.dataset.f === "variants" ? kids(node).filter((kid) => kid.dataset.f === "object") : [];
  return objects.sort((one, other) => shared(other) - shared(one))[0];
}

/** @param {HTMLElement} node @param {string} text */
function showRaw(node, text) {
  const box = document.createElement("textarea");
  box.className = "in mono";
  box.dataset.raw = "";
  box.value = text;
  box.setAttribute("aria-label", `${node.dataset.name || "value"} as JSON`);
  node.append(box);
}

/** Shows a value, or nothing for undefined. @param {HTMLElement} node @param {any} value */
export function writeField(node, value) {
  own(node, "textarea[data-raw]")?.remove();
  const state = own(node, "select[data-state]");
  const isNull = value === null && node.dataset.null !== undefined && state;
  if (state) state.value = value === undefined ? "unset" : isNull ? "null" : "value";
  if (!isNull) {
    // An object that lacks a member is shown all the same: its form says what is missing.
    if (value === undefined || fits(node, value) || (isObject(value) && objectOf(node, value))) writeValue(node, value);
    else showRaw(node, toText(value));
  }
  sync(node);
}

/** @param {HTMLElement} node @param {any} value */
function writeValue(node, value) {
  const control = find(node, "[data-v]");
  switch (node.dataset.f) {
    case "text": control.value = value ?? ""; break;
    case "number": case "integer": control.value = value?.text ?? ""; break;
    case "json": control.value = value === undefined ? "" : toText(value, ""); break;
    case "choice": {
      for (const radio of all(node, "input[data-v]")) radio.checked = radio.value === "" && value === undefined;
      const option = value === undefined ? undefined : choiceOf(node, value);
      if (control.nodeName === "SELECT") control.value = option?.value ?? "";
      else if (option) option.checked = true;
      break;
    }
    case "variants": {
      const variants = kids(node);
      const at = value === undefined ? 0 : variants.indexOf(variants.find((kid) => fits(kid, value)) || /** @type {HTMLElement} */ (objectOf(node, value)));
      own(node, ".kids > select[data-variant]").value = String(at);
      variants.forEach((kid, other) => writeField(kid, other === at ? value : undefined));
      break;
    }
    case "list": case "map": {
      own(node, ".kids").replaceChildren();
      for (const [name, one] of Object.entries(value ?? {})) {
        const row = addRow(node);
        const key = own(row, "label [data-key]");
        if (key) key.value = name;
        writeField(own(row, "[data-f]"), one);
      }
      break;
    }
    default: writeMembers(node, value ?? {});
  }
}

/** @param {HTMLElement} node @param {any} value */
function writeMembers(node, value) {
  const fields = kids(node);
  for (const kid of fields) {
    const member = Object.hasOwn(value, kid.dataset.name || "") ? value[kid.dataset.name || ""] : undefined;
    writeField(kid, member);
    if (member !== undefined) unfold(kid);
  }
  const known = new Set(fields.map((kid) => kid.dataset.name));
  const rest = Object.entries(value).filter(([name]) => !known.has(name));
  const box = own(node, ".kids > .rest");
  if (!box) return;
  if (rest.length) box.hidden = false;
  box.querySelector("textarea").value = rest.length ? toText(Object.fromEntries(rest), "") : "";
}
