// Short ways to elements.

/** @param {ParentNode} place @param {string} selector @returns {any} */
export const find = (place, selector) => place.querySelector(selector);
/** @param {ParentNode} place @param {string} selector @returns {any[]} */
export const all = (place, selector) => [...place.querySelectorAll(selector)];
/** Listens on the whole page. @param {string} type @param {(target: any, event: any) => void} then */
export const on = (type, then) => document.addEventListener(type, (event) => then(event.target, event));
/** @param {string} id @returns {any} */
export const byId = (id) => document.getElementById(id);
/** @param {Element} node @param {string} selector @returns {any} */
export const own = (node, selector) => find(node, `:scope > ${selector}`);
/** The fields directly inside of a field, also those behind a line. @param {Element} node @returns {HTMLElement[]} */
export const kids = (node) => all(node, ":scope > .kids > [data-f], :scope > .kids > [data-fold] > [data-f]");
/** Opens the line that hides a field. @param {Element} node */
export const unfold = (node) => node.closest("[data-fold]")?.setAttribute("open", "");
/** @typedef {{ node: HTMLElement, text: string }} FieldError */
