//! Buttons that call the API.
//!
//! Owns their markup. Does not send requests (`assets/js/actions.js`) or switch tools
//! (`switch.rs`). Invariant: without scripts no button is drawn.

use maud::{Markup, html};

use super::text::show_invisible;

/// Renders a button that sends a request without a body. `key`: the key that presses it.
pub(super) fn post_button(label: &str, url: &str, done: &str, key: Option<&str>) -> Markup {
    html! {
        button type="button" class="btn js-only" data-action=(url) data-method="POST"
            data-done=(done) data-key=[key] { (label) }
    }
}

/// Renders a button that starts a login at a server, in a new tab.
pub(super) fn login_button(label: &str, url: &str) -> Markup {
    html! { button type="button" class="btn js-only" data-login=(url) { (label) } }
}

/// Button that changes the config or a login.
pub(super) struct ConfigButton<'a> {
    pub(super) label: &'a str,
    pub(super) method: &'a str,
    pub(super) url: String,
    pub(super) body: Option<String>,
    pub(super) done: String,
    /// Question and verb of the dialog that comes first.
    pub(super) confirm: Option<(String, &'a str)>,
}

impl ConfigButton<'_> {
    /// Renders the button.
    pub(super) fn draw(&self) -> Markup {
        self.draw_with(None)
    }

    /// Renders a button whose dialog asks for this text to be typed.
    pub(super) fn draw_typed(&self, typed: &str) -> Markup {
        self.draw_with(Some(typed))
    }

    fn draw_with(&self, typed: Option<&str>) -> Markup {
        let (question, verb) = self
            .confirm
            .as_ref()
            .map(|(question, verb)| (show_invisible(question), *verb))
            .unzip();
        html! {
            button type="button" class="btn js-only" data-action=(self.url) data-method=(self.method) data-body=[self.body.as_ref()]
                data-done=(show_invisible(&self.done)) data-confirm=[question] data-typed=[typed] data-verb=[verb] { (self.label) }
        }
    }
}
