//! Pages for requests that cannot become a login.
//!
//! Owns their text, and the config line that would allow one. Does not find the fault. Invariant: a
//! page never links to a client or an address that is not trusted.

use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use moongate_access::auth::{BrokerSettings, CLIENT_HOSTS};

use crate::answer_address::address_at;
use crate::authorize_request::{AuthorizeFault, PageFault};
use crate::client_fault::ClientFault;
use crate::error_page::error_page;
use crate::form_fields::FormFault;
use crate::page_frame::{VisibleText, page_response};
use crate::page_headers::PageKind;
use crate::redirect_rules::RedirectFault;

/// Longest foreign text on a page, in characters.
const SHOWN_MAX: usize = 300;
/// Text that stands for entries of the operator's own.
const OWN_ENTRIES: &str = "…";
/// Schemes that no config allows, so that no page proposes them.
const NEVER: [&str; 17] = [
    "about",
    "blob",
    "chrome",
    "content",
    "data",
    "file",
    "filesystem",
    "ftp",
    "http",
    "https",
    "intent",
    "jar",
    "javascript",
    "vbscript",
    "view-source",
    "ws",
    "wss",
];

/// Text of a page.
struct FaultWords {
    status: StatusCode,
    title: &'static str,
    text: String,
    /// Line in `[auth.oauth]` that would allow the request.
    line: Option<String>,
}

/// Builds the page for a request that failed its checks.
pub(crate) fn fault_page(settings: &BrokerSettings, fault: &AuthorizeFault) -> Response {
    match fault {
        AuthorizeFault::Page(fault) => page_of_fault(settings, fault),
        AuthorizeFault::Client {
            redirect,
            state,
            error,
            client,
        } => {
            let text = format!(
                "“{}” sent a request that this gateway can't answer: {}",
                shorten(&client.name),
                error.text
            );
            let issuer = settings.issuer();
            let back = address_at(&issuer, redirect, state.as_deref(), Err(error));
            error_page("This login can't start", &text, Some(&back))
        }
    }
}

/// Builds the page for a request whose form, client or address was refused.
pub(crate) fn page_of_fault(settings: &BrokerSettings, fault: &PageFault) -> Response {
    let words = match fault {
        PageFault::Form(fault) => form_words(fault),
        PageFault::Client { id, fault } => client_words(settings, id, fault),
        PageFault::Redirect {
            client,
            address,
            fault,
        } => redirect_words(settings, client, address, fault),
    };
    page_response(words.status, PageKind::Plain, words.title, draw(&words))
}

fn draw(words: &FaultWords) -> Markup {
    html! {
        h1 { (words.title) }
        p { (VisibleText(&words.text)) }
        @if let Some(line) = &words.line {
            p { "If people should be able to use this program here, the operator of this gateway \
                can add this line to " code { "[auth.oauth]" } ":" }
            pre { (VisibleText(line)) }
            @if line.contains(OWN_ENTRIES) {
                p class="soft" { "“" (OWN_ENTRIES) "” stands for what the list has now." }
            }
        }
    }
}

fn refuse(title: &'static str, text: String) -> FaultWords {
    FaultWords {
        status: StatusCode::BAD_REQUEST,
        title,
        text,
        line: None,
    }
}

fn form_words(fault: &FormFault) -> FaultWords {
    let text = match fault {
        FormFault::TooLong => "The request is too long.".to_owned(),
        FormFault::NotAForm => "The request can't be read.".to_owned(),
        FormFault::Twice(name) => {
            format!(
                "The request contains the parameter {} more than once.",
                shorten(name)
            )
        }
    };
    let advice = "Start the login again in your program.";
    refuse("This login can't start", format!("{text} {advice}"))
}

