// Shows a call's result: all of it as text, and nothing is loaded from elsewhere.

import { Num, parse, toText } from "./form.js";

/** Pictures that browsers draw without running anything. */
const PICTURES = /^image\/(png|jpeg|gif|webp)$/;
const SOUNDS = /^audio\/(wav|x-wav|mpeg|mp3|mp4|aac|ogg|opus|flac|webm)$/;
/** Base64 that can stand in an address. @param {any} data */
const isBase64 = (data) => /^[\w+/=\s-]*$/.test(data);
const SHOWN_MAX = 400_000;
/** Entries of a list or an object that its tree shows. */
const ENTRIES_MAX = 500;

/** Writes out the characters that a reader cannot see. @param {string} text */
export const visible = (text) => text.replace(/[\p{Cf}\p{Cc}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2028\u2029\u3164\ufe00-\ufe0f\uffa0]/gu, (mark) =>
  mark === "\n" || mark === "\t" ? mark : `⟨U+${/** @type {number} */ (mark.codePointAt(0)).toString(16).toUpperCase().padStart(4, "0")}⟩`);

/** @param {string} name @param {string} text @param {string} [style] */
export function element(name, text, style) {
  const made = document.createElement(name);
  made.textContent = visible(text);
  if (style) made.className = style;
  return made;
}

/** @param {string} text @param {string} label */
function box(text, label) {
  const pre = element("pre", text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}\n… (cut)` : text);
  pre.tabIndex = 0;
  pre.setAttribute("role", "region");
  pre.setAttribute("aria-label", label);
  return pre;
}

/** A value as a tree. What is inside of a closed part is made when it is opened. @param {any} value @param {string} [name] @param {number} depth */
function tree(value, name, depth = 0) {
  const label = name === undefined ? [] : [element("b", name), ": "];
  const line = element("div", "", "leaf");
  if (typeof value !== "object" || value === null || value instanceof Num) {
    line.append(...label, element("code", toText(value)));
    return line;
  }
  const [entries, isList] = [Object.entries(value), Array.isArray(value)];
  const size = `${entries.length} ${isList ? "item" : "member"}${entries.length === 1 ? "" : "s"}`;
  const part = /** @type {HTMLDetailsElement} */ (element("details", "", "tree"));
  const head = element("summary", "");
  head.append(...label, element("span", size, "soft"));
  part.append(head);
  part.addEventListener("toggle", () => {
    if (!part.open || part.children.length > 1) return;
    part.append(...entries.slice(0, ENTRIES_MAX).map(([key, inner]) => tree(inner, key, depth + 1)));
    if (entries.length > ENTRIES_MAX) part.append(element("p", `${entries.length - ENTRIES_MAX} more: see raw.`, "soft"));
  });
  part.open = entries.length > 0 && (!depth || (depth < 2 && entries.length <= 20));
  return part;
}

/** A link with its host in bold, if it leads to the web. @param {string} text */
export function link(text) {
  let url;
  try {
    url = new URL(text);
  } catch { /* No address: shown as text. */ }
  if (!url || !/^https?:$/.test(url.protocol)) return element("code", text);
  const made = document.createElement("a");
  made.href = url.href;
  made.target = "_blank";
  made.rel = "noopener noreferrer";
  const at = url.href.indexOf(url.host);
  made.append(visible(url.href.slice(0, at)), element("b", url.host), visible(url.href.slice(at + url.host.length)));
  return made;
}

/** @param {any} block */
function show(block) {
  switch (block?.type) {
    case "text": return box(String(block.text), "Text");
    case "image":
      if (PICTURES.test(block.mimeType) && isBase64(block.data)) {
        const picture = document.createElement("img");
        picture.src = `data:${block.mimeType};base64,${block.data}`;
        picture.alt = `Image from the tool, ${block.mimeType}`;
        return picture;
      }
      return element("p", `Image, ${block.mimeType}: not shown`);
    case "audio": {
      const line = element("p", `Audio, ${block.mimeType}, ${Math.round(String(block.data).length * 0.75)} bytes`);
      if (!SOUNDS.test(block.mimeType) || !isBase64(block.data)) return line;
      const player = document.createElement("audio");
      player.controls = true;
      player.src = `data:${block.mimeType};base64,${block.data}`;
      line.append(document.createElement("br"), player);
      return line;
    }
    case "resource_link": {
      const line = element("p", `${block.title || block.name || "Resource"}: `);
      line.append(link(String(block.uri)));
      return line;
    }
    case "resource": {
      const part = document.createElement("div");
      const { uri, text, mimeType } = block.resource || {};
      const line = element("p", `Resource${mimeType ? `, ${mimeType}` : ""}: `);
      line.append(link(String(uri)));
      part.append(line, text === undefined ? element("p", "This resource has no text.") : box(String(text), "Resource"));
      return part;
    }
    default: return box(toText(block, ""), "Content");
  }
}

/** Shows a result in three ways. @param {HTMLElement} place @param {string} text */
export function showResult(place, text) {
  const result = parse(text);
  const content = Array.isArray(result.content) ? result.content : [];
  const views = document.createElement("div");
  /** @type {[string, () => HTMLElement[]][]} */
  const ways = [["text", () => content.map(show)], ["raw", () => [box(text, "Raw result")]]];
  const structured = result.structuredContent;
  if (structured !== undefined) ways.splice(1, 0, ["structured", () => [tree(structured)]]);
  if (!content.length) ways.shift();
  const chips = element("div", "", "chips");
  for (const [name, draw] of ways) {
    const chip = element("button", name, "chip");
    chip.setAttribute("type", "button");
    chip.addEventListener("click", () => {
      for (const other of chips.querySelectorAll(".chip")) other.setAttribute("aria-pressed", String(other === chip));
      views.replaceChildren(...draw());
    });
    chips.append(chip);
  }
  const copy = element("button", "copy", "copy");
  copy.setAttribute("type", "button");
  copy.setAttribute("aria-label", "Copy the raw result");
  copy.addEventListener("click", () => navigator.clipboard.writeText(text).then(() => { copy.textContent = "copied"; }, () => { copy.textContent = "not allowed"; }));
  chips.append(copy);
  place.append(chips, views);
  /** @type {HTMLElement} */ (chips.firstElementChild).click();
}
