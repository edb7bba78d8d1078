//! Servers of a config.
//!
//! Owns the meaning of a server's settings, and what it takes from the defaults. Leaves the way to
//! reach it to `connect`. Invariant: a disabled server is checked only by its keys, so the
//! variables and files that it needs may be missing.

use std::time::Duration;

use http::header::AUTHORIZATION;

use super::network::NO_PROXY;
use super::resolver::PlanResolver;
use crate::file::ConfigFile;
use crate::problem::ProblemKind;
use crate::server_keys::{ItemFilters, Server, ServerOptions};
use crate::server_names::{self, is_name_character};
use crate::suggest::alternatives;
use crate::tree::ConfigPath;
use moongate_access::policy::{GlobList, ItemRules};
use moongate_model::ServerStart;
use moongate_transport::metadata_address::MetadataAccess;
use moongate_transport::proxy::ProxyAddress;
use moongate_upstream::{BackoffSettings, ConnectTarget, ServerPresentation, ServerSettings};

/// Value of `protocol` for the newest era of the server, in spite of the client's.
const NEWEST: &str = "newest";
/// Limit of an icon in bytes. Each client gets it with the first response.
const ICON_MAX: usize = 32 * 1024;
/// Limit of a prefix in characters.
const PREFIX_MAX: usize = 64;

