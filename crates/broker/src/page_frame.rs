//! Frame of the pages that people see while they log in.
//!
//! Owns the document and the display of foreign text. Does not word pages. Invariant: foreign text
//! cannot hide or reorder the words next to it, and is never parsed as markup.

use std::fmt::Write as _;

use axum::body::Body as AxumBody;
use axum::response::Response;
use http::StatusCode;
use maud::{DOCTYPE, Markup, PreEscaped, Render, html};
use moongate_telemetry::plain_text::is_invisible;

use crate::page_headers::{PageKind, STYLE, add_headers};

/// Foreign text, with invisible characters written out.
pub(crate) struct VisibleText<'a>(pub(crate) &'a str);

impl Render for VisibleText<'_> {
    fn render_to(&self, out: &mut String) {
        let mut shown = String::with_capacity(self.0.len());
        for character in self.0.chars() {
            if is_invisible(character) {
                // Writing to a `String` cannot fail.
                let _ = write!(shown, "⟨U+{:04X}⟩", u32::from(character));
            } else {
                shown.push(character);
            }
        }
        shown.render_to(out);
    }
}

/// Builds a page.
pub(crate) fn page_response(
    status: StatusCode,
    kind: PageKind,
    title: &str,
    body: Markup,
) -> Response {
    respond(status, kind, document(title, None, &body))
}

/// Builds a page that opens another address automatically.
pub(crate) fn moving_response(title: &str, target: &str, body: &Markup) -> Response {
    respond(
        StatusCode::OK,
        PageKind::Moving,
        document(title, Some(target), body),
    )
}

fn respond(status: StatusCode, kind: PageKind, page: Markup) -> Response {
    let mut response = Response::new(AxumBody::from(page.into_string()));
    *response.status_mut() = status;
    add_headers(response.headers_mut(), kind);
    response
}

fn document(title: &str, target: Option<&str>, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                @if let Some(target) = target {
                    meta http-equiv="refresh" content=(format!("0; url={target}"));
                }
                title { (title) " · Moongate" }
                style { (PreEscaped(STYLE.as_str())) }
            }
            body {
                main {
                    (brand())
                    div class="card" { (body) }
                }
            }
        }
    }
}

/// Renders the wordmark.
fn brand() -> Markup {
    html! {
        p class="brand" {
            svg viewBox="0 0 24 24" aria-hidden="true" focusable="false" {
                path d="M17.5 15.5A7.5 7.5 0 0 1 9 5.2a7.5 7.5 0 1 0 8.5 10.3z"
                    fill="currentColor" {}
                path d="M4 21v-9a8 8 0 0 1 16 0v9" fill="none" stroke="currentColor"
                    stroke-width="1.6" stroke-linecap="round" {}
            }
            span { "Moongate" }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns the HTML of a response.
    pub(crate) async fn html_of(response: Response) -> String {
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 20)
            .await
            .unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[test]
    fn foreign_text_is_visible_and_no_markup() {
        assert_eq!(
            VisibleText("<b>&\"\u{2066}").render().into_string(),
            "&lt;b&gt;&amp;&quot;⟨U+2066⟩"
        );
    }

    #[tokio::test]
    async fn the_style_is_in_the_page_byte_by_byte() {
        let body = html! { p { "Hello" } };
        let response = page_response(StatusCode::OK, PageKind::Plain, "<i>", body);
        let page = html_of(response).await;
        assert!(page.contains(&format!("<style>{}</style>", *STYLE)));
        assert!(page.contains("<title>&lt;i&gt; · Moongate</title>"));
        assert!(page.contains("<p>Hello</p>"));
        assert!(!page.contains("http-equiv"), "it stays where it is");
    }

    #[tokio::test]
    async fn no_target_ends_the_attribute_that_it_is_in() {
        let target = "https://claude.ai/cb?a=\"><script>&b=1";
        let response = moving_response("Continue", target, &html! {});
        assert_eq!(response.status(), StatusCode::OK);
        let page = html_of(response).await;
        let escaped = "content=\"0; url=https://claude.ai/cb?a=&quot;&gt;&lt;script&gt;&amp;b=1\"";
        assert!(page.contains(escaped), "{page}");
    }
}
