//! Entries that were imported, and give way to ours.

use std::path::Path;

use moongate_clients::import::read_file;
use moongate_clients::{
    ConnectRoute, ExistingEntry, TakenEntry, client, existing_entry, format_of, take_over_text,
};
use moongate_edit::Format;
use serde_json::json;

use super::fixtures::fixtures;
use super::{URL, connected, entry, own, path_of, request, servers, with_files};

#[test]
fn imported_entries_give_way_to_ours_and_all_others_stay() {
    for profile in with_files() {
        let path = path_of(profile);
        let format = format_of(&path);
        let request = request(URL, ConnectRoute::Best);
        for (case, text) in fixtures(profile)
            .into_iter()
            .filter(|(case, _)| *case != "empty")
        {
            let place = format!("{} {case}", profile.id);
            let taken =
                take_over_text(profile, Some(&request), format, &text, &[entry("other")]).unwrap();
            let mut expected = servers(&path, &connected(profile, &text));
            expected.as_object_mut().unwrap().remove("other").unwrap();
            assert_eq!(servers(&path, &taken), expected, "{place}: {taken}");
            for comment in ["top", "mine", "inside", "// end", "# end"] {
                assert!(
                    case != "comments" || !text.contains(comment) || taken.contains(comment),
                    "{place}: {taken}"
                );
            }
            // With our entry there already, only the imported one goes.
            let before = connected(profile, &text);
            let kept = take_over_text(profile, None, format, &before, &[entry("other")]).unwrap();
            assert_eq!(servers(&path, &kept), expected, "{place}: {kept}");
        }
        // An imported entry of our own name makes room first.
        let foreign = connected(profile, "")
            .replace(URL, "https://other.example/mcp")
            .replace("stdio", "other");
        let taken = take_over_text(
            profile,
            Some(&request),
            format,
            &foreign,
            &[entry("moongate")],
        )
        .unwrap();
        assert_eq!(
            existing_entry(&path, &taken, "moongate", &own()),
            ExistingEntry::Ours,
            "{}: {taken}",
            profile.id
        );
    }
}

#[test]
fn entries_of_projects_give_way_too() {
    let profile = client("claude-code").unwrap();
    let text = r#"{
  "numStartups": 5,
  "mcpServers": {"A Server": {"command": "a"}},
  "projects": {
    "/home/ada/site": {
      "mcpServers": {"docs": {"command": "docs", "args": ["./x"]}, "left": {"command": "l"}}, "trust": 1
    },
    "/home/ada/other": {"mcpServers": {}}
  }
}
"#;
    let read = read_file(Path::new("/home/ada/.claude.json"), text).unwrap();
    let own: Vec<(&str, &str)> = read
        .servers
        .iter()
        .map(|it| (&*it.name, &*it.source_name))
        .collect();
    assert_eq!(own, [("A-Server", "A Server")]);
    assert!(
        read.warnings
            .iter()
            .all(|warning| !warning.contains("projects")),
        "{:?}",
        read.warnings
    );
    assert_eq!(read.projects.len(), 1);
    assert_eq!(read.projects[0].path, "/home/ada/site");
    let found: Vec<serde_json::Value> = read.projects[0]
        .servers
        .iter()
        .map(|it| json!([it.name, it.settings]))
        .collect();
    let docs = json!({"command": "docs", "args": ["./x"], "cwd": "/home/ada/site"});
    assert_eq!(
        found,
        [json!(["docs", docs]), json!(["left", {"command": "l"}])]
    );
    let taken = [
        entry("A Server"),
        TakenEntry {
            name: "docs",
            project: Some("/home/ada/site"),
        },
    ];
    let request = request(URL, ConnectRoute::Best);
    let after = take_over_text(profile, Some(&request), Format::Json, text, &taken).unwrap();
    let after: serde_json::Value = serde_json::from_str(&after).unwrap();
    let ours =
        json!({"type": "http", "url": URL, "headers": {"Authorization": "Bearer ${MOONGATE_KEY}"}});
    let expected = json!({
        "numStartups": 5,
        "mcpServers": {"moongate": ours},
        "projects": {
            "/home/ada/site": {"mcpServers": {"left": {"command": "l"}}, "trust": 1},
            "/home/ada/other": {"mcpServers": {}},
        },
    });
    assert_eq!(after, expected);
}