impl PlanResolver<'_> {
    pub(super) fn servers(&mut self, file: &ConfigFile) -> Vec<ServerSettings> {
        let defaults = ConfigPath::of(&["defaults"]);
        // Separately, so that a mistake in the defaults is reported once, and even without a
        // server.
        self.server_options("", &defaults, &file.defaults);
        self.network(&defaults, &file.defaults);
        let mut servers = Vec::new();
        for (name, server) in &file.servers {
            let path = ConfigPath::of(&["servers", name]);
            self.server_name(name, &path);
            if self.tree.is_used(name, self.only) {
                if !file.auth.is_open() {
                    self.warn_of_forwarded_keys(server, &path);
                }
                servers.extend(self.server(name, server, &path));
            }
        }
        servers
    }

    /// Warns of a header that clients authenticate with. It is dropped, whatever the config says.
    fn warn_of_forwarded_keys(&mut self, server: &Server, path: &ConfigPath) {
        let names = server
            .forward_headers
            .iter()
            .flatten()
            .map(|(from, _)| from);
        for from in names.filter(|from| from.eq_ignore_ascii_case(AUTHORIZATION.as_str())) {
            let path = path.key("forward_headers").key(from);
            let message = format!(
                "`{path}` is never passed on, because it holds the client's key for this gateway"
            );
            self.warn(
                &path,
                message,
                "remove it; clients can send the server's credentials in another header",
            );
        }
    }

    fn server_name(&mut self, name: &str, path: &ConfigPath) {
        let Some(wrong) = server_names::name_problem(name) else {
            return;
        };
        let fix = match server_names::legal_name(name) {
            None => "give it a name of letters, digits, `-` and `_`".to_owned(),
            Some(legal) => format!("call it `{legal}`"),
        };
        self.error_at_key(
            ProblemKind::Value,
            path,
            format!("the name {name:?} {wrong}"),
            fix,
        );
    }

    fn server(&mut self, name: &str, server: &Server, path: &ConfigPath) -> Option<ServerSettings> {
        // Resolved without `?`: a problem of the connection must not hide those of other settings.
        let mut connect = self.connect(server, path);
        if let Some(ConnectTarget::Http { network, .. }) = &mut connect {
            *network = self.network(path, &server.options);
        }
        let common = self.server_options(name, path, &server.options);
        // Only the server's own `idle_stop`: the defaults always have one.
        let idle_stop = path.key("idle_stop");
        if common.options.start == ServerStart::Eager && self.is_written(&idle_stop) {
            let fix = "add `start = \"lazy\"`, or remove it";
            self.error_at_key(
                ProblemKind::Conflict,
                &idle_stop,
                format!("`{idle_stop}` only applies with `start = \"lazy\"`"),
                fix,
            );
        }
        Some(ServerSettings {
            presentation: ServerPresentation {
                title: server.title.clone(),
                icon: self.icon(&path.key("icon"), server.icon.as_deref()),
                description: server.description.clone(),
                ..common.presentation
            },
            connect: connect?,
            metadata: match server.allow_metadata {
                Some(true) => MetadataAccess::Allowed,
                Some(false) | None => MetadataAccess::Refused,
            },
            ..common
        })
    }

    /// Checks an icon. 2025-11-25/basic/index.mdx, `icons`: "Ensure that the icon URI is either a
    /// HTTPS or `data:` URI."
    fn icon(&mut self, path: &ConfigPath, icon: Option<&str>) -> Option<String> {
        let icon = icon?.trim();
        if !is_icon(icon) {
            let message = format!(
                "`{path}`: {} is not an icon that clients can display",
                self.quoted_value(path)
            );
            self.error(
                ProblemKind::Value,
                path,
                message,
                "write an https:// URL, or a small data:image/… one (at most 32 KiB)",
            );
            return None;
        }
        Some(icon.to_owned())
    }

    /// Resolves the settings that every server has. `connect` is a placeholder here.
    fn server_options(
        &mut self,
        name: &str,
        path: &ConfigPath,
        options: &ServerOptions,
    ) -> ServerSettings {
        self.backoff(path, options.connection.backoff);
        let protocol = self.protocol(path, &options.protocol);
        let connect = ConnectTarget::Stdio {
            command: String::new(),
            args: Vec::new(),
            env: Vec::new(),
            cwd: None,
        };
        ServerSettings {
            presentation: ServerPresentation {
                prefix: self.prefix(name, path, options.prefix.as_deref()),
                title: None,
                icon: None,
                description: None,
                tools: self.items(&path.key("tools"), &options.tools, true),
                resources: self.items(&path.key("resources"), &options.resources, false),
                prompts: self.items(&path.key("prompts"), &options.prompts, true),
            },
            live: options.live.clone(),
            options: options.connection.clone(),
            as_client: protocol.is_none(),
            protocol: protocol.filter(|protocol| protocol != NEWEST),
            // Set later: it is the gateway's setting.
            input_timeout: Duration::ZERO,
            ..ServerSettings::new(name, connect)
        }
    }

    fn backoff(&mut self, path: &ConfigPath, BackoffSettings { min, max }: BackoffSettings) {
        if min > max && !max.0.is_zero() {
            let path = path.key("backoff");
            let message = format!("`{path}`: `min` is longer than `max`");
            self.error_at_key(
                ProblemKind::Value,
                &path,
                message,
                "make `min` at most as long as `max`",
            );
        }
    }

    fn prefix(&mut self, name: &str, path: &ConfigPath, prefix: Option<&str>) -> String {
        let Some(prefix) = prefix else {
            return name.to_owned();
        };
        let path = path.key("prefix");
        let is_legal = prefix.chars().all(is_name_character) && prefix.len() <= PREFIX_MAX;
        if !is_legal && self.is_accepted(&path) {
            let message = format!(
                "`{path}`: {} cannot be used as a tool name prefix",
                self.quoted_value(&path)
            );
            self.error(
                ProblemKind::Value,
                &path,
                message,
                "use at most 64 letters, digits, `-` and `_`; \"\" for no prefix",
            );
        }
        prefix.to_owned()
    }

    fn protocol(&mut self, path: &ConfigPath, text: &str) -> Option<String> {
        let own = path.key("protocol");
        let path = match self.is_accepted(&own) {
            true => own,
            false => ConfigPath::of(&["defaults", "protocol"]),
        };
        // `client` is the former name of `auto`.
        if text == "auto" || text == "client" {
            return None;
        }
        if text != NEWEST && !self.revisions.contains(&text) {
            let message = format!(
                "`{path}`: {} is not a revision that Moongate supports",
                self.quoted_value(&path)
            );
            let words: Vec<&str> = ["auto", NEWEST]
                .into_iter()
                .chain(self.revisions.iter().copied())
                .collect();
            self.error(
                ProblemKind::Value,
                &path,
                message,
                format!("use {}", alternatives(&words)),
            );
        }
        Some(text.to_owned())
    }

    /// Resolves rules for items. Only what is written at `path` is checked here: the defaults are
    /// checked where they are written.
    fn items(&mut self, path: &ConfigPath, filters: &ItemFilters, renames: bool) -> ItemRules {
        if self.is_accepted(&path.key("rename")) {
            for (name, to) in filters.rename.iter().flatten() {
                self.rename(&path.key("rename").key(name), to, renames);
            }
        }
        for (key, patterns) in filters.patterns() {
            let path = path.key(key);
            if self.is_accepted(&path) {
                self.patterns(&path, patterns);
            }
        }
        let [allow, deny, hide] = filters
            .patterns()
            .map(|(_, patterns)| patterns.map_or_else(GlobList::default, |list| globs(list)));
        ItemRules {
            allow,
            deny,
            hide,
            rename: filters.rename.clone().unwrap_or_default(),
            describe: filters.describe.clone().unwrap_or_default(),
        }
    }

    fn rename(&mut self, path: &ConfigPath, to: &str, renames: bool) {
        if !renames {
            let message = format!("`{path}`: resources cannot be renamed");
            self.error_at_key(
                ProblemKind::Value,
                path,
                message,
                "remove it; resources keep their URIs",
            );
        } else if to.is_empty() || !to.chars().all(is_name_character) {
            let message = format!("`{path}`: {} cannot be a name", self.quoted_value(path));
            self.error(
                ProblemKind::Value,
                path,
                message,
                "use only letters, digits, `-` and `_`",
            );
        }
    }

    /// Compiles patterns, and reports invalid ones.
    pub(super) fn patterns(
        &mut self,
        path: &ConfigPath,
        patterns: Option<&Vec<String>>,
    ) -> Option<GlobList> {
        let patterns = patterns?;
        for (i, pattern) in patterns.iter().enumerate() {
            let path = path.item(i);
            if GlobList::new(std::slice::from_ref(pattern)).is_err() {
                let message = format!("`{path}`: {} is not a pattern", self.quoted_value(&path));
                let fix = "close every `[` and `{`; `*` matches any characters, `?` one, and `\\` \
                           escapes the next character";
                self.error(ProblemKind::Value, &path, message, fix);
            } else if pattern.is_empty() || pattern == "!" {
                let message = format!("`{path}` is an empty pattern");
                self.error(
                    ProblemKind::Value,
                    &path,
                    message,
                    "remove it; `*` matches everything",
                );
            }
        }
        Some(globs(patterns))
    }
}

/// Compiles patterns. Invalid ones were reported.
fn globs(patterns: &[String]) -> GlobList {
    GlobList::new(patterns).unwrap_or_default()
}

/// Returns true if the text of a server's key means something here.
pub(crate) fn is_text_usable(key: &str, text: &str) -> bool {
    match key {
        "icon" => is_icon(text.trim()),
        "prefix" => text.chars().all(is_name_character) && text.len() <= PREFIX_MAX,
        "proxy" => text.trim() == NO_PROXY || ProxyAddress::parse(text, String::new()).is_ok(),
        _ => true,
    }
}

/// Returns true for an icon that clients may show.
pub(super) fn is_icon(icon: &str) -> bool {
    let lower = icon.to_ascii_lowercase();
    // Schemes are compared without case (RFC 3986, section 3.1).
    let is_page = lower.starts_with("https://") && url::Url::parse(icon).is_ok();
    // Other schemes, such as `javascript:`, could run code in a client.
    (is_page || lower.starts_with("data:image/")) && icon.len() <= ICON_MAX
}
