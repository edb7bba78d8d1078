//! Headers and style of the pages that people see.
//!
//! Owns what a browser may do with these pages. Does not draw them (`page_frame.rs`). Invariant: no
//! page runs a script, is framed, is cached, or reveals its address to another site.

use std::sync::LazyLock;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, header};

/// Style sheet, inlined in every page.
// Browsers read a Windows line ending as `\n`, which would change the digest of the style.
pub(crate) static STYLE: LazyLock<String> =
    LazyLock::new(|| include_str!("page.css").replace('\r', ""));

/// Content security policy of all pages.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let style = STANDARD.encode(digest(&SHA256, STYLE.as_bytes()));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{style}'; form-action 'self'; \
         frame-ancestors 'none'; base-uri 'none'"
    );
    HeaderValue::try_from(policy).expect("the policy is visible ASCII")
});

/// Headers that all pages share.
const HEADERS: [(HeaderName, HeaderValue); 6] = [
    (
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    ),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    ),
    // Browsers that do not know `frame-ancestors` know this.
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (
        HeaderName::from_static("permissions-policy"),
        HeaderValue::from_static("camera=(), microphone=(), geolocation=()"),
    ),
    // Whoever opens a page in a small window cannot scroll it to its button by `#:~:text=`.
    (
        HeaderName::from_static("document-policy"),
        HeaderValue::from_static("force-load-at-top"),
    ),
];

/// Kind of page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageKind {
    /// Page with one of our forms.
    Form,
    /// Page that leads to another site.
    Moving,
    /// Page with text, and perhaps a link.
    Plain,
}

impl PageKind {
    fn referrer_policy(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            // Under `no-referrer`, a browser sends `Origin: null` even with our own form (Fetch
            // standard, "append a request Origin header").
            PageKind::Form => "same-origin",
            PageKind::Moving | PageKind::Plain => "no-referrer",
        })
    }
}

/// Adds the headers of a page.
// No Cross-Origin-Opener-Policy: clients that open the page in a popup wait for it to close.
pub(crate) fn add_headers(headers: &mut HeaderMap, kind: PageKind) {
    for (name, value) in HEADERS {
        headers.insert(name, value);
    }
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY.clone());
    headers.insert(header::REFERRER_POLICY, kind.referrer_policy());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(kind: PageKind) -> HeaderMap {
        let mut headers = HeaderMap::new();
        add_headers(&mut headers, kind);
        headers
    }

    #[test]
    fn no_page_may_run_scripts_or_be_framed_or_kept() {
        for kind in [PageKind::Form, PageKind::Moving, PageKind::Plain] {
            let headers = headers(kind);
            let policy = headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
            assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"));
            assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
            assert!(!policy.contains("script") && !policy.contains("unsafe"));
            assert_eq!(headers[header::CACHE_CONTROL], "no-store");
            assert!(!headers.contains_key("cross-origin-opener-policy"));
            assert_eq!(headers["document-policy"], "force-load-at-top");
        }
    }

    #[test]
    fn only_a_page_with_a_form_shows_its_own_site_where_it_comes_from() {
        for (kind, policy) in [
            (PageKind::Form, "same-origin"),
            (PageKind::Moving, "no-referrer"),
            (PageKind::Plain, "no-referrer"),
        ] {
            assert_eq!(headers(kind)[header::REFERRER_POLICY], policy);
        }
    }

    #[test]
    fn the_style_can_be_inside_an_element() {
        assert!(!STYLE.contains("</") && !STYLE.contains("url(") && !STYLE.contains("@import"));
        assert!(!STYLE.contains('\r'));
    }
}
