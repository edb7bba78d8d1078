//! Locations of settings, for commands that show which line decides.
//!
//! Owns the search for a key in the merged layers. Does not read values (`load`). Invariant: a
//! setting that a server takes from the defaults has their location.

use super::collector::ProblemCollector;
use super::layers::read_layers;
use super::load::before;
use super::options::LoadOptions;
use super::problem::{ConfigProblems, ProblemOrigin};
use super::source::ConfigSources;
use super::tree::{ConfigNode, ConfigPath, ConfigValue};
use super::{merge, redact};

/// Most secrets that are reported. Each location costs as much as the text before it on its line.
const SECRETS_MAX: usize = 100;

/// Settings of a config with their locations.
pub struct SettingLocations {
    tree: ConfigNode,
    sources: ConfigSources,
}

/// Location of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingLocation {
    /// Path of the key, as messages write it.
    pub key: String,
    /// Origin of its value.
    pub origin: ProblemOrigin,
}

impl SettingLocations {
    /// Reads the layers of a config. Fails if a file cannot be read or parsed.
    pub fn read(options: &LoadOptions<'_>) -> Result<Self, ConfigProblems> {
        let mut faults = ProblemCollector::default();
        let mut sources = ConfigSources::default();
        let layers = read_layers(options, &mut sources, &mut faults)?;
        let tree = merge::merge(&layers)
            .unwrap_or_else(|_| ConfigNode::table(super::tree::SourceSpan::BUILT_IN));
        Ok(SettingLocations { tree, sources })
    }

    /// Finds a key by its path. Items of a list go by their `name`. `None`: nobody wrote it.
    pub fn find(&self, keys: &[String]) -> Option<SettingLocation> {
        // The root isn't a setting. Its location would be that of whatever came first.
        if keys.is_empty() {
            return None;
        }
        let own = self.path(keys);
        let defaults = match keys {
            [servers, _, rest @ ..] if servers == "servers" && !rest.is_empty() => {
                self.path(&[&["defaults".to_owned()], rest].concat())
            }
            _ => None,
        };
        [own, defaults].into_iter().flatten().find_map(|path| {
            let node = self.tree.at(&path)?;
            // A table may span the whole file, so its key marks the location.
            let span = if matches!(node.value, ConfigValue::Table(_)) {
                node.key
            } else {
                node.span
            };
            let origin = self.sources.origin(span);
            (origin != ProblemOrigin::Nowhere).then(|| SettingLocation {
                key: path.to_string(),
                origin,
            })
        })
    }

    /// Finds the secrets that are in files in clear, by their names. The first hundred will do.
    pub fn literal_secrets(&self) -> Vec<SettingLocation> {
        let mut found = Vec::new();
        self.collect_secrets(&self.tree, &ConfigPath::root(), &mut found);
        found
    }

    fn collect_secrets(
        &self,
        node: &ConfigNode,
        path: &ConfigPath,
        found: &mut Vec<SettingLocation>,
    ) {
        match &node.value {
            _ if found.len() == SECRETS_MAX => {}
            ConfigValue::Table(table) => {
                table
                    .iter()
                    .for_each(|(key, child)| self.collect_secrets(child, &path.key(key), found));
            }
            ConfigValue::List(items) => {
                items
                    .iter()
                    .enumerate()
                    .for_each(|(at, item)| self.collect_secrets(item, &path.item(at), found));
            }
            ConfigValue::Text(text) => {
                if !redact::is_surely_secret(path, text, before(&self.tree, path)) {
                    return;
                }
                let origin = self.sources.origin(node.span);
                if matches!(origin, ProblemOrigin::File { .. }) {
                    found.push(SettingLocation {
                        key: path.to_string(),
                        origin,
                    });
                }
            }
            _ => {}
        }
    }

    fn path(&self, keys: &[String]) -> Option<ConfigPath> {
        let mut path = ConfigPath::root();
        for key in keys {
            path = match &self.tree.at(&path)?.value {
                ConfigValue::List(items) => {
                    let index = items.iter().position(|item| {
                        item.child("name").and_then(ConfigNode::as_text) == Some(key)
                    });
                    path.item(index?)
                }
                _ => path.key(key),
            };
        }
        Some(path)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_key_has_the_line_of_its_value() {
        let text = "[defaults]\ntools = { deny = ['x'] }\n[servers.a]\nurl = 'http://a.example'\n\
                    [servers.b]\nurl = 'http://b.example'\ntools.deny = ['y']\n\
                    [[auth.keys]]\nname = 'ci'\ntools = ['*']\n[[auth.keys]]\nname = 'x'\nkey = \
                    'mg_secret'\n\
                    [servers.c]\ncommand = 'x'\nargs = ['--token', 's3cr3t']\n\
                    env = \
                    { API_KEY = 'abc', LOG = 'debug', TOKEN = '${TOKEN}', DB = 'pg://ada:s3cret@db/x' }\n\
                    [servers.d]\ncommand = 'x'\nargs = ['pg://ada:s3cret@db', \
                    'pg://ada:${PW}@db']\n";
        let path = PathBuf::from("m.toml");
        let options = LoadOptions {
            texts: [(path.clone(), text.to_owned())].into(),
            paths: vec![path],
            ..LoadOptions::default()
        };
        let locations = SettingLocations::read(&options).unwrap();
        assert_eq!(
            find(&locations, &["servers", "a", "tools", "deny"]),
            Some(("defaults.tools.deny".to_owned(), 2))
        );
        assert_eq!(
            find(&locations, &["servers", "b", "tools", "deny"]),
            Some(("servers.b.tools.deny".to_owned(), 7))
        );
        assert_eq!(
            find(&locations, &["auth", "keys", "ci", "tools"]),
            Some(("auth.keys[0].tools".to_owned(), 10))
        );
        assert_eq!(
            find(&locations, &["servers", "b"]),
            Some(("servers.b".to_owned(), 5))
        );
        let secrets: Vec<String> = locations
            .literal_secrets()
            .into_iter()
            .map(|secret| secret.key)
            .collect();
        let of_servers = [
            "servers.c.args[1]",
            "servers.c.env.API_KEY",
            "servers.c.env.DB",
            "servers.d.args[0]",
        ];
        assert_eq!(secrets, [&["auth.keys[1].key"], &of_servers[..]].concat());
        assert_eq!(find(&locations, &["auth", "keys", "cd"]), None);
        assert_eq!(find(&locations, &["views", "v", "tools"]), None);
    }

    /// Finds the key and the line of a setting.
    fn find(locations: &SettingLocations, keys: &[&str]) -> Option<(String, usize)> {
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        let location = locations.find(&keys)?;
        let ProblemOrigin::File { line, .. } = location.origin else {
            panic!("{location:?}")
        };
        Some((location.key, line))
    }
}
