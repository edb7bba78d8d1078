//! Pages for logins that cannot continue.
//!
//! Owns their layout and the link back to the client. Does not word them. Invariant: an error
//! reaches a client only if the person presses the link, so no request makes the gateway redirect.

use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use url::Url;

use crate::page_frame::{VisibleText, page_response};
use crate::page_headers::PageKind;

/// Builds a page that says why a login cannot continue. `back` is the redirect address with the
/// error.
pub(crate) fn error_page(title: &'static str, text: &str, back: Option<&str>) -> Response {
    refusal_page(StatusCode::BAD_REQUEST, title, text, back)
}

/// Builds such a page with a status.
pub(crate) fn refusal_page(
    status: StatusCode,
    title: &'static str,
    text: &str,
    back: Option<&str>,
) -> Response {
    let body = html! {
        h1 { (title) }
        p { (VisibleText(text)) }
        @if let Some(back) = back { (back_link(back)) }
    };
    page_response(status, PageKind::Plain, title, body)
}

/// Renders the link that reports the error to the client.
pub(crate) fn back_link(back: &str) -> Markup {
    // The host is the part that a person can judge.
    let url = Url::parse(back).ok();
    let host = url
        .as_ref()
        .filter(|url| url.scheme() == "https")
        .and_then(Url::host_str);
    html! {
        p class="soft" { "The program is still waiting. The button reports the result to it." }
        div class="row" {
            a class="button" href=(back) {
                @match host {
                    Some(host) => { "Return to " (VisibleText(host)) }
                    None => { "Return to the program" }
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
    async fn an_error_never_moves_on_by_itself() {
        let back = "https://claude.ai/cb?error=access_denied&iss=x";
        let response = error_page("No access", "You said no.", Some(back));
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        assert!(!response.headers().contains_key(header::LOCATION));
        assert!(!response.headers().contains_key(header::REFRESH));
        let page = html_of(response).await;
        assert!(!page.contains("http-equiv"), "{page}");
        assert!(page.contains("href=\"https://claude.ai/cb?error=access_denied&amp;iss=x\""));
        assert!(page.contains("Return to claude.ai"));
    }

    #[tokio::test]
    async fn foreign_words_are_never_markup() {
        let page = html_of(error_page("No", "<img src=x>\u{202e}", None)).await;
        assert!(page.contains("&lt;img src=x&gt;⟨U+202E⟩"), "{page}");
        assert!(!page.contains("<a "), "there is nowhere to return to");
    }

    #[test]
    fn the_link_names_a_host_on_the_web_alone() {
        for (back, words) in [
            ("https://claude.ai@evil.test/cb", "Return to evil.test"),
            ("http://127.0.0.1:7000/cb", "Return to the program"),
            ("cursor://a.b/cb", "Return to the program"),
        ] {
            let link = back_link(back).into_string();
            assert!(link.contains(words), "{link}");
        }
    }
}
