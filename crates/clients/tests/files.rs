//! Every client's file, before and after it is connected.
//!
//! `UPDATE_EXPECTED=1` writes the expected texts.

#![allow(clippy::unwrap_used)]

#[path = "files/fixtures.rs"]
mod fixtures;
#[path = "files/own_entries.rs"]
mod own_entries;
#[path = "files/take_over.rs"]
mod take_over;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use moongate_clients::import::{
    ImportState, SelfAddresses, plan_import, read_file, written_settings,
};
use moongate_clients::{
    ClientProfile, ConnectKey, ConnectMethod, ConnectRequest, ConnectRoute, ExistingEntry,
    StartCommand, TakenEntry, UserDirectories, client, client_entry, clients, connect_text,
    disconnect_text, existing_entry, format_of, shape_problem, take_over_text,
};
use moongate_config::{ErrorTolerance, LoadOptions};
use moongate_edit::{Edit, EditAction, Format, PathStep, edit};
use moongate_platform::Platform;
use serde_json::{Value, json};

use fixtures::fixtures;

const URL: &str = "http://127.0.0.1:8080/mcp";

fn request(url: &str, route: ConnectRoute) -> ConnectRequest {
    let key = Some(ConnectKey::Variable {
        name: "MOONGATE_KEY".to_owned(),
        value: Some("mg_key".to_owned()),
    });
    let start = StartCommand::program("/bin/moongate");
    ConnectRequest {
        name: "moongate".to_owned(),
        url: url.to_owned(),
        key,
        route,
        start,
    }
}

fn own() -> SelfAddresses {
    SelfAddresses::of_url(URL)
}

fn path_of(profile: &ClientProfile) -> PathBuf {
    let env = BTreeMap::from([("HOME".to_owned(), "/home/ada".to_owned())]);
    UserDirectories {
        env: &env,
        platform: Platform::LINUX,
    }
    .files(profile)[0]
        .clone()
}

fn with_files() -> impl Iterator<Item = &'static ClientProfile> {
    clients().filter(|profile| profile.method == ConnectMethod::File)
}

/// Names and settings of a text's servers.
fn servers(path: &Path, text: &str) -> serde_json::Value {
    let read =
        read_file(path, text).unwrap_or_else(|error| panic!("{}: {error}\n{text}", path.display()));
    read.servers
        .into_iter()
        .map(|server| (server.name, json!(server.settings)))
        .collect()
}

#[test]
fn connected_files_are_as_expected() {
    let expected_at = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/connected.txt");
    let mut all = String::new();
    for profile in with_files() {
        let path = path_of(profile);
        // What the other cases show, the tests below compare.
        for (case, text) in fixtures(profile)
            .into_iter()
            .filter(|(case, _)| matches!(*case, "empty" | "comments"))
        {
            let routes = [
                (ConnectRoute::Best, ""),
                (ConnectRoute::Bridge, ", by command"),
            ];
            // The route is a matter of the entry, which one case shows.
            for (route, word) in routes.into_iter().take(if case == "empty" { 2 } else { 1 }) {
                let connected =
                    connect_text(profile, &request(URL, route), format_of(&path), &text)
                        .unwrap_or_else(|error| panic!("{} {case}: {error}", profile.id));
                all += &format!("=== {} {case}{word}\n{connected}", profile.id);
                all += if connected.ends_with('\n') {
                    ""
                } else {
                    "(no line end)\n"
                };
            }
        }
    }
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::write(&expected_at, &all).unwrap();
    }
    let expected = std::fs::read_to_string(&expected_at).unwrap_or_default();
    let blocks = |text: &str| text.split("=== ").map(str::to_owned).collect::<Vec<_>>();
    for (now, before) in blocks(&all).into_iter().zip(blocks(&expected)) {
        assert_eq!(now, before);
    }
    assert_eq!(
        all.len(),
        expected.len(),
        "UPDATE_EXPECTED=1 rewrites tests/connected.txt"
    );
}

#[test]
fn a_file_that_was_connected_and_disconnected_has_its_bytes_back() {
    for profile in with_files() {
        let path = path_of(profile);
        let format = format_of(&path);
        for (case, text) in fixtures(profile) {
            let place = format!("{} {case}", profile.id);
            let connected =
                connect_text(profile, &request(URL, ConnectRoute::Best), format, &text).unwrap();
            assert_eq!(
                existing_entry(&path, &connected, "moongate", &own()),
                ExistingEntry::Ours,
                "{place}"
            );
            let again = connect_text(
                profile,
                &request(URL, ConnectRoute::Best),
                format,
                &connected,
            )
            .unwrap();
            assert_eq!(again, connected, "{place}: a second time changes nothing");
            let back =
                disconnect_text(profile, "moongate", format, &connected, Some(&text)).unwrap();
            assert_eq!(back, text, "{place}");
            let without = disconnect_text(profile, "moongate", format, &connected, None).unwrap();
            assert_eq!(servers(&path, &without), servers(&path, &text), "{place}");
            assert!(!without.contains("moongate"), "{place}: {without}");
            // A file that was not there before is empty again.
            let created =
                connect_text(profile, &request(URL, ConnectRoute::Best), format, "").unwrap();
            assert_eq!(
                disconnect_text(profile, "moongate", format, &created, Some("")),
                Ok(String::new()),
                "{place}"
            );
            // A change in between stays.
            if case == "comments" {
                let changed = connected.replace("top", "changed");
                let back =
                    disconnect_text(profile, "moongate", format, &changed, Some(&text)).unwrap();
                assert!(
                    back.contains("changed") && !back.contains("moongate"),
                    "{place}: {back}"
                );
            }
        }
    }
}

