//! Tools of the resolver: problems with their locations, and URLs.
//!
//! Owns its inputs. Does not know keys. Invariant: no message quotes a value that may be secret.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::collector::ProblemCollector;
use crate::problem::ProblemKind;
use crate::redact;
use crate::source::ConfigSources;
use crate::suggest::{alternatives, listed};
use crate::tree::{ConfigNode, ConfigPath, ConfigValue};
use moongate_platform::Platform;
use moongate_search::nearest;

/// Inputs of the resolver besides the keys.
pub(crate) struct PlanResolver<'a> {
    /// Merged tree, before any value was removed. It has the spans, and shows which keys were
    /// written.
    pub(crate) tree: &'a ConfigNode,
    /// The same tree without the values that the check rejected.
    pub(crate) checked: &'a ConfigNode,
    pub(crate) faults: &'a mut ProblemCollector,
    /// Protocol revisions that a server can be made to speak.
    pub(crate) revisions: &'a [&'a str],
    /// Servers of `--only`. All servers if empty.
    pub(crate) only: &'a [String],
    /// Variables of the environment.
    pub(crate) env: &'a BTreeMap<String, String>,
    /// Sources of the config, for paths relative to a file.
    pub(crate) sources: &'a ConfigSources,
    /// Files that settings name. They are watched like the config itself.
    pub(crate) files: &'a mut Vec<PathBuf>,
    /// Abilities of the system that the config is for.
    pub(crate) platform: Platform,
}

impl<'a> PlanResolver<'a> {
    /// Reports a problem with the value at a path.
    pub(super) fn error(
        &mut self,
        kind: ProblemKind,
        path: &ConfigPath,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let node = self.tree.nearest_node(path);
        // A table may span the whole file, so its key marks the location.
        let span = if matches!(node.value, ConfigValue::Table(_)) {
            node.key
        } else {
            node.span
        };
        self.faults
            .for_setting(path)
            .error(kind, span, message, fix);
    }

    /// Reports a problem with the key at a path.
    pub(super) fn error_at_key(
        &mut self,
        kind: ProblemKind,
        path: &ConfigPath,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let span = self.tree.nearest_node(path).key;
        self.faults
            .for_setting(path)
            .error(kind, span, message, fix);
    }

    pub(super) fn warn(
        &mut self,
        path: &ConfigPath,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let span = self.tree.nearest_node(path).span;
        self.faults
            .for_setting(path)
            .warn(ProblemKind::Value, span, message, fix);
    }

    /// True if a key was written, even with a wrong value.
    pub(super) fn is_written(&self, path: &ConfigPath) -> bool {
        self.tree.at(path).is_some()
    }

    /// True if the value of a key is the one written there. Behind a rejected one the default
    /// holds, which is judged where it is written.
    pub(super) fn is_accepted(&self, path: &ConfigPath) -> bool {
        self.checked.at(path).is_some()
    }

    /// Value at a path in the form in which a message may quote it.
    pub(super) fn quoted_value(&self, path: &ConfigPath) -> String {
        self.tree.at(path).map_or_else(
            || "its value".to_owned(),
            |node| redact::quoted_value(node, path),
        )
    }

    /// Parses an absolute URL without credentials.
    pub(super) fn url(
        &mut self,
        path: &ConfigPath,
        text: &str,
        schemes: &[&str],
    ) -> Option<url::Url> {
        let example = "write a full URL, such as \"https://example.com/mcp\"";
        let url = match url::Url::parse(text.trim()) {
            Ok(url) => url,
            Err(error) => {
                let wrong = match error {
                    url::ParseError::RelativeUrlWithoutBase => {
                        let starts: Vec<String> = schemes
                            .iter()
                            .map(|scheme| format!("{scheme}://"))
                            .collect();
                        let starts: Vec<&str> = starts.iter().map(String::as_str).collect();
                        format!("does not start with {}", alternatives(&starts))
                    }
                    error => format!("is not a URL: {error}"),
                };
                let message = format!("`{path}`: {} {wrong}", self.quoted_value(path));
                self.error(ProblemKind::Value, path, message, example);
                return None;
            }
        };
        if !schemes.contains(&url.scheme()) || url.host().is_none() {
            let message = format!(
                "`{path}`: {} is not an {} URL",
                self.quoted_value(path),
                alternatives(schemes)
            );
            self.error(ProblemKind::Value, path, message, example);
            return None;
        }
        // A URL shows up in logs and in the status, so credentials don't belong in it.
        if !url.username().is_empty() || url.password().is_some() {
            let message = format!("`{path}`: credentials in a URL are not sent");
            self.error(
                ProblemKind::Value,
                path,
                message,
                "send them with `headers`, as `Authorization`",
            );
            return None;
        }
        Some(url)
    }

    /// Names of all servers of the config, used or not.
    pub(super) fn server_names(&self) -> Vec<&'a str> {
        self.names_in("servers")
    }

    pub(super) fn names_in(&self, table: &str) -> Vec<&'a str> {
        let tree: &'a ConfigNode = self.tree;
        let table = tree.child(table).and_then(ConfigNode::as_table);
        table
            .into_iter()
            .flat_map(|table| table.keys())
            .map(String::as_str)
            .collect()
    }
}

/// Returns the fix for a name that does not exist.
pub(super) fn unknown_name_fix(name: &str, names: &[&str], what: &str) -> String {
    match nearest(name, names) {
        Some(known) => format!("did you mean `{known}`?"),
        None if names.is_empty() => format!("there are no {what}"),
        None => format!("the {what} are {}", listed(names)),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use crate::load::load;
    use crate::options::LoadOptions;

    const TEXT: &str = r#"
[defaults]
proxy = "proxy.corp:port"
prefix = "a b"
protocol = "1999"
tools = { deny = ["["] }

[servers.a]
url = "https://a.example/mcp"
proxy = 5
prefix = 5
protocol = 5
tools = { deny = 5 }
"#;

    #[test]
    fn a_default_is_not_judged_at_the_server_whose_own_value_was_rejected() {
        let path = PathBuf::from("a.toml");
        let options = LoadOptions {
            paths: vec![path.clone()],
            texts: [(path, TEXT.to_owned())].into(),
            ..LoadOptions::default()
        };
        let errors = load(&options).unwrap_err().errors;
        for key in ["proxy", "prefix", "protocol", "tools.deny"] {
            for table in ["defaults", "servers.a"] {
                let place = format!("`{table}.{key}");
                let found: Vec<&str> = errors
                    .iter()
                    .map(|error| error.message.as_str())
                    .filter(|message| message.starts_with(&place))
                    .collect();
                assert_eq!(found.len(), 1, "{place}: {found:?}");
            }
        }
    }
}
