//! References to variables that an operator without `admin.allow_commands` may write.
//!
//! Owns the search for references in settings, and which of them the config has already. Does not
//! replace them (`expand`). Invariant: a variable goes to no origin that the owner's config does
//! not send it to.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::guarded_settings::power_settings;
use crate::collector::ProblemCollector;
use crate::layers::read_layers;
use crate::merge;
use crate::options::LoadOptions;
use crate::popular::popular_servers;
use crate::source::ConfigSources;

/// Levels of a value that are searched. No setting of a server has more.
const DEPTH_MAX: usize = 16;

/// Variables that servers of the config refer to, each with the origin that it is sent to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownReferences(BTreeSet<KnownReference>);

/// Variable that goes to an origin, through a proxy if that is set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct KnownReference {
    origin: String,
    proxy: Option<String>,
    variable: String,
}

/// Setting that needs `admin.allow_commands`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardedSetting {
    /// Path of the setting below the server's entry.
    pub path: String,
    /// Variable that it refers to, if the reference is the reason.
    pub variable: Option<String>,
}

impl From<String> for GuardedSetting {
    fn from(path: String) -> Self {
        GuardedSetting {
            path,
            variable: None,
        }
    }
}

impl KnownReferences {
    /// Reads the references of a config, as its files and variables are merged. One that cannot be
    /// read has none.
    pub fn read(options: &LoadOptions<'_>) -> KnownReferences {
        let mut known = KnownReferences::default();
        let read = read_layers(
            options,
            &mut ConfigSources::default(),
            &mut ProblemCollector::default(),
        );
        // A later layer decides where a server is, and so where its variables go.
        let merged = read.ok().and_then(|layers| merge::merge(&layers).ok());
        let servers = merged
            .as_ref()
            .and_then(|merged| merged.child("servers")?.as_table());
        for server in servers.into_iter().flat_map(BTreeMap::values) {
            server
                .to_json(&|_, _| None)
                .as_object()
                .into_iter()
                .for_each(|settings| known.add(settings));
        }
        // The program's own table names the variable of each vendor for the vendor's own address.
        for server in popular_servers() {
            if let (Some(url), Some(key)) = (&server.url, &server.key) {
                let headers = json!({ "url": url, "headers": { &key.header: key.value } });
                headers
                    .as_object()
                    .into_iter()
                    .for_each(|settings| known.add(settings));
            }
        }
        known
    }

    fn add(&mut self, settings: &Map<String, Value>) {
        let Some(origin) = settings.get("url").and_then(Value::as_str).and_then(origin) else {
            return;
        };
        let proxy = proxy(settings);
        for (_, text) in sent_texts(settings) {
            let variables = references(text).flatten();
            self.0.extend(variables.map(|variable| KnownReference {
                origin: origin.clone(),
                proxy: proxy.clone(),
                variable: variable.to_owned(),
            }));
        }
    }

    /// Lists the settings of a new server that need `admin.allow_commands`: what it starts, reads
    /// or is sent, and references that no server of the same origin has.
    pub fn guarded_settings(&self, settings: &Map<String, Value>) -> Vec<GuardedSetting> {
        let powers = power_settings(settings);
        let mut unknown = self.unknown_references(settings);
        // Such a setting is refused as a whole, whatever else is in it.
        unknown.retain(|found| !powers.iter().any(|power| is_within(&found.path, power)));
        let powers = powers.into_iter().map(GuardedSetting::from);
        powers.chain(unknown).collect()
    }

    /// Lists the references that are not known for the server's origin.
    fn unknown_references(&self, settings: &Map<String, Value>) -> Vec<GuardedSetting> {
        let origin = settings.get("url").and_then(Value::as_str).and_then(origin);
        let proxy = proxy(settings);
        let sent: BTreeSet<String> = sent_texts(settings).map(|(path, _)| path).collect();
        let mut found = Vec::new();
        for (path, text) in all_texts(settings) {
            let is_sent = sent.contains(&path);
            let mut unknown: BTreeSet<Option<&str>> = references(text).collect();
            unknown.retain(|variable| {
                !(is_sent && self.sends(*variable, origin.as_ref(), proxy.as_ref()))
            });
            found.extend(guarded_by(&path, unknown));
        }
        found
    }

    /// True if the config sends a variable to this origin, through this proxy.
    fn sends(
        &self,
        variable: Option<&str>,
        origin: Option<&String>,
        proxy: Option<&String>,
    ) -> bool {
        let (Some(variable), Some(origin)) = (variable, origin) else {
            return false;
        };
        self.0.contains(&KnownReference {
            origin: origin.clone(),
            proxy: proxy.cloned(),
            variable: variable.to_owned(),
        })
    }
}