#[test]
fn comments_and_other_servers_stay() {
    for profile in with_files() {
        let path = path_of(profile);
        for (case, text) in fixtures(profile) {
            let connected = connect_text(
                profile,
                &request(URL, ConnectRoute::Best),
                format_of(&path),
                &text,
            )
            .unwrap();
            let mut after = servers(&path, &connected);
            let ours = after.as_object_mut().unwrap().remove("moongate").unwrap();
            assert_eq!(after, servers(&path, &text), "{} {case}", profile.id);
            assert!(
                ours.to_string().contains(URL),
                "{} {case}: {ours}",
                profile.id
            );
            if case == "comments" {
                for comment in [
                    "top",
                    "the other",
                    "behind",
                    "inside",
                    "end",
                    "head",
                    "mine",
                    "why",
                ] {
                    assert!(
                        !text.contains(comment) || connected.contains(comment),
                        "{} {comment}",
                        profile.id
                    );
                }
            }
        }
    }
}

#[test]
fn an_import_takes_what_the_client_had_and_not_ourselves() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("moongate.toml");
    for profile in with_files() {
        let path = path_of(profile);
        for (case, text) in fixtures(profile) {
            let place = format!("{} {case}", profile.id);
            let connected = connect_text(
                profile,
                &request(URL, ConnectRoute::Best),
                format_of(&path),
                &text,
            )
            .unwrap();
            let rows = |text: &str| {
                let found = read_file(&path, text)
                    .unwrap()
                    .servers
                    .into_iter()
                    .map(|server| (String::new(), server));
                plan_import(found, &[], &own(), &Default::default())
            };
            let new = |text: &str| {
                let new = rows(text).into_iter().filter(|row| row.state.is_new());
                new.map(|row| row.server).collect::<Vec<_>>()
            };
            assert!(
                rows(&connected)
                    .iter()
                    .any(|row| row.state == ImportState::Own),
                "{place}"
            );
            let found = new(&connected);
            assert_eq!(found, new(&text), "{place}");
            assert_eq!(
                found.len(),
                match case {
                    "empty" => 0,
                    "one" => 1,
                    _ => 2,
                },
                "{place}"
            );
            let added = found.iter().map(|server| {
                let path = ["servers", server.name.as_str()].map(PathStep::from);
                Edit::new(
                    path,
                    EditAction::Set(Value::Object(written_settings(&server.settings))),
                )
            });
            let config = edit(Format::Toml, "", &added.collect::<Vec<_>>()).unwrap();
            let options = LoadOptions {
                paths: vec![target.clone()],
                texts: BTreeMap::from([(target.clone(), config.clone())]),
                revisions: &[],
                tolerance: ErrorTolerance::None,
                ..LoadOptions::default()
            };
            let loaded = moongate_config::load(&options)
                .unwrap_or_else(|error| panic!("{place}: {error}\n{config}"));
            assert_eq!(loaded.plan.servers.len(), found.len(), "{place}");
        }
    }
}

#[test]
fn a_broken_file_or_somebody_else_s_entry_is_left_alone() {
    for profile in with_files() {
        let path = path_of(profile);
        let format = format_of(&path);
        let broken = match format {
            Format::Json => "{\"a\": ",
            Format::Toml => "[a\n",
            Format::Yaml => "a: [\n",
        };
        assert!(
            connect_text(profile, &request(URL, ConnectRoute::Best), format, broken).is_err(),
            "{}",
            profile.id
        );
        assert!(
            disconnect_text(profile, "moongate", format, broken, None).is_err(),
            "{}",
            profile.id
        );
        assert!(
            take_over_text(profile, None, format, broken, &[entry("other")]).is_err(),
            "{}",
            profile.id
        );
        assert!(read_file(&path, broken).is_err(), "{}", profile.id);
        // An entry of our name that leads to another gateway.
        let elsewhere = request("https://other.example/mcp", ConnectRoute::Best);
        let text = connect_text(profile, &elsewhere, format, "").unwrap();
        let existing = existing_entry(&path, &text, "moongate", &own());
        // A bridge leads where its URL says, so it is judged as an entry with this URL.
        let ExistingEntry::Foreign(entry) = existing else {
            panic!("{}: {existing:?}", profile.id)
        };
        assert!(
            !entry.to_string().contains("mg_key"),
            "{}: {entry}",
            profile.id
        );
    }
}

