//! View that explains whether a key may call a tool, and which line of the config decides.
//!
//! Owns form and table. Does not decide (`moongate_gateway`). Invariant: it shows the rules in the
//! order in which a call meets them.

use maud::{Markup, html};
use moongate_api::{ExplainedRule, ToolExplanation};
use moongate_model::CallState;

use super::copy::code_block;
use super::endpoint_choice::EndpointChoice;
use super::icons::StateIcon;
use super::text::VisibleText;
use super::view_query::{ViewQuery, segment};

/// Rule with its key and location, as far as the config has them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShownRule {
    /// Rule itself.
    pub rule: ExplainedRule,
    /// Key, as the config writes it.
    pub key: String,
    /// Location of the key.
    pub location: Option<String>,
}

/// Answer to a question.
pub struct ShownAnswer {
    /// Decision with its rules.
    pub explanation: ToolExplanation<ShownRule>,
    /// Command or line that would change it. `None` if nothing refuses.
    pub remedy: Option<String>,
}

/// Question of the URL, and its answer.
pub struct ExplainView<'a> {
    /// Query of the URL.
    pub query: &'a ViewQuery,
    /// Endpoint of the URL.
    pub endpoint: &'a EndpointChoice,
    /// Names of all keys and roles.
    pub principals: Vec<String>,
    /// Principal that is asked about.
    pub principal: String,
    /// Answer. `None`: nothing was asked, or the principal or endpoint does not exist.
    pub answer: Option<ShownAnswer>,
    /// Reason why there is no answer to the question.
    pub problem: Option<String>,
}

impl ExplainView<'_> {
    /// Renders the whole view.
    pub fn page(&self) -> Markup {
        let tool = self.query.get("tool").unwrap_or_default();
        let is_known = self.principals.contains(&self.principal);
        html! {
            div class="title" { h1 { "Who may call a tool?" } }
            form class="filter" method="get" action="/explain" data-auto-submit {
                select class="in" name="principal" aria-label="Key" {
                    @if !is_known {
                        option value=(self.principal) selected { (VisibleText(&self.principal)) } }
                    @for name in &self.principals {
                        option value=(name) selected[*name == self.principal] {
                            (VisibleText(name)) } }
                }
                (self.endpoint.field())
                input class="in wide-in" type="search" name="tool" value=(tool) aria-label="Tool"
                    placeholder="Tool name, as clients see it"
                    autocomplete="off" spellcheck="false" data-search;
                button class="btn" { "Explain" }
            }
            div id="explained" {
                @match &self.answer {
                    Some(answer) => { (explained(answer)) }
                    None if !is_known => {
                        p class="empty" {
                            @if let Some(problem) = &self.problem { (VisibleText(problem)) }
                            @else { "There is no key " code { (VisibleText(&self.principal)) } "." }
                        } }
                    None if !self.endpoint.is_there => { (self.endpoint.missing()) }
                    None => { p class="empty" { "Enter a tool name, such \
                        as " code { "github__create_issue" } "." } }
                }
            }
        }
    }
}

fn explained(shown: &ShownAnswer) -> Markup {
    let answer = &shown.explanation;
    let (word, color) = if answer.callable {
        ("Yes", "green")
    } else {
        ("No", "red")
    };
    html! {
        p class="lead" role="status" {
            b class=(color) { (word) } ": " code { (VisibleText(&answer.principal)) }
            @if answer.callable { " may call " } @else { " may not call " }
            code { (VisibleText(&answer.tool)) } " at " code { (VisibleText(&answer.endpoint)) }
            @if answer.callable && answer.listed.is_none() { ", if the server offers it" } "."
            @if !answer.callable { " To this key, the tool does not exist." }
        }
        @if let Some(server) = &answer.server {
            p { "Server " a href=(format!("/servers/{}", segment(server))) { (VisibleText(server)) }
                @if let Some(state) = &answer.state {
                    span class="soft" { ", " (state.replace('_', " ")) } } }
        }
        @if !answer.rules.is_empty() {
            div class="wide panel" tabindex="0" role="region" aria-label="Rules" {
                table {
                    thead { tr { th scope="col" { "Rule" } th scope="col" { "Decision" }
                        th scope="col" { "Why" } th scope="col" { "Location" } } }
                    tbody { @for rule in &answer.rules { (rule_row(rule)) } }
                }
            }
        }
        @if !answer.other_endpoints.is_empty() {
            p { "This key can call it at "
                code { (VisibleText(&answer.other_endpoints.join(", "))) } "." } }
        @if let Some(remedy) = &shown.remedy {
            h2 { "To change this" }
            (code_block(remedy, "the change"))
        }
    }
}

