//! Table of popular servers: what holds for each entry, and the settings that come of it.

use std::collections::BTreeSet;

use super::*;
use crate::edit::{ConfigOperation, prepare_edit};
use crate::options::LoadOptions;

/// Day on which all probes of the table are recent.
fn today() -> Date {
    "2026-11-23".parse().unwrap()
}

fn dummy_arguments(server: &PopularServer) -> Vec<String> {
    server
        .arguments
        .iter()
        .map(|argument| format!("/srv/{}", argument.name.to_lowercase()))
        .collect()
}

/// Checks that each argument of an entry is once in its command.
fn assert_arguments_are_used_once(server: &PopularServer) {
    let name = &server.name;
    let repeating = server
        .arguments
        .iter()
        .rev()
        .skip(1)
        .any(|argument| argument.repeats);
    assert!(!repeating, "{name}: only the last argument repeats");
    for argument in &server.arguments {
        let mark = format!("{{{}}}", argument.name);
        assert_eq!(
            server.args.iter().filter(|word| **word == mark).count(),
            1,
            "{name}: {mark} has one place"
        );
    }
}

#[test]
fn every_entry_is_complete_and_names_one_server() {
    let parsed = toml::from_str::<PopularFile>(include_str!("popular.toml")).unwrap();
    assert_eq!(parsed.server.len(), popular_servers().len());
    assert!(popular_servers().len() >= 18);
    let names: BTreeSet<&str> = popular_servers()
        .iter()
        .map(|server| server.name.as_str())
        .collect();
    assert_eq!(
        names.len(),
        popular_servers().len(),
        "each name stands once"
    );
    for server in popular_servers() {
        let name = &server.name;
        assert_eq!(
            crate::legal_server_name(name).as_deref(),
            Some(name.as_str())
        );
        assert!(
            !server.title.is_empty() && !server.purpose.is_empty(),
            "{name}"
        );
        assert!(
            !server.purpose.ends_with('.') && server.purpose.len() <= 40,
            "{name}: a table has it in a column"
        );
        assert!(
            server.url.is_some() != server.command.is_some(),
            "{name}: a URL or a command"
        );
        assert!(
            server
                .url
                .as_ref()
                .is_none_or(|url| url.starts_with("https://")),
            "{name}"
        );
        assert!(
            server.url.is_none() || server.args.is_empty() && server.arguments.is_empty(),
            "{name}"
        );
        assert_eq!(
            server.probed.is_some(),
            server.probed().is_some(),
            "{name}: the day of the probe is a date"
        );
        assert!(
            server.tools.is_none() || server.probed.is_some(),
            "{name}: a number of tools comes of a probe"
        );
        if let Some(key) = &server.key {
            let reference = format!("${{{}}}", key.variable);
            assert!(
                key.value.contains(&reference) && server.url.is_some(),
                "{name}: the key is a reference"
            );
        }
        assert_arguments_are_used_once(server);
    }
}

#[test]
fn every_entry_can_be_added_without_any_advice_against_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("moongate.toml");
    for server in popular_servers() {
        let settings = server.settings(&dummy_arguments(server)).unwrap();
        let operation = ConfigOperation::AddServer {
            name: server.name.clone(),
            settings,
        };
        let options = LoadOptions::of_files(Vec::new(), Default::default());
        let prepared = prepare_edit(&options, Some(&file), &[operation]).unwrap();
        let loaded = prepared.loaded();
        // Unpinned packages and the like would be advice.
        assert!(
            loaded.advice.is_empty() && loaded.failed.is_empty(),
            "{}: {:?}",
            server.name,
            loaded.advice
        );
        assert_eq!(loaded.plan.servers.len(), 1);
    }
}

#[test]
fn arguments_are_asked_for_by_name_and_fill_their_places() {
    let files = popular_server("files").unwrap();
    let error = files.settings(&[]).unwrap_err();
    assert_eq!(
        error,
        "files needs DIR, the folder that it may read and write: `moongate add files DIR...`"
    );
    let args = ["/a".to_owned(), "/b".to_owned()];
    let filled = files.settings(&args).unwrap();
    let package = filled["args"][1].clone();
    assert_eq!(filled["args"], json!(["-y", package, "/a", "/b"]));
    let git = popular_server("git").unwrap();
    assert!(
        git.settings(&args)
            .unwrap_err()
            .contains("\"/b\" is one argument too many; use `moongate add git DIR`")
    );
    assert_eq!(git.settings(&args[..1]).unwrap()["args"][2], "/a");
    assert!(git.settings(&[String::new()]).is_err() && git.settings(&["a\nb".to_owned()]).is_err());
    let deepwiki = popular_server("deepwiki").unwrap();
    assert_eq!(
        deepwiki.settings(&[]).unwrap(),
        Map::from_iter([("url".to_owned(), json!("https://mcp.deepwiki.com/mcp"))])
    );
    assert!(deepwiki.settings(&args).is_err());
    assert!(popular_server("deepwik").is_none());
}

#[test]
fn packages_of_the_table_have_a_version_to_pin() {
    let time = popular_server("time").unwrap().args[0].as_str();
    assert_eq!(pinned_package("mcp-server-time"), Some(time));
    assert_eq!(pinned_package("mcp-server-time@latest"), Some(time));
    assert!(
        pinned_package("@modelcontextprotocol/server-memory")
            .unwrap()
            .contains("server-memory@20")
    );
    for other in [
        "",
        "@modelcontextprotocol",
        "-y",
        "server-memory",
        "mcp-server-time@1.0.0",
        "{DIR}",
    ] {
        assert_eq!(pinned_package(other), None, "{other}");
    }
}

#[test]
fn a_required_key_becomes_a_header_and_an_optional_one_does_not() {
    let optional = popular_server("context7").unwrap();
    assert!(!optional.settings(&[]).unwrap().contains_key("headers"));
    let mut required = optional.clone();
    required.key.as_mut().unwrap().required = true;
    let headers = required.settings(&[]).unwrap()["headers"].clone();
    assert_eq!(
        headers,
        json!({ "CONTEXT7_API_KEY": "${CONTEXT7_API_KEY}" })
    );
}

#[test]
fn an_old_probe_is_stale_after_120_days() {
    let mut server = popular_server("mdn").unwrap().clone();
    assert!(!server.is_stale(today()));
    let late: Date = "2027-01-13".parse().unwrap();
    assert!(
        !server.is_stale(late) && server.is_stale(late.tomorrow().unwrap()),
        "120 days are still fine"
    );
    assert!(server.row(late.tomorrow().unwrap()).stale);
    // Nothing is claimed of a server that was never probed.
    server.probed = None;
    let row = server.row(late.tomorrow().unwrap());
    assert!(!row.stale && row.probed.is_none());
}
