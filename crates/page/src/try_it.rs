//! View that tries a tool: its form, the lines that repeat the call, and the space for its result.
//!
//! Owns the view, and the questions that servers ask during a call. Does not call tools
//! (`admin/try_call/`). Invariant: nothing that a person types reaches the gateway before they call
//! the tool.

use std::sync::Arc;
use std::time::Duration;

use maud::{Markup, html};

use super::form::render_form;
use super::shell_line::quote;
use super::text::{VisibleText, seconds};
use super::view_query::segment;
use moongate_form::read_form;
use moongate_jsonrpc::json::JsonObject;
use moongate_model::{InputKind, InputRequest, ItemTexts};

/// Tool that is tried.
pub struct TriedTool {
    /// Server of the tool.
    pub server: String,
    /// Name of the tool at its server.
    pub tool: String,
    /// Definition of the tool, as its server wrote it.
    pub definition: Arc<JsonObject>,
    /// Lines that repeat the call elsewhere, if clients see the tool.
    pub repeat: Option<RepeatedCall>,
    /// Time that a call has.
    pub timeout: Duration,
}

/// Call of an exposed tool over HTTP, without its arguments.
pub struct RepeatedCall {
    /// Name of the tool on the endpoint over everything.
    pub exposed: String,
    /// Address of that endpoint. Empty if no URL leads to it.
    pub url: String,
    /// Headers of the request.
    pub headers: Vec<(String, String)>,
    /// Body before the arguments.
    pub body_before: String,
    /// Body after the arguments.
    pub body_after: String,
}

/// Renders the view of a tool that is not there.
pub fn missing(server: &str, tool: &str) -> Markup {
    html! {
        h1 { "Try" }
        p { "The server " code { (VisibleText(server)) }
            " has no tool " code { (VisibleText(tool)) } "." }
    }
}

/// Renders the view.
pub fn view(tried: &TriedTool, may_act: bool) -> Markup {
    let server = segment(&tried.server);
    let tool = segment(&tried.tool);
    let texts: ItemTexts = tried.definition.read_members();
    let schema = texts.input_schema.unwrap_or_default();
    html! {
        section id=(format!("try-{server}-{tool}")) data-try data-server=(tried.server) data-tool=(tried.tool) {
            h1 class="mono" {
                a href=(format!("/servers/{server}")) { (VisibleText(&tried.server)) }
                " / " (VisibleText(&tried.tool))
            }
            @if tried.repeat.is_none() {
                p class="orange" { "Clients do not see this tool because a config rule switches it \
                    off. Calls are refused." }
            }
            @if let Some(text) = &texts.description {
                details { summary { "What the server says about this \
                    tool" } p class="prose" { (VisibleText(text)) } }
            }
            div class="try" {
                // The server validates. A browser that checks as well could block values that it
                // allows.
                form class="panel" method="post" data-try-form novalidate {
                    div class="chips js-only" role="group" aria-label="Form or JSON" {
                        button type="button" class="chip" data-mode="form" aria-pressed="true" {
                            "Form" }
                        button type="button" class="chip" data-mode="json" aria-pressed="false" {
                            "JSON" }
                    }
                    div data-root { (render_form(&read_form(&schema))) }
                    div data-json hidden {
                        label { span class="cap" { b { "Arguments" } }
                            textarea class="in mono" rows="14" spellcheck="false" {} } }
                    @if may_act {
                        div class="row js-only" {
                            button class="btn main" data-call { "Call" }
                            button type="button" class="btn red" data-stop hidden { "Stop" }
                            span class="soft grow" { "Ctrl+Enter to call · times \
                                out after " (seconds(tried.timeout.as_secs())) }
                        }
                    }
                    @if let Some(call) = &tried.repeat { (repeat_lines(call)) }
                }
                section class="panel" aria-label="Result" data-out {
                    p class="soft" { "The result appears here." } }
                template data-fresh {
                    p role="status" data-status { "Running" }
                    progress hidden aria-label="Progress" {}
                    p data-message {}
                    ul class="lines mono" data-log aria-label="Log" {}
                    div data-asks {}
                    div data-result {}
                }
            }
        }
    }
}

/// Renders the lines that repeat the call elsewhere. A script puts the arguments between their
/// parts.
fn repeat_lines(call: &RepeatedCall) -> Markup {
    // A variable replaces the key, so that no shell history gets it.
    let mut curl = format!(
        "curl -sS {} -H \"authorization: Bearer $MOONGATE_KEY\"",
        quote(&call.url)
    );
    for (name, value) in &call.headers {
        curl.push_str(&format!(" \\\n  -H {}", quote(&format!("{name}: {value}"))));
    }
    let before = quote(&call.body_before);
    // Without the last quote: the arguments follow inside.
    curl.push_str(&format!(
        " \\\n  -d {}",
        before.strip_suffix('\'').unwrap_or(&before)
    ));
    let command = format!("moongate call {} '", quote(&call.exposed));
    let lines = [
        ("curl", curl, format!("{}'", call.body_after)),
        ("moongate call", command, "'".to_owned()),
    ];
    html! {
        @for (n, (label, before, after)) in lines.iter().enumerate() {
            @if n > 0 || !call.url.is_empty() {
                details class="js-only repeat" {
                    summary { (label) }
                    pre id=(format!("repeat-{n}")) tabindex="0" role="region" aria-label=(label) data-before=(before) data-after=(after) {}
                    button type="button" class="btn small" data-copy=(format!("repeat-{n}")) {
                        "copy" }
                }
            }
        }
    }
}

