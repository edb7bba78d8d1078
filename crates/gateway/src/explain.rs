//! Explanation of a decision, for operators: whether a principal may call a tool, and which rules
//! decide.
//!
//! Owns the order of the rules. Does not repeat them: it runs the decisions of real calls with a
//! recorder. Invariant: a call is refused for the rule that decides here.

use std::sync::Arc;

use crate::Gateway;
use crate::decision::RecordedDecision;
use crate::endpoint::Endpoint;
use crate::explained_caller::{NamedThing, UnclearName, configured_names, find_caller};
use crate::explained_item::{ExplainedItem, ItemListing};
use crate::explained_rules::{did_you_mean, plain_rule, server_rules, views_setting};
use crate::generation::Generation;
use crate::settings::DisabledServer;
use moongate_access::auth::AuthMethods;
use moongate_api::{ExplainedRule, ToolExplanation};
use moongate_jsonrpc::json::ByteString;
use moongate_model::{ItemKind, Principal};
use moongate_search::few_edits_or_beginning;
use moongate_telemetry::logs;

impl Gateway {
    /// Returns the names of the keys and roles that can be explained.
    pub fn explainable_names(&self, auth: &AuthMethods) -> Vec<String> {
        configured_names(auth, &self.current.load().generation.access)
    }

    /// Explains whether a key, a role or a person may call a tool at an endpoint. The empty name is
    /// the endpoint over everything. A person has the roles of the last request.
    pub fn explain_tool(
        self: &Arc<Self>,
        auth: &AuthMethods,
        principal: &str,
        endpoint: &str,
        tool: &str,
    ) -> Result<ToolExplanation, UnclearName> {
        let current = self.current.load();
        let generation = &current.generation;
        let principal = &find_caller(auth, &generation.access, principal)?;
        let mut rules: Vec<ExplainedRule> =
            // First, as in a call: an expired key is refused before any endpoint or tool is looked
            // at.
            auth.expired(principal).map(|at| expired_rule(principal, at)).into_iter().collect();
        let path = endpoint_path(endpoint);
        let Some((found, is_allowed)) = current.endpoint(endpoint, principal) else {
            let known = nearest_endpoints(generation, endpoint);
            return Err(UnclearName::Unknown {
                thing: NamedThing::Endpoint,
                name: path,
                known,
            });
        };
        // The walk continues after this refusal. Otherwise people repair one rule and only then
        // meet the next.
        rules.extend((!is_allowed).then(|| endpoint_rule(generation, principal, &path)));
        let snapshot = generation.snapshot.load();
        let item = found.find_explained(&snapshot, &ByteString::from(tool));
        match &item {
            None => {
                rules.push(self.nowhere_rule(generation, tool, found.nearest_tool(&snapshot, tool)))
            }
            Some(item) => rules.extend(found.explain_item(principal, item)),
        }
        // A call stops at its first refusal. Later ones stay in the report and decide nothing.
        if let Some(rule) = rules.iter_mut().find(|rule| !rule.allows) {
            rule.decides = true;
        }
        // An expired key is refused at every endpoint.
        let is_expired = auth.expired(principal).is_some();
        let others = item
            .iter()
            .filter(|_| !is_expired)
            .flat_map(|item| self.endpoints_with(generation, principal, item));
        Ok(ToolExplanation {
            callable: rules.iter().all(|rule| rule.allows),
            principal: principal.name.clone(),
            tool: tool.to_owned(),
            other_endpoints: others.filter(|other| *other != path).collect(),
            endpoint: path,
            server: item.as_ref().map(|item| item.server.settings.name.clone()),
            state: item
                .as_ref()
                .map(|item| item.server.status().state.name().to_owned()),
            local_name: item.as_ref().map(|item| item.local.to_string()),
            listed: item.as_ref().and_then(|item| match item.listing {
                ItemListing::Listed | ItemListing::Excluded(_) => Some(true),
                ItemListing::Missing { .. } => Some(false),
                ItemListing::Unknown => None,
            }),
            rules,
        })
    }

