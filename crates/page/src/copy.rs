//! Texts to copy, each with its button.
//!
//! Owns their markup. Does not write the texts. Invariant: a button copies the element before it.

use maud::{Markup, html};

use super::text::VisibleText;

/// Renders a button that copies the text before it.
pub(super) fn copy_button(label: &str) -> Markup {
    html! { button type="button" class="copy js-only" data-copy aria-label=(format!("Copy {label}")) { "copy" } }
}

/// Renders lines with their button.
pub(super) fn code_block(words: &str, label: &str) -> Markup {
    html! { div class="code" {
    pre tabindex="0" aria-label=(label) { (VisibleText(words.trim_end())) }
    (copy_button(label)) } }
}
