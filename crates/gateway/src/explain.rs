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
        // The walk goes on after this refusal. Otherwise people repair one rule and only then meet
        // the next.
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
mod tests {

    use http::HeaderMap;
    use proptest::prelude::*;

    use super::*;
    use crate::ViewRules;
    use crate::testing::gateway_of;
    use moongate_access::auth::{KeyHash, KeySettings};
    use moongate_access::policy::{GlobList, ItemRules};
    use moongate_jsonrpc::json::{JsonObject, RawJson};
    use moongate_model::{Call, Caller, McpMethod};
    use moongate_upstream::{ConnectTarget, ItemList, ServerLists, ServerSettings};

    /// Gateway over the servers `a` and `b` with the tools `get`, `put` and `del`.
    struct ExplainRig {
        gateway: Arc<Gateway>,
        auth: Arc<AuthMethods>,
    }

    fn globs(patterns: &[&str]) -> GlobList {
        GlobList::new(&patterns.iter().map(|&p| p.to_owned()).collect::<Vec<_>>()).unwrap()
    }

    fn server(name: &str, tools: ItemRules) -> ServerSettings {
        let connect = ConnectTarget::Stdio {
            command: "none".to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            cwd: None,
        };
        let mut settings = ServerSettings::new(name, connect);
        settings.presentation.tools = tools;
        settings
    }

    fn key(tools: GlobList, views: Option<Vec<String>>, is_expired: bool) -> KeySettings {
        let expires = is_expired.then(|| "2020-01-01T00:00:00Z".parse().unwrap());
        KeySettings {
            name: "ci".to_owned(),
            hash: KeyHash::of("mg_ci"),
            role: None,
            views,
            tools,
            rate: None,
            expires,
        }
    }

    fn view(servers: Option<&[&str]>, tools: GlobList) -> ViewRules {
        let servers = servers.map(|names| names.iter().map(|&name| name.to_owned()).collect());
        ViewRules {
            name: "v".to_owned(),
            servers,
            tools,
            schema: None,
            search: None,
        }
    }