/// Lists the settings that refer to more than they did before.
pub(super) fn added_references(
    before: &Map<String, Value>,
    after: &Map<String, Value>,
) -> Vec<GuardedSetting> {
    let known = all_texts(before);
    let mut found = Vec::new();
    for (path, text) in all_texts(after) {
        let mut added: BTreeSet<Option<&str>> = references(text).collect();
        if let Some((_, old)) = known.iter().find(|(other, _)| *other == path) {
            let old: BTreeSet<Option<&str>> = references(old).collect();
            added.retain(|variable| !old.contains(variable));
        }
        found.extend(guarded_by(&path, added));
    }
    found
}

/// Describes a setting that is guarded for each of these references.
fn guarded_by<'a>(
    path: &'a str,
    references: BTreeSet<Option<&'a str>>,
) -> impl Iterator<Item = GuardedSetting> + use<'a> {
    references.into_iter().map(|variable| GuardedSetting {
        path: path.to_owned(),
        variable: variable.map(str::to_owned),
    })
}

/// True if a path is that of a setting, or leads into it.
pub(super) fn is_within(path: &str, setting: &str) -> bool {
    path.strip_prefix(setting)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Returns the texts that go to the server's own address: its URL and its headers.
fn sent_texts(settings: &Map<String, Value>) -> impl Iterator<Item = (String, &str)> {
    let url = settings
        .get("url")
        .and_then(Value::as_str)
        .map(|text| ("url".to_owned(), text));
    let headers = settings
        .get("headers")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let headers =
        headers.filter_map(|(name, value)| Some((format!("headers.{name}"), value.as_str()?)));
    url.into_iter().chain(headers)
}

/// Returns all texts of settings, each with its path. A value that nests deeper than any setting is
/// one reference.
fn all_texts(settings: &Map<String, Value>) -> Vec<(String, &str)> {
    let mut found = Vec::new();
    let mut open: Vec<(String, &Value, usize)> = settings
        .iter()
        .map(|(key, value)| (key.clone(), value, 0))
        .collect();
    while let Some((path, value, depth)) = open.pop() {
        match value {
            Value::String(text) => found.push((path, text.as_str())),
            Value::Array(_) | Value::Object(_) if depth > DEPTH_MAX => found.push((path, "${}")),
            Value::Array(items) => {
                open.extend(
                    items
                        .iter()
                        .enumerate()
                        .map(|(at, item)| (format!("{path}[{at}]"), item, depth + 1)),
                );
            }
            Value::Object(members) => {
                open.extend(
                    members
                        .iter()
                        .map(|(key, value)| (format!("{path}.{key}"), value, depth + 1)),
                );
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    found.sort_unstable();
    found
}

/// Returns the variables that a text refers to, those in defaults included. `None` is a reference
/// that names no variable.
fn references(text: &str) -> impl Iterator<Item = Option<&str>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            rest = &rest[rest.find('$')? + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                rest = after;
            } else if let Some(after) = rest.strip_prefix('{') {
                // Continues right after the brace, because a default may contain references itself.
                rest = after;
                return Some(variable(after));
            }
        }
    })
}

/// Reads the name of a variable behind `${`.
fn variable(text: &str) -> Option<&str> {
    let text = text.strip_prefix("env:").unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
    let is_end = text[end..].starts_with('}') || text[end..].starts_with(":-");
    Some(&text[..end]).filter(|name| is_end && !name.is_empty())
}

/// Returns the origin of a URL. `None` if a reference may change it.
fn origin(url: &str) -> Option<String> {
    let url = url.trim();
    let authority = url
        .split_once("://")?
        .1
        .split(['/', '?', '#', '\\'])
        .next()?;
    if url.split_once("://")?.0.contains('$') || authority.contains('$') {
        return None;
    }
    let url = url::Url::parse(url).ok()?;
    Some(format!(
        "{}://{}:{}",
        url.scheme(),
        url.host_str()?,
        url.port_or_known_default()?
    ))
}

