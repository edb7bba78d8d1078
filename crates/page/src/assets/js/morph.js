// Makes one tree of elements like another, and keeps what the reader has: focus, scroll, open details, typed text.

/** @param {Node} node */
const key = (node) => (node instanceof Element && node.id) || null;

/** @param {Node} from @param {Node} to */
const fits = (from, to) => from.nodeName === to.nodeName && key(from) === key(to);

/** @param {Element} from @param {Element} to */
function morphAttributes(from, to) {
  // While an answer is under way, a switch stands as the reader put it. What its next press sends is as new as the rest.
  const isKept = (/** @type {string} */ name) => from.ariaBusy === "true" && /^aria-(busy|checked)$/.test(name);
  for (const { name } of [...from.attributes]) {
    // The reader opened or closed it, or a script hid it.
    if (to.hasAttribute(name) || (name === "open" && from.nodeName === "DETAILS") || name === "hidden" || isKept(name)) continue;
    from.removeAttribute(name);
  }
  for (const { name, value } of [...to.attributes]) {
    if (from.getAttribute(name) !== value && name !== "open" && !isKept(name)) from.setAttribute(name, value);
  }
}

/** @param {Element} from @param {Element} to */
function morphChildren(from, to) {
  /** @type {Map<string, Node>} */
  const keyed = new Map();
  for (const child of from.childNodes) {
    const id = key(child);
    if (id) keyed.set(id, child);
  }
  let at = from.firstChild;
  for (const wanted of [...to.childNodes]) {
    const id = key(wanted);
    const known = id ? keyed.get(id) : undefined;
    if (known && known.nodeName === wanted.nodeName) {
      if (known === at) at = at.nextSibling;
      else from.insertBefore(known, at);
      keyed.delete(/** @type {string} */ (id));
      morph(known, wanted);
    } else if (at && fits(at, wanted)) {
      const next = at.nextSibling;
      morph(at, wanted);
      at = next;
    } else {
      from.insertBefore(document.importNode(wanted, true), at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    // What was refused stands there until the next try.
    if (!(at instanceof Element && at.matches(".err"))) at.remove();
    at = next;
  }
}

/** @param {Node} from @param {Node} to */
export function morph(from, to) {
  if (from instanceof Element && to instanceof Element) {
    if (from instanceof HTMLInputElement && from === document.activeElement) return;
    if (from.nodeName === "SELECT" && from === document.activeElement) return;
    morphAttributes(from, to);
    morphChildren(from, to);
  } else if (from.nodeValue !== to.nodeValue) {
    from.nodeValue = to.nodeValue;
  }
}