    fn tool(name: &str) -> Arc<JsonObject> {
        let schema = if name == "bad" {
            "[]"
        } else {
            r#"{"type":"object"}"#
        };
        let text = format!(r#"{{"name":"{name}","inputSchema":{schema}}}"#);
        Arc::new(JsonObject::parse(text.into()).unwrap())
    }

    impl ExplainRig {
        fn new(
            servers: Vec<ServerSettings>,
            views: Vec<ViewRules>,
            keys: Vec<KeySettings>,
        ) -> ExplainRig {
            let (gateway, auth) = gateway_of(servers, views, keys);
            for entry in gateway.servers() {
                let mut lists = ServerLists::default();
                let items = ["get", "put", "del", "bad"].map(tool).to_vec();
                // The lists of `new` are not known yet.
                if entry.settings.name != "new" {
                    lists.set(
                        ItemKind::Tools,
                        ItemList {
                            items,
                            ..ItemList::default()
                        },
                    );
                }
                entry.serve_lists(lists);
            }
            gateway.rebuild_catalog();
            ExplainRig { gateway, auth }
        }

        fn explain(&self, endpoint: &str, tool: &str) -> ToolExplanation {
            self.gateway
                .explain_tool(&self.auth, "ci", endpoint, tool)
                .unwrap()
        }

        /// Resolves a real call, as `tools/call` does.
        fn can_call(&self, endpoint: &str, tool: &str) -> bool {
            let mut headers = HeaderMap::new();
            headers.insert("x-api-key", "mg_ci".parse().unwrap());
            let Ok(identity) = self.auth.authenticate(&headers, endpoint, None) else {
                return false;
            };
            let principal = identity.principal;
            let Some(endpoint) = self.gateway.endpoints().find_endpoint(endpoint, &principal)
            else {
                return false;
            };
            let caller = Caller {
                principal,
                ..(*moongate_testing::caller(0, None)).clone()
            };
            let params = JsonObject::new().with("name", RawJson::string(tool));
            endpoint
                .route(&caller, &mut Call::new(McpMethod::CallTool, params))
                .is_ok()
        }
    }

    /// Name of the case, its gateway, endpoint and tool, and the key of the rule that decides.
    type ExplainCase = (
        &'static str,
        ExplainRig,
        &'static str,
        &'static str,
        &'static str,
    );

    fn rig_of(server: ServerSettings, view: ViewRules, key: KeySettings) -> ExplainRig {
        ExplainRig::new(vec![server], vec![view], vec![key])
    }

    fn plain_server() -> ServerSettings {
        server("a", ItemRules::allow_all())
    }

    fn whole_view() -> ViewRules {
        view(None, GlobList::all())
    }

    fn whole_key() -> KeySettings {
        key(GlobList::all(), None, false)
    }

    fn plain_rig() -> ExplainRig {
        rig_with(whole_view(), whole_key())
    }

    fn rig_with(view: ViewRules, key: KeySettings) -> ExplainRig {
        rig_of(plain_server(), view, key)
    }

    fn key_of_view() -> KeySettings {
        key(GlobList::all(), Some(vec!["v".to_owned()]), false)
    }

    fn with_rules(allow: &[&str], deny: &[&str]) -> ExplainRig {
        let rules = ItemRules {
            allow: globs(allow),
            deny: globs(deny),
            ..ItemRules::default()
        };
        rig_of(server("a", rules), whole_view(), whole_key())
    }

    /// Cases that neither a view nor a key decides.
    fn cases_of_servers() -> [ExplainCase; 8] {
        [
            ("yes", plain_rig(), "", "a__get", ""),
            ("off", plain_rig(), "", "away__get", "servers.off.enabled"),
            ("nowhere", plain_rig(), "", "x__get", ""),
            ("not listed", plain_rig(), "", "a__nothing", "servers.a"),
            ("left out", plain_rig(), "", "a__bad", "servers.a"),
            (
                "allow",
                with_rules(&["put"], &[]),
                "",
                "a__get",
                "servers.a.tools.allow",
            ),
            (
                "deny",
                with_rules(&["*"], &["g*"]),
                "",
                "a__get",
                "servers.a.tools.deny",
            ),
            (
                "own names",
                with_rules(&["*"], &["get"]),
                "a",
                "get",
                "servers.a.tools.deny",
            ),
        ]
    }

    /// Cases that a view or a key decides.
    fn cases_of_views_and_keys() -> [ExplainCase; 6] {
        [
            (
                "expired",
                rig_with(whole_view(), key(GlobList::all(), None, true)),
                "",
                "a__get",
                "auth.keys.ci.expires",
            ),
            (
                "key's views",
                rig_with(whole_view(), key_of_view()),
                "a",
                "get",
                "auth.keys.ci.views",
            ),
            (
                "view's servers",
                rig_with(view(Some(&["b"]), GlobList::all()), whole_key()),
                "v",
                "a__get",
                "views.v.servers",
            ),
            (
                "view's tools",
                rig_with(view(None, globs(&["*put"])), whole_key()),
                "v",
                "a__get",
                "views.v.tools",
            ),
            (
                "union",
                rig_with(view(None, globs(&["*put"])), key_of_view()),
                "",
                "a__get",
                "auth.keys.ci.views",
            ),
            (
                "key's tools",
                rig_with(whole_view(), key(globs(&["*", "!*get"]), None, false)),
                "",
                "a__get",
                "auth.keys.ci.tools",
            ),
        ]
    }

    #[tokio::test]
    async fn each_rule_that_can_decide_is_named() {
        let cases = cases_of_servers()
            .into_iter()
            .chain(cases_of_views_and_keys());
        for (what, rig, endpoint, tool, expected) in cases {
            let explanation = rig.explain(endpoint, tool);
            let deciding = explanation.rules.iter().find(|rule| rule.decides);
            assert_eq!(
                explanation.callable,
                rig.can_call(endpoint, tool),
                "{what}: {explanation:?}"
            );
            assert_eq!(
                deciding.is_none(),
                explanation.callable,
                "{what}: {explanation:?}"
            );
            assert!(
                what != "expired" || explanation.other_endpoints.is_empty(),
                "{explanation:?}"
            );
            assert_eq!(
                deciding.map(|rule| rule.key.join(".")).unwrap_or_default(),
                expected,
                "{what}: {explanation:?}"
            );
        }
    }

    #[tokio::test]
    async fn an_unknown_list_and_an_unknown_key_are_told() {
        let rig = ExplainRig::new(
            vec![server("new", ItemRules::allow_all())],
            Vec::new(),
            vec![key(GlobList::all(), None, false)],
        );
        let explanation = rig.explain("", "new__get");
        assert!(explanation.callable);
        assert_eq!(explanation.listed, None);
        assert_eq!(explanation.local_name.as_deref(), Some("get"));
        let unknown = rig
            .gateway
            .explain_tool(&rig.auth, "cd", "", "new__get")
            .unwrap_err();
        assert_eq!(unknown.to_string(), "no key \"cd\"; known: ci");
    }

    #[tokio::test]
    async fn an_unknown_endpoint_and_a_mistyped_tool_get_the_nearest_name() {
        let servers = ["a", "github"]
            .map(|name| server(name, ItemRules::allow_all()))
            .to_vec();
        let rig = ExplainRig::new(servers, Vec::new(), vec![key(GlobList::all(), None, false)]);
        for (endpoint, known) in [
            ("gihub", "/mcp/github, /mcp, /mcp/a"),
            ("zzzz", "/mcp, /mcp/a, /mcp/github"),
        ] {
            let unknown = rig
                .gateway
                .explain_tool(&rig.auth, "ci", endpoint, "get")
                .unwrap_err();
            assert_eq!(
                unknown.to_string(),
                format!("no endpoint \"/mcp/{endpoint}\"; known: {known}")
            );
        }
        for (endpoint, tool, expected) in [
            (
                "",
                "github__gt",
                "the server lists no tool gt; did you mean github__get?",
            ),
            (
                "",
                "gihub__get",
                "no server has a tool of this name; did you mean github__get?",
            ),
            (
                "a",
                "puut",
                "the server lists no tool puut; did you mean put?",
            ),
            ("a", "nothing", "the server lists no tool nothing"),
        ] {
            assert_eq!(rig.explain(endpoint, tool).rules[0].reason, expected);
        }
    }

    fn patterns() -> impl Strategy<Value = GlobList> {
        let pattern = prop::sample::select(vec![
            "*", "get", "*get", "a__*", "!put", "!a__*", "p*", "!*del", "b__put",
        ]);
        prop::collection::vec(pattern, 0..4).prop_map(|patterns| globs(&patterns))
    }

    fn item_rules() -> impl Strategy<Value = ItemRules> {
        let rename = prop::option::of(prop::sample::select(vec!["get", "fetch"]));
        (patterns(), patterns(), patterns(), rename).prop_map(|(allow, deny, hide, to)| {
            let rename = to
                .map(|to| ("put".to_owned(), to.to_owned()))
                .into_iter()
                .collect();
            ItemRules {
                allow,
                deny,
                hide,
                rename,
                ..ItemRules::default()
            }
        })
    }

    proptest! {
        #[test]
        fn an_explanation_says_what_a_call_does(
            (a, b) in (item_rules(), item_rules()),
            servers in prop::option::of(prop::sample::subsequence(vec!["a", "b"], 0..=2)),
            (view_tools, key_tools) in (patterns(), patterns()),
            views in prop::option::of(prop::sample::subsequence(vec!["a", "b", "v"], 0..=3)),
            is_expired in prop::bool::weighted(0.1),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let _entered = runtime.enter();
            let views = views.map(|names| names.into_iter().map(str::to_owned).collect());
            let view = view(servers.as_deref(), view_tools);
            let rig = ExplainRig::new(vec![server("a", a), server("b", b)], vec![view],
                vec![key(key_tools, views, is_expired)]);
            for endpoint in ["", "a", "b", "v"] {
                for tool in ["a__get", "b__get", "a__put", "b__put", "a__fetch", "b__del", "get",
                    "put", "fetch", "a__bad", "c__x"] {
                    let explanation = rig.explain(endpoint, tool);
                    prop_assert_eq!(explanation.callable, rig.can_call(endpoint, tool),
                        "{} {} {:?}", endpoint, tool, explanation);
                    prop_assert_eq!(explanation.callable,
                        explanation.rules.iter().all(|rule| !rule.decides));
                }
            }
        }
    }
}