/// Renders what a server asks.
pub fn question(id: &str, ask: &str, request: &InputRequest) -> Markup {
    let shown = request.shown();
    let is_page = request.kind == InputKind::ElicitUrl;
    html! {
        form class="ask" method="post" data-call=(id) data-ask=(ask) novalidate {
            h2 { "The server asks" }
            p class="prose" { (VisibleText(&shown.message)) }
            @if is_page { (page_link(&shown.url)) }
            @else { (render_form(&read_form(&shown.requested_schema))) }
            div class="row" {
                button class="btn main" { @if is_page { "I opened it" } @else { "Send" } }
                button type="button" class="btn" data-answer="decline" { "Decline" }
                button type="button" class="btn" data-answer="cancel" { "Cancel" }
            }
        }
    }
}

/// Renders the link of a URL elicitation. The host is bold, since it says who will read what is
/// typed there.
fn page_link(text: &str) -> Markup {
    // A link with `javascript:` would run as the page, with the rights of the operator.
    let parsed = url::Url::parse(text)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https"));
    let Some(url) = parsed else {
        return html! { p class="red" { "This is not a web \
        address: " code { (VisibleText(text)) } } };
    };
    let whole = url.as_str();
    // The parsed URL shows look-alike letters of a host in punycode.
    let host = url.host_str().unwrap_or_default();
    let (before, after) = whole.split_once(host).unwrap_or((whole, ""));
    html! {
        p {
            a href=(whole) target="_blank" rel="noopener noreferrer" {
                (VisibleText(before)) b { (VisibleText(host)) } (VisibleText(after))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_jsonrpc::json::{ByteString, RawJson};

    #[test]
    fn shells_take_names_and_pages_show_their_host() {
        assert_eq!(quote("it's"), r"'it'\''s'");
        let html = page_link("https://user@ex\u{e4}mple.com/login?a=<b>").into_string();
        assert!(
            html.contains("<b>xn--exmple-cua.com</b>") && html.contains("noopener noreferrer"),
            "{html}"
        );
        let html = page_link("javascript:alert(1)").into_string();
        assert!(!html.contains("href"), "{html}");
    }

    #[test]
    fn hostile_schemas_stay_text_and_small() {
        let bad = r#"</textarea><script>alert(1)</script>\"'><img src=x onerror=alert(1)>"#;
        let field = format!(
            r#"{{"type":"string","title":"{bad}","description":"{bad}","default":"{bad}","format":"{bad}"}}"#
        );
        let many: Vec<String> = (0..1020)
            .map(|n| format!(r#""{bad}{n}":{field}"#))
            .collect();
        let text = format!(
            r#"{{"name":"x","description":"{bad}","inputSchema":{{"properties":{{{}}}}}}}"#,
            many.join(",")
        );
        let definition = RawJson::parse(text.into()).unwrap().as_object().unwrap();
        let name = "</pre><script>alert(1)</script>'; rm".to_owned();
        let tried = TriedTool {
            server: name.clone(),
            tool: name.clone(),
            definition: Arc::new(definition),
            timeout: Duration::from_secs(60),
            repeat: Some(RepeatedCall {
                exposed: name,
                url: "http://127.0.0.1:8080/mcp".to_owned(),
                headers: Vec::new(),
                body_before: "{".to_owned(),
                body_after: "}".to_owned(),
            }),
        };
        let html = view(&tried, true).into_string();
        assert!(
            !html.contains("<script") && !html.contains("<img"),
            "texts are text"
        );
        assert!(
            html.len() < 8_000_000 && html.contains("not shown in this form"),
            "{} bytes",
            html.len()
        );
    }

    #[test]
    fn a_question_is_the_form_of_its_schema() {
        let params = RawJson::literal(
            r#"{"message":"<b>Who?","requestedSchema":{"type":"object","properties":{"size":{"enum":["s","m"]}},"required":["size"]}}"#,
        );
        let request = InputRequest {
            kind: InputKind::ElicitForm,
            method: ByteString::literal("elicitation/create"),
            params: params.as_object().unwrap(),
            progress: None,
        };
        let html = question("t-1", "a-1", &request).into_string();
        assert!(
            html.contains("&lt;b&gt;Who?") && html.contains("value=\"&quot;m&quot;\""),
            "{html}"
        );
        assert!(
            html.contains("data-call=\"t-1\" data-ask=\"a-1\"") && !html.contains("unset"),
            "{html}"
        );
    }
}
