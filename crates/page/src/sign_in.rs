//! Pages in place of all others: the form that asks for an operator's key, the closed page, and the
//! page of a gateway without keys.
//!
//! Owns their HTML. Does not check keys. Invariant: the form has no field with a name, so that no
//! browser puts a key into a URL or a plain request.

use maud::{Markup, html};

use super::frame::{brand, head};

/// Renders the page for a browser that is not let in, where signing in does not help.
pub fn closed_page(message: &str) -> Markup {
    narrow(
        "No access",
        &html! {
            h1 { "You cannot open this page" }
            p { (message) }
        },
    )
}

/// Renders the page without keys: nobody needs to sign in.
pub fn no_keys_page() -> Markup {
    narrow(
        "Sign in",
        &html! {
            h1 { "No sign-in needed" }
            p { "There are no " code { "admin.keys" } ". " a href="/" { "Go to the page" } }
        },
    )
}

/// Renders the form.
pub fn sign_in_page() -> Markup {
    narrow(
        "Sign in",
        &html! {
            h1 { "Sign in" }
            noscript { p class="banner" { "Signing in needs JavaScript." } }
            form id="signin" class="panel form" method="post" {
                label class="f" { span class="cap" { b { "Admin key" } }
                    input class="in" id="key" type="password" autocomplete="current-password" required autofocus;
                }
                div class="row" {
                    button class="btn main" { "Sign in" }
                    span class="soft" { "or run " code { "moongate open" } " on the gateway's \
                        machine" }
                }
            }
            div id="failure" class="banner red" role="alert" hidden {}
            p { "To run commands, put a key from " code { "admin.keys" } " in a variable:" }
            pre { "MOONGATE_ADMIN_KEY=… moongate status" }
        },
    )
}

fn narrow(title: &str, body: &Markup) -> Markup {
    html! {
        (head(title))
        body {
            header { (brand()) }
            main id="main" class="narrow" { (body) }
        }
    }
}