/// Returns the proxy that a server names, which sees what is sent.
fn proxy(settings: &Map<String, Value>) -> Option<String> {
    settings.get("proxy").map(Value::to_string)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn settings(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    fn known() -> KnownReferences {
        let mut known = KnownReferences::default();
        known.add(&settings(
            json!({ "url": "https://a.example/mcp", "headers": { "X": "Bearer ${TOKEN}" } }),
        ));
        known.add(&settings(
            json!({ "url": "http://b.example/${PATH_KEY}/mcp?k=${env:Q:-${R}}" }),
        ));
        known
    }

    #[test]
    fn a_variable_goes_only_where_it_goes_already() {
        for (url, header, is_known) in [
            ("https://a.example/other", "${TOKEN}", true),
            (
                "https://A.EXAMPLE:443/",
                "a${env:TOKEN}b $5 $${OTHER}",
                true,
            ),
            ("https://a.example/${TOKEN}", "x", true),
            ("https://a.example/", "${OTHER}", false),
            ("https://a.example/", "${TOKEN:-${OTHER}}", false),
            ("https://a.example/", "${TOKEN", false),
            ("https://a.example/", "${ TOKEN}", false),
            ("https://a.example/", "${}", false),
            ("http://a.example/", "${TOKEN}", false),
            ("https://a.example:8443/", "${TOKEN}", false),
            ("https://a.example.evil.example/", "${TOKEN}", false),
            ("https://a.example@evil.example/", "${TOKEN}", false),
            ("https://evil.example\\@a.example/", "${TOKEN}", false),
            ("https://${TOKEN}.evil.example/", "x", false),
            ("https://a.example${TOKEN}/", "x", false),
            ("${TOKEN}", "x", false),
            ("http://b.example/", "${PATH_KEY}${Q}${R}", true),
        ] {
            let new = settings(json!({ "url": url, "headers": { "Y": header } }));
            assert_eq!(
                known().guarded_settings(&new).is_empty(),
                is_known,
                "{url} {header}"
            );
        }
    }

    #[test]
    fn a_reference_outside_of_what_is_sent_is_never_known() {
        assert_eq!(
            guarded_path("title", json!("${TOKEN}")).as_deref(),
            Some("title")
        );
        assert_eq!(
            guarded_path("tools", json!({ "describe": { "a": "${TOKEN}" } })).as_deref(),
            Some("tools.describe.a")
        );
        assert_eq!(guarded_path("icon", json!("plain")), None);
        // A proxy sees what goes to a plain URL, and another one is another recipient.
        assert_eq!(
            guarded_path("proxy", json!("http://evil.example:3128")).as_deref(),
            Some("headers.Y")
        );
        assert_eq!(
            guarded_path("forward_headers", json!({ "Authorization": "X" })).as_deref(),
            Some("forward_headers")
        );
    }

    /// Adds a setting to a known server, and returns the path of the one that is guarded.
    fn guarded_path(key: &str, value: Value) -> Option<String> {
        let mut new =
            settings(json!({ "url": "https://a.example/", "headers": { "Y": "${TOKEN}" } }));
        new.insert(key.to_owned(), value);
        let found = known().guarded_settings(&new);
        found.into_iter().next().map(|found| found.path)
    }

    #[test]
    fn a_variable_goes_where_all_layers_together_send_it() {
        let texts = [
            (
                "a.toml",
                "[servers.a]\nurl = 'https://old.example/'\nheaders = { X = '${TOKEN}' }\n",
            ),
            (
                "b.toml",
                "[servers.a]\nurl = 'https://new.example/'\n[servers.b]\nurl = \
                 'https://file.example/'\n\
                        headers = { X = '${OTHER}' }\n",
            ),
        ];
        let texts = texts.map(|(path, text)| (PathBuf::from(path), text.to_owned()));
        let env = [(
            "MOONGATE_SERVERS__B__URL".to_owned(),
            "https://variable.example/".to_owned(),
        )];
        let options = LoadOptions {
            paths: texts.iter().map(|(path, _)| path.clone()).collect(),
            texts: texts.into(),
            env: env.into(),
            ..LoadOptions::default()
        };
        let known = KnownReferences::read(&options);
        for (origin, variable, is_known) in [
            ("https://new.example", "${TOKEN}", true),
            ("https://old.example", "${TOKEN}", false),
            ("https://variable.example", "${OTHER}", true),
            ("https://file.example", "${OTHER}", false),
        ] {
            let new = settings(json!({ "url": origin, "headers": { "Y": variable } }));
            assert_eq!(
                known.guarded_settings(&new).is_empty(),
                is_known,
                "{origin}"
            );
        }
    }

    #[test]
    fn a_change_adds_no_reference() {
        let before = settings(json!({ "title": "${A}", "args": ["${B}"] }));
        for (after, expected) in [
            (json!({ "title": "x ${A}", "args": ["${B}", "c"] }), None),
            (json!({ "title": "${B}" }), Some("title")),
            (json!({ "args": ["x", "${B}"] }), Some("args[1]")),
        ] {
            let added = added_references(&before, &settings(after));
            assert_eq!(added.first().map(|found| found.path.as_str()), expected);
        }
        let variables: Vec<Option<String>> = added_references(&Map::new(), &before)
            .into_iter()
            .map(|found| found.variable)
            .collect();
        assert_eq!(variables, [Some("B".to_owned()), Some("A".to_owned())]);
    }
}