fn rule_row(shown: &ShownRule) -> Markup {
    let ShownRule {
        rule,
        key,
        location,
    } = shown;
    let icon = StateIcon::of_call(if rule.allows {
        CallState::Ok
    } else {
        CallState::Error
    });
    html! {
        tr {
            td {
                code { (VisibleText(key)) }
                @if !rule.value.is_empty() {
                    " = " code { (VisibleText(&format!("{:?}", rule.value))) } }
            }
            td { span class="outcome" { (icon.draw()) @if rule.allows { "allows" }
                @else if rule.decides { b { "denies the call" } } @else { "also denies it" } } }
            td class="prose" { (VisibleText(&rule.reason)) }
            td { @if let Some(location) = location { code { (VisibleText(location)) } } }
        }
    }
}

/// Returns the link to the explanation of a call.
pub(super) fn link(principal: Option<&str>, endpoint: &str, tool: &str) -> String {
    let query = ViewQuery::default().with("principal", principal);
    let endpoint = endpoint
        .strip_prefix("/mcp")
        .unwrap_or(endpoint)
        .trim_matches('/');
    query
        .with("endpoint", Some(endpoint).filter(|name| !name.is_empty()))
        .with("tool", Some(tool))
        .link("/explain")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deciding_rule_and_its_cure_are_shown_as_text() {
        let rule = ExplainedRule {
            key: ["servers", "a", "tools", "deny"]
                .map(str::to_owned)
                .to_vec(),
            value: vec!["<b>*".to_owned()],
            decides: true,
            reason: "\"<b>*\" fits \u{202e}".to_owned(),
            ..ExplainedRule::default()
        };
        let answer = ToolExplanation {
            callable: false,
            principal: "ci".to_owned(),
            tool: "a__<b>".to_owned(),
            endpoint: "/mcp".to_owned(),
            server: Some("a".to_owned()),
            state: Some("backing_off".to_owned()),
            local_name: Some("<b>".to_owned()),
            listed: Some(true),
            rules: vec![ShownRule {
                key: rule.key.join("."),
                rule,
                location: None,
            }],
            other_endpoints: Vec::new(),
        };
        let remedy = Some("moongate enable a <b>".to_owned());
        let query = ViewQuery::parse("tool=a__%3Cb%3E");
        let endpoint = crate::tests::endpoint_choice(&["", "coding"], "");
        let principals = vec!["ci".to_owned()];
        let principal = "ci".to_owned();
        let mut view = ExplainView {
            query: &query,
            endpoint: &endpoint,
            principals,
            principal,
            answer: Some(ShownAnswer {
                explanation: answer,
                remedy,
            }),
            problem: None,
        };
        let html = view.page().into_string();
        for part in [
            "may not call",
            "denies the call",
            "moongate enable a &lt;b&gt;",
            "backing off",
            "⟨U+202E⟩",
        ] {
            assert!(html.contains(part), "{part} in {html}");
        }
        assert!(!html.contains("a__<b>") && !html.contains('\u{202e}'));
        (view.answer, view.principal) = (None, "gone".to_owned());
        assert!(view.page().into_string().contains("There is no key"));
        view.problem = Some("There is more than one <b>".to_owned());
        assert!(
            view.page()
                .into_string()
                .contains("more than one &lt;b&gt;")
        );
        assert_eq!(
            link(Some("ci"), "/mcp/coding", "x"),
            "/explain?principal=ci&endpoint=coding&tool=x"
        );
    }
}
