//! Tests of explained decisions, against what calls are really allowed.

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
        let Some(endpoint) = self.gateway.endpoints().find_endpoint(endpoint, &principal) else {
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
