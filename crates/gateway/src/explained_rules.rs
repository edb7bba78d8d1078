//! Rules of an explanation, each with its key in the config.
//!
//! Owns how a rule is explained. Does not decide (`permitted.rs`, `selected_item.rs`). Invariant: a
//! rule says what the decision said.

use crate::decision::DecisionRule;
use crate::endpoint::Endpoint;
use crate::endpoint_scope::EndpointScope;
use crate::explained_item::{ExplainedItem, ItemListing};
use moongate_access::policy::{AccessSource, AccessTable, GlobList};
use moongate_api::ExplainedRule;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{Principal, UpstreamState};

/// Beginning of the reason of a server that fails.
const UNUSABLE: &str = "the server cannot be used";

/// Returns the command or the line that would change a decision. `location` is that of its rule.
pub fn remedy(rule: &ExplainedRule, tool: &str, location: &str) -> String {
    let key: Vec<&str> = rule.key.iter().map(String::as_str).collect();
    match key[..] {
        ["servers", server, "tools", _] => format!("moongate enable {server} {tool}"),
        ["servers", server, "enabled"] => format!("moongate enable {server}"),
        ["servers", server] if rule.reason.starts_with(UNUSABLE) => {
            format!("`moongate doctor {server}` says what to fix")
        }
        ["servers", server] => {
            format!("`moongate tools --server {server}` shows what the server offers")
        }
        ["auth", "keys", _, "expires"] => {
            format!("change {location}, or create another key: moongate key new NAME")
        }
        ["auth", "keys" | "roles", _, "views"] => format!("add a view or a server to {location}"),
        ["auth" | "views", .., "servers"] => format!("add the server to {location}"),
        ["auth" | "views", ..] => pattern_remedy(rule, location),
        _ => "`moongate tools` lists the tools, and `moongate status` the servers".to_owned(),
    }
}

/// Returns the change of patterns that would let the name pass.
fn pattern_remedy(rule: &ExplainedRule, location: &str) -> String {
    let globs = GlobList::new(&rule.value).unwrap_or_default();
    match globs.deciding_pattern(&rule.name) {
        // An exclusion wins over each pattern that would be added.
        Some(pattern) if pattern.starts_with('!') => format!("remove {pattern:?} from {location}"),
        _ if rule.name.is_empty() => format!("change {location}"),
        _ => format!("add {:?} to {location}", rule.name),
    }
}

/// Describes a rule of a key without a value.
pub(super) fn plain_rule(key: &[&str], allows: bool, reason: impl Into<String>) -> ExplainedRule {
    let key = key.iter().map(|step| (*step).to_owned()).collect();
    ExplainedRule {
        key,
        allows,
        reason: reason.into(),
        ..ExplainedRule::default()
    }
}

/// Describes a list of patterns.
fn glob_rule(key: &[&str], globs: &GlobList, name: &str, allows: bool) -> ExplainedRule {
    let reason = match globs.deciding_pattern(name) {
        Some(pattern) => format!("{pattern:?} matches {name}"),
        None => format!("nothing matches {name}"),
    };
    let rule = plain_rule(key, allows, reason);
    ExplainedRule {
        name: name.to_owned(),
        value: globs.patterns().to_vec(),
        ..rule
    }
}

/// Returns the question about the name that was probably meant, for the end of a reason.
pub(super) fn did_you_mean(nearest: Option<&ByteString>) -> String {
    nearest
        .map(|nearest| format!("; did you mean {nearest}?"))
        .unwrap_or_default()
}

/// Returns the path of the setting that limits the endpoints of a principal.
pub(super) fn views_setting<'a>(access: &'a AccessTable, principal: &'a Principal) -> [&'a str; 4] {
    let source = access.source_of(principal.role());
    source
        .unwrap_or(AccessSource::Key(&principal.name))
        .setting("views")
}

