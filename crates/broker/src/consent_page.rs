//! Page on which a person approves a client.
//!
//! Owns its text and its form. Does not check the request or its answer. Invariant: each fact says
//! who vouches for it, and the redirect address is shown in full.

use maud::{Markup, html};

use crate::authorize_request::CheckedRequest;
use crate::client_record::{ClientOrigin, ClientRecord};
use crate::page_frame::VisibleText;
use crate::redirect_rules::RedirectKind;

/// Path to which the form is sent.
const ACTION: &str = "/authorize";
/// Form field with the sealed request.
pub(crate) const REQUEST_FIELD: &str = "request";
/// Form field with the answer, set by the button.
pub(crate) const ANSWER_FIELD: &str = "answer";
/// Value of the button that approves.
pub(crate) const YES: &str = "yes";
/// Value of the other button.
pub(crate) const NO: &str = "no";

/// Facts on the page.
pub(crate) struct ConsentView<'a> {
    /// Request and client.
    pub(crate) checked: &'a CheckedRequest,
    /// URL of the endpoint that the client may access.
    pub(crate) resource: &'a str,
    /// Host of the company's login.
    pub(crate) provider: &'a str,
    /// Sealed request.
    pub(crate) form: &'a str,
}

impl ConsentView<'_> {
    /// Renders the page.
    pub(crate) fn draw(&self) -> Markup {
        let client = &*self.checked.client;
        html! {
            h1 { "Approve access?" }
            p {
                strong { (client_name(client)) }
                " is asking to use this gateway's tools on your behalf."
            }
            dl {
                (program_fact(client))
                (fact("Identity", &origin_words(client)))
                (fact("Sends you back to", &self.redirect_words()))
                (fact("Gets access to", &self.endpoint_words()))
                (fact("You log in at", &html! { b { (VisibleText(self.provider)) } }))
            }
            (self.warning())
            (self.buttons())
        }
    }

    fn redirect_words(&self) -> Markup {
        html! {
            @match &self.checked.redirect {
                RedirectKind::Web { host } => { b { (VisibleText(host)) } }
                RedirectKind::Loopback => { b { "a program on this computer" } }
                RedirectKind::Private { scheme } => {
                    b { "the app that opens " (VisibleText(scheme)) ": links" }
                }
            }
            small { code { (VisibleText(&self.checked.request.redirect)) } }
        }
    }

    fn endpoint_words(&self) -> Markup {
        let request = &self.checked.request;
        html! {
            @if request.is_all_servers || request.endpoint.is_empty() {
                b { "all servers" } " that you may use"
            } @else {
                b { (VisibleText(&request.endpoint)) } ", limited to what you may use"
            }
            small { code { (VisibleText(self.resource)) } }
            small { "It stays logged in until the login expires or an operator ends it." }
        }
    }

    fn warning(&self) -> Markup {
        let is_local = self.checked.redirect == RedirectKind::Loopback
            || self.checked.client.is_only_loopback();
        html! {
            div class="note" {
                @if is_local {
                    p { "Careful: any program on this computer can claim this name." }
                }
                p { "Approve only if you have just started this login yourself. If a link or \
                    another person sent you here, press Don’t approve." }
            }
        }
    }

    fn buttons(&self) -> Markup {
        html! {
            form class="row" method="post" action=(ACTION) autocomplete="off" {
                input type="hidden" name=(REQUEST_FIELD) value=(self.form);
                button class="button" name=(ANSWER_FIELD) value=(NO) { "Don’t approve" }
                div class="late" {
                    button class="button main" name=(ANSWER_FIELD) value=(YES) {
                        "Approve and log in" }
                }
            }
        }
    }
}

/// Renders the name of a client, isolated so that its text direction cannot reorder the words next
/// to it. It cannot fill the page either.
fn client_name(client: &ClientRecord) -> Markup {
    html! { bdi class="name" { (VisibleText(&client.name)) } }
}

fn program_fact(client: &ClientRecord) -> Markup {
    let words = html! {
        b { (client_name(client)) }
        small { "The program chose this name. Nobody has checked it." }
    };
    fact("Program", &words)
}

fn origin_words(client: &ClientRecord) -> Markup {
    html! {
        @match client.origin {
            ClientOrigin::Document => {
                b { (VisibleText(client.host.as_deref().unwrap_or_default())) }
                small { "Described at " code { (VisibleText(&client.id)) } }
            }
            ClientOrigin::Registered => {
                b { "it registered itself" }
                small { "Any program can register under any name." }
            }
        }
    }
}

