//! Keys and values that this version does not have.
//!
//! Owns their list, with advice for each. Does not look for them (`check`). Invariant: no key here
//! exists.

/// Keys and values of Moongate's design that this version does not have. Each has its path (`*` for
/// any name or index), the value if only that one is missing, and a fix.
pub(super) const UNAVAILABLE: &[(&str, Option<&str>, &str)] = &[
    (
        "gateway.state",
        Some("redis"),
        "use \"embedded\"; sessions are not shared between gateways",
    ),
    (
        "gateway.workers",
        None,
        "remove it; there is a worker for each core",
    ),
    (
        "servers.*.auth.per",
        None,
        "remove it; everybody uses the server with the same login",
    ),
    (
        "servers.*.oauth",
        None,
        "use `auth`, or only `moongate login`",
    ),
    (
        "servers.*.headersHelper",
        None,
        "use `auth` with `type = \"command\"`",
    ),
    ("servers.*.pin", None, "remove it"),
    ("servers.*.pin_new", None, "remove it"),
    ("servers.*.inspect", None, "remove it"),
    (
        "servers.*.place",
        None,
        "remove it; each gateway makes its own connections",
    ),
    (
        "servers.*.sandbox",
        None,
        "start the server through a sandbox, as its `command`",
    ),
    (
        "servers.*.rate",
        None,
        "use `max_concurrency`, or a key's `rate`",
    ),
    (
        "servers.*.tools.ask",
        None,
        "use `tools.deny` for tools that nobody may call",
    ),
    ("servers.*.tools.ask_remember", None, "remove it"),
    (
        "servers.*.tools.when_hint",
        None,
        "use `tools.allow` and `tools.deny`",
    ),
    (
        "servers.*.resources.ask",
        None,
        "use `resources.deny` for those that nobody may read",
    ),
    (
        "servers.*.prompts.ask",
        None,
        "use `prompts.deny` for those that nobody may get",
    ),
    ("views.*.ask", None, "leave the tools out of `tools`"),
    ("views.*.when_hint", None, "leave the tools out of `tools`"),
    (
        "auth.keys.*.roles",
        None,
        "use `role`, with one role for each key",
    ),
    (
        "auth.oauth.provider",
        Some("okta"),
        "use `issuer`, the URL of its authorization server",
    ),
    (
        "auth.oauth.provider",
        Some("keycloak"),
        "use `issuer`, the URL of its realm",
    ),
    (
        "auth.oauth.idle",
        None,
        "remove it; unused logins end after 30 days",
    ),
    (
        "auth.oauth.recheck_grace",
        None,
        "remove it; people stay logged in for a day while nobody can ask about them",
    ),
    (
        "telemetry.otlp",
        None,
        "remove it; metrics are served on `gateway.admin`",
    ),
    ("admin.registry", None, "remove it"),
    (
        "admin.trusted_proxies",
        None,
        "remove it; through a proxy, send a key of `admin.keys`",
    ),
    ("telemetry.sample", None, "remove it; there are no traces"),
    (
        "search",
        None,
        "remove it; `discovery = \"search\"` switches search mode on",
    ),
    ("audit", None, "remove it; refusals and failures are logged"),
    ("cluster", None, "remove it; gateways share no state"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{ConfigSchema, SchemaRule};

    /// Follows one step of a path, `*` for any name or index.
    fn child<'a>(rule: SchemaRule<'a>, step: &str) -> Option<SchemaRule<'a>> {
        rule.choices()
            .into_iter()
            .find_map(|rule| match (step, rule.items()) {
                ("*", Some(items)) => Some(items),
                _ => rule.key(step),
            })
    }

    #[test]
    fn no_key_of_this_list_exists() {
        let schema = ConfigSchema::read();
        let exists = |path: &str| {
            let rule = path.split('.').try_fold(schema.root(), child);
            rule.is_some()
        };
        assert!(exists("servers.*.tools.deny") && exists("auth.keys.*.views"));
        let missing = UNAVAILABLE.iter().filter(|(_, value, _)| value.is_none());
        let found: Vec<&str> = missing
            .map(|(path, ..)| *path)
            .filter(|path| exists(path))
            .collect();
        assert!(found.is_empty(), "the schema has {found:?}");
    }
}
