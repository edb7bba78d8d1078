//! Pages that lead to another site.
//!
//! Owns their text and their button. Does not choose where they lead. Invariant: no response
//! redirects, and an app opens only when the person presses a button.

use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};

use crate::page_frame::{VisibleText, moving_response, page_response};
use crate::page_headers::PageKind;
use crate::redirect_rules::RedirectKind;

/// Title of the pages.
const TITLE: &str = "Continue";

/// Builds a page that leads to a target. `text` says what comes next.
// Not a redirect: Chromium applies `form-action` to every redirect after a form, so the consent
// page's button would do nothing.
pub(crate) fn moving_page(target: &str, kind: &RedirectKind, text: &str) -> Response {
    let body = draw(target, kind, text);
    match kind {
        // RFC 8252, section 8.1: any program can claim a private scheme, so the person decides.
        RedirectKind::Private { .. } => {
            page_response(StatusCode::OK, PageKind::Moving, TITLE, body)
        }
        RedirectKind::Web { .. } | RedirectKind::Loopback => moving_response(TITLE, target, &body),
    }
}

fn draw(target: &str, kind: &RedirectKind, text: &str) -> Markup {
    let hint = match kind {
        RedirectKind::Web { .. } => "If nothing happens, press the button.",
        RedirectKind::Loopback => {
            "If nothing happens, press the button. The program must still be running."
        }
        RedirectKind::Private { .. } => {
            "Press the button. Your browser may ask before it opens the app."
        }
    };
    html! {
        h1 { (VisibleText(text)) }
        p class="soft" { (hint) }
        div class="row" {
            a class="button main" href=(target) {
                @match kind {
                    RedirectKind::Web { host } => { "Continue to " (VisibleText(host)) }
                    RedirectKind::Loopback => { "Continue to the program" }
                    RedirectKind::Private { scheme } => {
                        "Open the " (VisibleText(scheme)) " app"
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::header;

    use crate::page_frame::tests::html_of;

    use super::*;

    #[tokio::test]
    async fn a_private_scheme_opens_by_a_button_alone() {
        let kind = RedirectKind::Private {
            scheme: "cursor".to_owned(),
        };
        let response = moving_page("cursor://a.b/oauth?code=c-1&iss=x", &kind, "Logged in");
        assert_eq!(response.status(), StatusCode::OK);
        assert!(!response.headers().contains_key(header::LOCATION));
        assert!(!response.headers().contains_key(header::REFRESH));
        let page = html_of(response).await;
        assert!(!page.contains("http-equiv"), "{page}");
        assert!(page.contains("href=\"cursor://a.b/oauth?code=c-1&amp;iss=x\""));
        assert!(page.contains("Open the cursor app"));
    }

    #[tokio::test]
    async fn the_web_and_this_computer_open_by_themselves_and_without_a_referrer() {
        for (kind, target) in [
            (
                RedirectKind::Web {
                    host: "claude.ai".to_owned(),
                },
                "https://claude.ai/cb?code=c-1",
            ),
            (RedirectKind::Loopback, "http://127.0.0.1:7000/cb?code=c-1"),
        ] {
            let response = moving_page(target, &kind, "Logged in");
            assert_eq!(response.status(), StatusCode::OK);
            assert!(!response.headers().contains_key(header::LOCATION));
            assert_eq!(response.headers()[header::REFERRER_POLICY], "no-referrer");
            let page = html_of(response).await;
            let refresh = format!("<meta http-equiv=\"refresh\" content=\"0; url={target}\">");
            assert!(page.contains(&refresh), "{page}");
            assert!(page.contains(&format!("href=\"{target}\"")), "{page}");
        }
    }
}