    /// Explains that no server has the name.
    fn nowhere_rule(
        &self,
        generation: &Generation,
        tool: &str,
        nearest: Option<ByteString>,
    ) -> ExplainedRule {
        // Without a prefix its tools could have any name.
        let disabled = generation
            .disabled
            .iter()
            .filter(|server| !server.prefix.is_empty())
            .find(|server| {
                tool.strip_prefix(&*server.prefix)
                    .is_some_and(|rest| rest.starts_with(&generation.names.separator))
            });
        match disabled {
            Some(DisabledServer { name, .. }) => plain_rule(
                &["servers", name, "enabled"],
                false,
                "the server is switched off",
            ),
            None => {
                let reason = format!(
                    "no server has a tool of this name{}",
                    did_you_mean(nearest.as_ref())
                );
                plain_rule(&[], false, reason)
            }
        }
    }

    /// Returns the endpoints at which the principal may call the item, sorted.
    fn endpoints_with(
        self: &Arc<Self>,
        generation: &Arc<Generation>,
        principal: &Principal,
        item: &ExplainedItem,
    ) -> Vec<String> {
        // Rules of a server hold at every endpoint, so no other endpoint could help.
        if !server_rules(item).iter().all(|rule| rule.allows) {
            return Vec::new();
        }
        let mut paths = Vec::new();
        for name in generation.scopes.keys() {
            let Some(scope) = generation.scope(name, principal) else {
                continue;
            };
            let endpoint = Endpoint::new(
                self.clone(),
                generation.clone(),
                scope,
                ByteString::from(name.as_str()),
            );
            let named = (item.server.settings.name.as_str(), item.exposed.as_str());
            if endpoint
                .decide(principal, ItemKind::Tools, named, &mut ())
                .is_visible()
            {
                paths.push(endpoint_path(name));
            }
        }
        paths.sort();
        paths
    }
}

impl Endpoint {
    /// Runs the decision about an item, and returns its rules.
    fn explain_item(&self, principal: &Principal, item: &ExplainedItem) -> Vec<ExplainedRule> {
        let mut rules = server_rules(item);
        // Reasons quote servers, whose texts may hold secrets or line breaks.
        rules
            .iter_mut()
            .for_each(|rule| rule.reason = logs::one_line(&logs::redact(&rule.reason)));
        let mut decision = RecordedDecision::default();
        self.decide(
            principal,
            ItemKind::Tools,
            (&item.server.settings.name, &item.exposed),
            &mut decision,
        );
        rules.extend(
            decision
                .0
                .iter()
                .filter_map(|recorded| self.explain_rule(*recorded, principal, item)),
        );
        // A refusal without its own rule is still a refusal.
        if !decision.allows() && rules.iter().all(|rule| rule.allows) {
            rules.push(plain_rule(
                &[],
                false,
                "this endpoint does not have the tool",
            ));
        }
        rules
    }
}

fn endpoint_path(name: &str) -> String {
    if name.is_empty() {
        "/mcp".to_owned()
    } else {
        format!("/mcp/{name}")
    }
}

/// Returns the paths of all endpoints, the one that resembles a name most first.
fn nearest_endpoints(generation: &Generation, name: &str) -> Vec<String> {
    let mut names: Vec<&String> = generation.scopes.keys().collect();
    // Equally near ones sort by spelling: the map has no order.
    names.sort_by_key(|other| {
        let edits = few_edits_or_beginning(name, other);
        (edits.is_none(), edits, *other)
    });
    names.into_iter().map(|name| endpoint_path(name)).collect()
}

fn expired_rule(principal: &Principal, at: impl std::fmt::Display) -> ExplainedRule {
    plain_rule(
        &["auth", "keys", &principal.name, "expires"],
        false,
        format!("the key has been refused since {at}"),
    )
}

fn endpoint_rule(generation: &Generation, principal: &Principal, path: &str) -> ExplainedRule {
    let names = generation
        .access
        .allowed_endpoints(principal.role())
        .into_iter()
        .flatten();
    let mut value: Vec<String> = names.cloned().collect();
    // A set has no order, and two explanations should be easy to compare.
    value.sort();
    let rule = plain_rule(
        &views_setting(&generation.access, principal),
        false,
        format!("{path} is not among them"),
    );
    ExplainedRule { value, ..rule }
}

#[cfg(test)]
mod tests;
