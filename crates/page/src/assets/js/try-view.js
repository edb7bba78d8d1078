// Controls of the view that tries a tool.

import { keep, setMode } from "./arguments.js";
import { all, find, on, own } from "./dom.js";
import { addRow, writeField } from "./fill.js";
import { parse, sync } from "./form.js";
import { answer, call, leaveCall, stopCall } from "./try.js";

/** @param {Element} from @param {string} selector @returns {any} */
const above = (from, selector) => from.closest(selector);

/** Prepares a view that was just shown: its fields, and what was typed before in this tab. */
export function prepare() {
  leaveCall();
  const section = find(document, "[data-try]:not([data-ready])");
  if (!section) return;
  section.dataset.ready = "";
  all(section, "[data-f]").forEach(sync);
  try {
    const text = sessionStorage.getItem(section.id);
    if (text) writeField(find(section, "[data-root] > [data-f]"), parse(text));
  } catch { /* Storage may be off; then the form is empty. */ }
  keep(section);
}

/** @param {Element} target */
function onClick(target) {
  const button = above(target, "button");
  if (!button) return;
  const field = above(button, "[data-f]");
  const section = above(button, "[data-try]");
  if (button.matches("[data-add]")) {
    const state = own(field, "select[data-state]");
    if (state) state.value = "value";
    sync(field);
    find(addRow(field), "input, textarea, select")?.focus();
  } else if (button.matches("[data-del]")) {
    const list = above(button.parentElement, "[data-f=list], [data-f=map]");
    button.parentElement.remove();
    list.querySelector(":scope > [data-add]").focus();
  } else if (button.matches("[data-use]")) writeField(field, parse(button.dataset.use));
  else if (button.matches("[data-mode]")) setMode(section, button.dataset.mode === "json");
  else if (button.matches("[data-stop]")) stopCall();
  else if (button.matches("[data-answer]")) answer(button.form, button.dataset.answer);
  else return;
  if (section) keep(section);
}

export function startTry() {
  on("click", onClick);
  on("submit", (form, event) => {
    if (form.matches("[data-ask]")) answer(form, "accept");
    else if (form.matches("[data-try-form]")) call(above(form, "[data-try]"));
    else return;
    event.preventDefault();
  });
  for (const kind of ["input", "change"]) {
    on(kind, (control) => {
      const field = above(control, "[data-f]");
      const section = above(control, "[data-try]");
      if (field && control.matches("[data-v]")) {
        // Who types a value wants it to be sent. An emptied number is unset.
        const state = field.querySelector(":scope > select[data-state]");
        if (state) state.value = control.value === "" && field.dataset.f !== "text" ? "unset" : "value";
      }
      // A box of JSON holds until the form is used again.
      if (!control.matches("[data-raw]")) for (let node = field; node; node = above(node.parentElement, "[data-f]")) own(node, "textarea[data-raw]")?.remove();
      if (field) sync(field);
      if (section && kind === "change") keep(section);
    });
  }
  on("keydown", (target, event) => {
    const form = above(target, "form[data-try-form], form[data-ask]");
    if (form && event.key === "Enter" && (event.metaKey || event.ctrlKey)) form.requestSubmit();
  });
  on("shown", prepare);
  prepare();
}