fn client_words(settings: &BrokerSettings, id: &str, fault: &ClientFault) -> FaultWords {
    let id = shorten(id);
    match fault {
        ClientFault::Unknown => refuse(
            "Unknown client",
            format!(
                "The client {id} is not registered here. Remove this server from your program and \
                 add it again, so that the program registers again."
            ),
        ),
        ClientFault::NotAllowed { host } => FaultWords {
            line: Some(match settings.clients.documents {
                true => allowed_line("allow_clients", &settings.allow_clients, host),
                false => "clients = [\"cimd\", \"dcr\"]".to_owned(),
            }),
            ..refuse(
                "This client is not allowed",
                format!(
                    "The client {id} is described at {}, which is not one of the hosts that may \
                     request logins here.",
                    shorten(host)
                ),
            )
        },
        ClientFault::Unreadable { host, why } => refuse(
            "This client can't be checked",
            format!(
                "The description of the client {id} at {} can't be used: {why}.",
                shorten(host)
            ),
        ),
        ClientFault::Busy => unavailable("Too many logins are starting right now."),
        ClientFault::NotReady => unavailable("This gateway is still starting."),
    }
}

fn unavailable(text: &str) -> FaultWords {
    FaultWords {
        status: StatusCode::SERVICE_UNAVAILABLE,
        ..refuse(
            "Try again in a minute",
            format!("{text} Load this page again in a minute."),
        )
    }
}

fn redirect_words(
    settings: &BrokerSettings,
    client: &str,
    address: &str,
    fault: &RedirectFault,
) -> FaultWords {
    let (why, line) = match fault {
        RedirectFault::Malformed => ("which is not a usable address".to_owned(), None),
        RedirectFault::OwnHost => ("which is this gateway itself".to_owned(), None),
        RedirectFault::NotRegistered => (
            "which the client has not registered. Remove this server from your program and add it \
             again"
                .to_owned(),
            None,
        ),
        RedirectFault::Scheme(scheme) => (
            format!("and {}: links are not allowed", shorten(scheme)),
            is_possible_scheme(scheme)
                .then(|| allowed_line("redirect_schemes", &settings.redirect_schemes, scheme)),
        ),
        RedirectFault::HostNotAllowed(host) => (
            format!("and {} is not among the allowed hosts", shorten(host)),
            Some(allowed_line("allow_clients", &settings.allow_clients, host)),
        ),
    };
    FaultWords {
        line,
        ..refuse(
            "This address is not allowed",
            format!(
                "The client “{}” wants the result of the login to go to {}, {why}.",
                shorten(client),
                shorten(address)
            ),
        )
    }
}

/// Returns true for a private scheme that an operator may allow.
fn is_possible_scheme(scheme: &str) -> bool {
    let is_scheme = scheme
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte));
    is_scheme && !scheme.is_empty() && !NEVER.contains(&scheme)
}

/// Returns the line with a list that has another entry. The list replaces the built-in one, so
/// that all of it must be there. Anybody can open this page, so what the operator has added stays
/// out of it.
fn allowed_line(key: &str, allowed: &[String], added: &str) -> String {
    let allowed = allowed.iter().map(String::as_str);
    let (known, own): (Vec<&str>, Vec<&str>) =
        allowed.partition(|text| CLIENT_HOSTS.contains(text));
    let own = (!own.is_empty()).then_some(OWN_ENTRIES);
    let texts = known.into_iter().chain(own).chain([added]);
    // Names of hosts and schemes need no escapes. Whatever else is in one cannot end the text.
    let texts: Vec<String> = texts.map(|text| format!("{text:?}")).collect();
    format!("{key} = [{}]", texts.join(", "))
}

