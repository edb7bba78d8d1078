//! Browser page on which a login ends.
//!
//! Owns its text, its HTML and its headers. Does not finish the login. Invariant: the page runs no
//! script, loads nothing and has no links, and it quotes no byte of an authorization server's
//! answer.

use http::{HeaderName, HeaderValue, header};
use moongate_oauth::{LoginError, LoginTarget};

/// Headers of the page.
static HEADERS: [(HeaderName, HeaderValue); 6] = [
    (
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    ),
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
        ),
    ),
    (
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    ),
    // The page's address contains the login's code.
    (
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    ),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
];

/// Page on which a login ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallbackPage {
    title: &'static str,
    text: String,
}

impl CallbackPage {
    /// Builds the page for a login that succeeded.
    pub(crate) fn of(end: &Result<LoginTarget, LoginError>) -> Self {
        match end {
            Ok(target) => CallbackPage {
                title: "You are logged in",
                text: format!(
                    "Moongate can now use {}. You can close this page.",
                    target.server
                ),
            },
            Err(error) => CallbackPage::failure(&error.to_string()),
        }
    }

    /// Builds a gateway's page for the end of a login. The answer may be for a process with another
    /// state folder.
    pub(super) fn of_gateway(end: &Result<LoginTarget, LoginError>) -> Self {
        let mut page = CallbackPage::of(end);
        if let Err(LoginError::UnknownState | LoginError::NotAnAnswer) = end {
            page.text.push_str(
                " If `moongate login` is waiting in a terminal, paste this page's address there.",
            );
        }
        page
    }

    /// Builds the page for a login that failed, with the reason.
    pub(super) fn failure(reason: &str) -> Self {
        CallbackPage {
            title: "The login failed",
            text: format!("Reason: {reason}."),
        }
    }

    /// Builds the page for a login that has its answer but not its tokens yet.
    pub(super) fn unfinished() -> Self {
        CallbackPage {
            title: "The login is still in progress",
            text: "Reload this page in a moment.".to_owned(),
        }
    }

    /// Builds the page for a request with more cookies than `moongate login` reads.
    pub(crate) fn too_long() -> Self {
        CallbackPage {
            title: "The answer did not arrive",
            text: "The browser sent too many cookies with it. Paste the address of this page \
                   where you ran moongate login."
                .to_owned(),
        }
    }

    /// Returns the headers of the page.
    pub(crate) fn headers() -> &'static [(HeaderName, HeaderValue)] {
        &HEADERS
    }

    /// Renders the page.
    pub(crate) fn html(&self) -> String {
        let title = self.title;
        let text = escape(&self.text);
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{title} - Moongate</title>\n</head>\n\
             <body>\n<main>\n<h1>{title}</h1>\n<p>{text}</p>\n</main>\n</body>\n</html>\n"
        )
    }
}

/// Escapes text between tags.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // Such characters could reorder the text around them.
            letter if letter.is_control() || is_bidi_control(letter) => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

/// True for a character that changes the direction of text (UAX 9, section 2).
fn is_bidi_control(letter: char) -> bool {
    matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_the_server_or_the_reason() {
        let target = LoginTarget {
            server: "linear".to_owned(),
            url: url::Url::parse("https://mcp.linear.app/mcp").unwrap(),
        };
        let html = CallbackPage::of(&Ok(target)).html();
        assert!(html.contains("<h1>You are logged in</h1>"), "{html}");
        assert!(html.contains("can now use linear."), "{html}");
        let html = CallbackPage::of(&Err(LoginError::UnknownState)).html();
        assert!(
            html.contains("<p>Reason: no login is waiting for this"),
            "{html}"
        );
    }

    #[test]
    fn no_text_becomes_markup() {
        let page = CallbackPage::failure("<script>alert(\"1\")</script>&\u{202e}\n");
        let html = page.html();
        let text = "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;\u{fffd}\u{fffd}";
        assert!(html.contains(text), "{html}");
    }
}