/// Returns the rules of the item's server.
pub(super) fn server_rules(item: &ExplainedItem) -> Vec<ExplainedRule> {
    let settings = &item.server.settings;
    let status = item.server.status();
    let name = settings.name.as_str();
    let local = item.local.as_str();
    let allow = &settings.presentation.tools.allow;
    let deny = &settings.presentation.tools.deny;
    let mut rules = Vec::new();
    let is_failed = matches!(
        status.state,
        UpstreamState::Failed | UpstreamState::NeedsLogin
    );
    if is_failed || item.server.is_misconfigured() {
        let reason = format!("{UNUSABLE}: {}", status.reason);
        rules.push(plain_rule(&["servers", name], false, reason));
    }
    match &item.listing {
        ItemListing::Missing { nearest } => {
            let reason = format!(
                "the server lists no tool {local}{}",
                did_you_mean(nearest.as_ref())
            );
            rules.push(plain_rule(&["servers", name], false, reason));
        }
        ItemListing::Excluded(reason) => {
            rules.push(plain_rule(&["servers", name], false, reason.clone()))
        }
        ItemListing::Listed | ItemListing::Unknown => {}
    }
    if allow.patterns() != ["*"] {
        let key = ["servers", name, "tools", "allow"];
        rules.push(glob_rule(&key, allow, local, allow.matches(local)));
    }
    if !deny.patterns().is_empty() {
        let key = ["servers", name, "tools", "deny"];
        rules.push(glob_rule(&key, deny, local, !deny.matches(local)));
    }
    if settings.presentation.tools.hide.matches(local) {
        let key = ["servers", name, "tools", "hide"];
        rules.push(ExplainedRule {
            reason: "no list has it".to_owned(),
            ..glob_rule(&key, &settings.presentation.tools.hide, local, true)
        });
    }
    rules
}

impl Endpoint {
    /// Describes what the decision recorded about a rule. `None`: the config has no such rule.
    pub(super) fn explain_rule(
        &self,
        (rule, allows): (DecisionRule, bool),
        principal: &Principal,
        item: &ExplainedItem,
    ) -> Option<ExplainedRule> {
        let exposed = item.exposed.as_str();
        let access = &self.generation.access;
        match (rule, &self.scope) {
            (DecisionRule::Servers, EndpointScope::View(view)) => {
                let reason = format!(
                    "{} {} in the view",
                    item.server.settings.name,
                    if allows { "is" } else { "is not" }
                );
                let key = ["views", view.name.as_str(), "servers"];
                let rule = plain_rule(&key, allows, reason);
                Some(ExplainedRule {
                    value: view.servers.clone()?,
                    ..rule
                })
            }
            (DecisionRule::Tools, EndpointScope::View(view)) => {
                let key = ["views", view.name.as_str(), "tools"];
                let is_all = view.tools.patterns() == ["*"];
                (!is_all).then(|| glob_rule(&key, &view.tools, exposed, allows))
            }
            (DecisionRule::Tools, EndpointScope::Union(_)) => {
                let key = views_setting(access, principal);
                let reason = if allows {
                    "one of them has it"
                } else {
                    "none of them has it"
                };
                let mut names: Vec<String> = access
                    .allowed_endpoints(principal.role())
                    .into_iter()
                    .flatten()
                    .cloned()
                    .collect();
                names.sort();
                Some(ExplainedRule {
                    value: names,
                    ..plain_rule(&key, allows, reason)
                })
            }
            (DecisionRule::Principal, _) => match access.tools_of(principal.role(), exposed) {
                Some((_, tools)) if allows && tools.patterns() == ["*"] => None,
                Some((source, tools)) => {
                    Some(glob_rule(&source.setting("tools"), tools, exposed, allows))
                }
                None if allows => None,
                None => Some(plain_rule(&[], false, "no key or role of the config fits")),
            },
            // The other endpoints have all servers, or their own. A union's servers show in its
            // tools.
            (DecisionRule::Servers | DecisionRule::Tools, _) => None,
        }
    }
}
