// Reads a form as JSON, and JSON whose numbers keep their digits. Unset, an empty text and null stay apart. fill.js fills forms.

import { all, find, kids, own } from "./dom.js";
import { why } from "./requests.js";

/** A number as it was written. */
export class Num {
  /** @param {string} text */
  constructor(text) { this.text = text; }
}

/** @param {string} text @returns {any} */
export const parse = (text) => JSON.parse(text, /** @type {any} */ ((/** @type {string} */ _, /** @type {any} */ value, /** @type {any} */ context) =>
  typeof value === "number" ? new Num(context?.source ?? String(value)) : value));

/** @param {any} value @param {string} [indent] @returns {string} */
export function toText(value, indent) {
  if (value instanceof Num) return value.text;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const inner = indent === undefined ? undefined : `${indent}  `;
  const list = Array.isArray(value);
  const parts = list ? value.map((item) => toText(item, inner))
    : Object.entries(value).map(([name, item]) => `${JSON.stringify(name)}:${indent === undefined ? "" : " "}${toText(item, inner)}`);
  const [open, close] = list ? "[]" : "{}";
  if (!parts.length) return open + close;
  return inner === undefined ? open + parts.join(",") + close : `${open}\n${inner}${parts.join(`,\n${inner}`)}\n${indent}${close}`;
}

/** @typedef {import("./dom.js").FieldError} FieldError */
/** @param {Element} node */
const rows = (node) => all(node, ":scope > .kids > .rowf");
/** @param {Element} row */
const item = (row) => own(row, "[data-f]");

/** Shows the parts of a field that its state and its variant leave. @param {HTMLElement} node */
export function sync(node) {
  const state = own(node, "select[data-state]");
  node.toggleAttribute("data-off", !!state && state.value !== "value");
  const variant = own(node, ".kids > select[data-variant]");
  if (variant) kids(node).forEach((kid, at) => { kid.hidden = at !== Number(variant.value); });
}

/** The value of a field as JSON, or undefined if it is unset. @param {HTMLElement} node @param {FieldError[]} errors @returns {string | undefined} */
export function readField(node, errors) {
  const { f: kind, required } = node.dataset;
  const fail = (/** @type {string} */ text) => { errors.push({ node, text }); return undefined; };
  const raw = own(node, "textarea[data-raw]");
  const state = own(node, "select[data-state]")?.value ?? "value";
  let text;
  if (raw) text = readJson(raw.value, fail);
  else if (state === "null") return "null";
  else if (state === "value") text = readValue(node, kind || "", errors, fail);
  if (text === undefined && required !== undefined && !errors.some((error) => node.contains(error.node))) fail("This is required.");
  return text;
}

/** @param {string} text @param {(text: string) => undefined} fail */
function readJson(text, fail) {
  if (!text.trim()) return undefined;
  try {
    return toText(parse(text));
  } catch (error) {
    return fail(`This is not valid JSON: ${why(error)}`);
  }
}

/** @param {HTMLElement} node @param {string} kind @param {FieldError[]} errors @param {(text: string) => undefined} fail */
function readValue(node, kind, errors, fail) {
  const control = find(node, "[data-v]");
  switch (kind) {
    case "text": return within(node, [...control.value].length, " characters", fail) && JSON.stringify(control.value);
    case "number": case "integer": return readNumber(node, control.value.trim(), kind, fail);
    case "choice": {
      const chosen = control.type === "radio" ? find(node, "[data-v]:checked")?.value : control.value;
      return chosen || undefined;
    }
    case "json": return readJson(control.value, fail);
    case "variants": {
      const chosen = kids(node)[Number(own(node, ".kids > select[data-variant]").value)];
      return readField(chosen, errors);
    }
    case "list": {
      const items = rows(node).map((row) => {
        const [field, before] = [item(row), errors.length];
        const text = readField(field, errors);
        if (text === undefined && errors.length === before) errors.push({ node: field, text: "Fill this in, or remove it." });
        return text;
      });
      return within(node, items.length, " items", fail) && `[${items.join(",")}]`;
    }
    default: return readMembers(node, kind, errors, fail);
  }
}

/** @param {HTMLElement} node @param {string} text @param {string} kind @param {(text: string) => undefined} fail */
function readNumber(node, text, kind, fail) {
  if (!text) return undefined;
  if (!/^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(text)) return fail("This is not a number.");
  const number = Number(text);
  if (kind === "integer" && !Number.isInteger(number)) return fail("This is not a whole number.");
  const { above, below } = node.dataset;
  if (above && number <= Number(above)) return fail(`Must be more than ${above}.`);
  if (below && number >= Number(below)) return fail(`Must be less than ${below}.`);
  return within(node, number, "", fail) && text;
}

/** @param {HTMLElement} node @param {number} size @param {string} unit @param {(text: string) => undefined} fail */
function within(node, size, unit, fail) {
  const { least, most } = node.dataset;
  if (least && size < Number(least)) return fail(`At least ${least}${unit}.`);
  if (most && size > Number(most)) return fail(`At most ${most}${unit}.`);
  return true;
}

/** @param {HTMLElement} node @param {string} kind @param {FieldError[]} errors @param {(text: string) => undefined} fail */
function readMembers(node, kind, errors, fail) {
  /** @type {[string, string | undefined][]} */
  const members = kind === "map" ? rows(node).map((row) => [find(row, "[data-key]").value, readField(item(row), errors)])
    : kids(node).map((kid) => [kid.dataset.name || "", readField(kid, errors)]);
  const rest = own(node, ".kids > .rest textarea")?.value.trim();
  if (rest) {
    const text = readJson(rest, fail);
    const more = text === undefined ? {} : parse(text);
    if (typeof more !== "object" || Array.isArray(more) || more === null) return fail("The other members must be a JSON object.");
    for (const [name, value] of Object.entries(more)) members.push([name, toText(value)]);
  }
  const set = members.filter(([, text]) => text !== undefined);
  if (new Set(set.map(([name]) => name)).size < set.length) return fail("A name is used twice.");
  return `{${set.map(([name, text]) => `${JSON.stringify(name)}:${text}`).join(",")}}`;
}