#[test]
fn an_entry_is_found_by_the_name_that_its_file_has() {
    let path = Path::new("mcp.json");
    let text = r#"{"mcpServers": {"a b": {"url": "https://x.example/mcp"},
        "my__gate": {"url": "http://127.0.0.1:8080/mcp"}}}"#;
    let existing = |name| existing_entry(path, text, name, &own());
    assert_eq!(existing("a-b"), ExistingEntry::None);
    assert!(matches!(existing("a b"), ExistingEntry::Foreign(_)));
    assert_eq!(existing("my-gate"), ExistingEntry::None);
    assert_eq!(existing("my__gate"), ExistingEntry::Ours);
}

#[test]
fn a_bridge_from_before_a_change_of_the_port_is_ours() {
    let path = Path::new("mcp.json");
    for (url, is_ours) in [
        ("http://127.0.0.1:1/mcp", true),
        ("http://localhost:9/mcp", true),
        ("https://team.example/mcp", false),
    ] {
        let args = format!(r#"["stdio", "--url", "{url}"]"#);
        let text = format!(
            r#"{{"mcpServers": {{"moongate": {{"command": "moongate", "args": {args}}}}}}}"#
        );
        let existing = existing_entry(path, &text, "moongate", &own());
        assert_eq!(existing == ExistingEntry::Ours, is_ours, "{url}");
    }
}

fn entry(name: &str) -> TakenEntry<'_> {
    TakenEntry {
        name,
        project: None,
    }
}

#[test]
fn an_entry_of_ours_from_before_is_brought_up_to_date_in_its_place() {
    let old = [
        request("http://localhost:8080/mcp/coding", ConnectRoute::Best),
        request("http://localhost:8080/mcp", ConnectRoute::Bridge),
    ];
    for (profile, old) in with_files().flat_map(|profile| old.iter().map(move |old| (profile, old)))
    {
        let path = path_of(profile);
        let format = format_of(&path);
        for (case, text) in fixtures(profile)
            .into_iter()
            .filter(|(case, _)| *case == "comments")
        {
            let place = format!("{} {case}", profile.id);
            let before = connect_text(profile, old, format, &text).unwrap();
            assert_eq!(
                existing_entry(&path, &before, "moongate", &own()),
                ExistingEntry::Ours,
                "{place}"
            );
            let after =
                connect_text(profile, &request(URL, ConnectRoute::Best), format, &before).unwrap();
            assert_eq!(
                servers(&path, &after),
                servers(&path, &connected(profile, &text)),
                "{place}: {after}"
            );
            let found = read_file(&path, &before)
                .unwrap()
                .servers
                .into_iter()
                .map(|server| (String::new(), server));
            let states: Vec<ImportState> = plan_import(found, &[], &own(), &Default::default())
                .into_iter()
                .map(|row| row.state)
                .collect();
            assert_eq!(
                states
                    .iter()
                    .filter(|state| **state == ImportState::Own)
                    .count(),
                1,
                "{place}: {states:?}"
            );
        }
    }
}

/// A client's file with our entry.
fn connected(profile: &ClientProfile, text: &str) -> String {
    connect_text(
        profile,
        &request(URL, ConnectRoute::Best),
        format_of(&path_of(profile)),
        text,
    )
    .unwrap()
}

#[test]
fn a_new_file_of_continue_is_whole() {
    let profile = client("continue").unwrap();
    let text = connected(profile, "");
    // Continue wants a name, a version and a schema in each of its files.
    assert!(
        text.starts_with("name: Local Config\nversion: 1.0.0\nschema: v1\nmcpServers:\n"),
        "{text}"
    );
    assert!(!connected(profile, "name: mine\n").contains("Local Config"));
}

#[test]
fn an_entry_that_we_wrote_has_no_problem() {
    for profile in with_files() {
        for key in [None, Some(ConnectKey::Value("mg_key".to_owned()))] {
            let request = ConnectRequest {
                key,
                ..request(URL, ConnectRoute::Best)
            };
            let entry = client_entry(profile, &request).unwrap();
            assert_eq!(
                shape_problem(profile, &entry),
                None,
                "{}: {entry}",
                profile.id
            );
        }
    }
    let problem = |id: &str, entry| shape_problem(client(id).unwrap(), &entry).unwrap();
    let typed = problem("windsurf", json!({"type": "http", "url": URL}));
    assert!(
        typed.contains("in `url`") && typed.contains("reads `serverUrl`"),
        "{typed}"
    );
}
