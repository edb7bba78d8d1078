//! Settings of a server that a config would refuse.
//!
//! Owns the judgement before anything is edited. Does not know the rest of the config. Invariant:
//! the config's own reader decides, so that no rule is written twice.

use std::path::PathBuf;

use serde_json::{Map, Value};

use super::shown_entry::server_toml;
use crate::load::load;
use crate::options::{ErrorTolerance, LoadOptions};
use crate::problem::ProblemKind;

/// Returns the reasons for which the config would refuse a new server. A variable that is not set
/// is none.
///
/// `options` say what variables there are. Their files are not read.
pub fn refused_settings(
    options: &LoadOptions<'_>,
    name: &str,
    settings: &Map<String, Value>,
) -> Vec<String> {
    let Some(text) = server_toml(name, Value::Object(settings.clone())) else {
        return vec!["it cannot be written into a config".to_owned()];
    };
    let path = PathBuf::from("new-server.toml");
    let mut env = options.env.clone();
    // Such variables are settings of the gateway, and not of this server.
    env.retain(|name, _| !(name.starts_with("MOONGATE_") && name.contains("__")));
    let alone = LoadOptions {
        paths: vec![path.clone()],
        texts: [(path, text)].into(),
        env,
        revisions: options.revisions,
        platform: options.platform,
        tolerance: ErrorTolerance::PerServer,
        ..LoadOptions::default()
    };
    let problems = load(&alone).map_or_else(|problems| problems.errors, |loaded| loaded.failed);
    let own = format!("servers.{name}");
    let fatal = problems
        .into_iter()
        .filter(|problem| problem.kind != ProblemKind::Reference);
    // The server's name comes before each reason already.
    let shown = fatal.map(|problem| {
        problem
            .message
            .replace(&format!("`{own}."), "`")
            .replace(&format!("`{own}`"), "it")
    });
    shown.collect()
}