/// Truncates a foreign text to what fits on a page.
fn shorten(text: &str) -> String {
    let mut characters = text.chars();
    let mut short: String = characters.by_ref().take(SHOWN_MAX).collect();
    if characters.next().is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::client_record::{ClientOrigin, ClientProof, ClientRecord};
    use crate::oauth_error::{OAuthCode, OAuthError};
    use crate::page_frame::tests::html_of;
    use crate::test_broker::settings;

    use super::*;

    async fn page(fault: PageFault) -> String {
        html_of(page_of_fault(&settings(), &fault)).await
    }

    fn redirect(fault: RedirectFault) -> PageFault {
        PageFault::Redirect {
            client: "Clau<b>de".to_owned(),
            address: "https://evil.test/cb\"><script>".to_owned(),
            fault,
        }
    }

    #[tokio::test]
    async fn a_client_or_address_that_is_not_good_gets_no_link() {
        for fault in [
            redirect(RedirectFault::Malformed),
            redirect(RedirectFault::OwnHost),
            redirect(RedirectFault::NotRegistered),
            redirect(RedirectFault::Scheme("javascript".to_owned())),
            redirect(RedirectFault::HostNotAllowed("evil.test".to_owned())),
            PageFault::Form(FormFault::Twice("<script>".to_owned())),
            PageFault::Client {
                id: "https://evil.test/<script>".to_owned(),
                fault: ClientFault::Unknown,
            },
        ] {
            let page = page(fault).await;
            for part in ["<a ", "<form", "http-equiv", "<script", "<b>de"] {
                assert!(!page.contains(part), "{part} in {page}");
            }
        }
    }

    #[tokio::test]
    async fn a_page_names_client_address_and_the_line_that_allows_it() {
        let page = page(redirect(RedirectFault::HostNotAllowed(
            "evil.test".to_owned(),
        )))
        .await;
        for words in [
            "Clau&lt;b&gt;de",
            "https://evil.test/cb&quot;&gt;&lt;script&gt;",
            "allow_clients = [",
            "&quot;evil.test&quot;]",
        ] {
            assert!(page.contains(words), "{words} in {page}");
        }
    }

    #[tokio::test]
    async fn no_page_shows_strangers_what_the_operator_has_added() {
        let settings = BrokerSettings {
            allow_clients: vec!["claude.ai".to_owned(), "chat.corp.test".to_owned()],
            redirect_schemes: vec!["corp".to_owned()],
            ..settings()
        };
        for (fault, line) in [
            (
                RedirectFault::HostNotAllowed("evil.test".to_owned()),
                "allow_clients = [&quot;claude.ai&quot;, &quot;…&quot;, &quot;evil.test&quot;]",
            ),
            (
                RedirectFault::Scheme("zed".to_owned()),
                "redirect_schemes = [&quot;…&quot;, &quot;zed&quot;]",
            ),
        ] {
            let page = html_of(page_of_fault(&settings, &redirect(fault))).await;
            assert!(page.contains(line), "{page}");
            assert!(page.contains("stands for"), "{page}");
            assert!(!page.contains("corp"), "{page}");
        }
    }

    #[tokio::test]
    async fn no_page_proposes_a_scheme_that_runs_code() {
        for scheme in ["javascript", "data", "file", "http", "", "a\nb", "\"]x"] {
            let page = page(redirect(RedirectFault::Scheme(scheme.to_owned()))).await;
            assert!(!page.contains("redirect_schemes"), "{scheme}");
        }
        let page = page(redirect(RedirectFault::Scheme("zed".to_owned()))).await;
        assert!(page.contains("redirect_schemes = [&quot;zed&quot;]"));
    }

    #[tokio::test]
    async fn an_error_of_a_good_client_is_a_link_and_no_redirect() {
        let client = ClientRecord {
            id: "mgc_1".to_owned(),
            name: "Client".to_owned(),
            host: None,
            origin: ClientOrigin::Registered,
            redirects: vec!["https://claude.ai/cb".to_owned()],
            proof: ClientProof::None,
        };
        let fault = AuthorizeFault::Client {
            redirect: "https://claude.ai/cb".to_owned(),
            state: Some("s-1".to_owned()),
            error: OAuthError::new(OAuthCode::InvalidRequest, "code_challenge is missing."),
            client: Arc::new(client),
        };
        let response = fault_page(&settings(), &fault);
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        assert!(!response.headers().contains_key(http::header::LOCATION));
        let page = html_of(response).await;
        assert!(!page.contains("http-equiv"), "{page}");
        assert!(page.contains("href=\"https://claude.ai/cb?error=invalid_request&amp;"));
        assert!(page.contains("&amp;state=s-1&amp;iss=https%3A%2F%2Fmcp.test\""));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(shorten(&"ä".repeat(SHOWN_MAX)), "ä".repeat(SHOWN_MAX));
        let cut = shorten(&"ä".repeat(SHOWN_MAX + 1));
        assert_eq!(cut, format!("{}…", "ä".repeat(SHOWN_MAX)));
    }
}