fn fact(name: &str, words: &Markup) -> Markup {
    html! { div { dt { (name) } dd { (words) } } }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::authorize_request::AuthorizeRequest;
    use crate::client_record::ClientProof;

    use super::*;

    fn checked(name: &str) -> CheckedRequest {
        CheckedRequest {
            request: AuthorizeRequest {
                client_id: "https://claude.ai/client.json".to_owned(),
                redirect: "https://claude.ai/cb?x=1&y=2".to_owned(),
                state: Some("their-state".to_owned()),
                challenge: "c".repeat(43),
                endpoint: "files".to_owned(),
                scope: "mcp offline_access".to_owned(),
                is_all_servers: false,
            },
            client: Arc::new(ClientRecord {
                id: "https://claude.ai/client.json".to_owned(),
                name: name.to_owned(),
                host: Some("claude.ai".to_owned()),
                origin: ClientOrigin::Document,
                redirects: vec!["https://claude.ai/cb?x=1&y=2".to_owned()],
                proof: ClientProof::None,
            }),
            redirect: RedirectKind::Web {
                host: "claude.ai".to_owned(),
            },
        }
    }

    fn draw(checked: &CheckedRequest) -> String {
        let view = ConsentView {
            checked,
            resource: "https://mcp.test/mcp/files",
            provider: "login.test",
            form: "sealed-form",
        };
        view.draw().into_string()
    }

    /// Names that try to be markup, to escape their element, or to imitate our own text.
    const HOSTILE: [&str; 30] = [
        "<script>alert(1)</script>",
        "</bdi><script>alert(1)</script>",
        "\"><script>alert(1)</script>",
        "'><img src=x onerror=alert(1)>",
        "<img src=//evil.test/x>",
        "<svg/onload=alert(1)>",
        "<iframe src=javascript:alert(1)>",
        "<a href=javascript:alert(1)>x</a>",
        "<style>*{display:none}</style>",
        "<link rel=stylesheet href=//evil.test>",
        "<base href=//evil.test/>",
        "<meta http-equiv=refresh content=0;url=//evil.test>",
        "<form action=//evil.test><button>Approve",
        "<input name=answer value=yes>",
        "<!-- ",
        "]]>",
        "&lt;script&gt;",
        "&#x3c;script&#x3e;",
        "{{7*7}}",
        "${alert(1)}",
        "<%= x %>",
        "\u{202e}edualC",
        "\u{2066}\u{2067}Claude\u{2069}",
        "Claude\u{200b}",
        "\u{feff}Claude\u{ad}",
        "Claude\u{e0041}\u{e007f}",
        "Claude\r\n\r\nHTTP/1.1 200 OK",
        "Claude\u{0}\u{1b}[31m",
        "Claude\u{2028}Checked by Moongate",
        "\u{85}\u{9b}31mClaude",
    ];

    #[test]
    fn no_name_is_markup_and_none_hides_or_reorders_words() {
        let plain = draw(&checked("Claude"));
        let tags = plain.matches('<').count();
        let quotes = plain.matches('"').count();
        for name in HOSTILE {
            let page = draw(&checked(name));
            assert_eq!(page.matches('<').count(), tags, "{name:?}");
            assert_eq!(page.matches('"').count(), quotes, "{name:?}");
            let hidden = page.contains(moongate_telemetry::plain_text::is_invisible);
            assert!(!hidden, "{name:?}");
        }
    }

    #[test]
    fn no_id_address_or_host_is_markup() {
        let mut hostile = checked("Claude");
        let text = "\"><script>\u{202e}";
        hostile.request.redirect = text.to_owned();
        hostile.request.endpoint = text.to_owned();
        hostile.redirect = RedirectKind::Web {
            host: text.to_owned(),
        };
        let client = Arc::make_mut(&mut hostile.client);
        client.id = text.to_owned();
        client.host = Some(text.to_owned());
        let page = draw(&hostile);
        assert!(!page.contains("<script>") && !page.contains('\u{202e}'));
    }

    #[test]
    fn the_page_shows_who_gets_what_and_where() {
        let page = draw(&checked("Claude"));
        for words in [
            "<bdi class=\"name\">Claude</bdi>",
            "The program chose this name.",
            "<b>claude.ai</b>",
            "https://claude.ai/client.json",
            "https://claude.ai/cb?x=1&amp;y=2",
            "<b>files</b>",
            "https://mcp.test/mcp/files",
            "<b>login.test</b>",
            "action=\"/authorize\"",
            "value=\"sealed-form\"",
        ] {
            assert!(page.contains(words), "{words} in {page}");
        }
        assert!(!page.contains("their-state"));
        assert!(!page.contains("any program on this computer"));
    }

    #[test]
    fn a_client_of_this_computer_comes_with_a_warning() {
        let mut local = checked("Claude Code");
        local.redirect = RedirectKind::Loopback;
        local.request.is_all_servers = true;
        let client = Arc::make_mut(&mut local.client);
        client.origin = ClientOrigin::Registered;
        let page = draw(&local);
        for words in [
            "any program on this computer can claim this name",
            "a program on this computer",
            "registered itself",
            "all servers",
        ] {
            assert!(page.contains(words), "{words} in {page}");
        }
    }

    #[test]
    fn a_private_scheme_is_named() {
        let mut private = checked("Cursor");
        private.redirect = RedirectKind::Private {
            scheme: "cursor".to_owned(),
        };
        assert!(draw(&private).contains("the app that opens cursor: links"));
    }
}
