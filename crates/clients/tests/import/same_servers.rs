//! Servers that are compared: with those of the config, and with each other.

use std::collections::BTreeMap;
use std::path::Path;

use moongate_clients::import::{
    ImportRow, ImportState, KnownServer, SelfAddresses, plan_import, read_file, read_text,
};
use serde_json::{Value, json};

#[test]
fn servers_are_compared_by_what_they_are() {
    let found = r#"{"mcpServers": {
        "mine": {"url": "http://localhost:8080/mcp/coding"},
        "bridge": {"command": "/usr/bin/moongate", "args": ["stdio", "--url", "unix:/x"]},
        "docs": {"url": "https://DOCS.example/mcp/"},
        "other": {"url": "https://other.example/mcp"},
        "taken": {"url": "https://new.example/mcp"},
        "db": {"command": "db", "env": {"URL": "one"}},
        "db2": {"command": "db", "env": {"URL": "two"}},
        "again": {"url": "https://other.example/mcp"},
        "bad": {"url": 5}}}"#;
    let known = [
        ("docs-of-ours", "https://docs.example/mcp"),
        ("taken", "https://x.example/"),
    ]
    .map(|(name, url)| KnownServer {
        name: name.to_owned(),
        settings: json!({"url": url}).as_object().cloned().unwrap(),
    });
    let own = SelfAddresses {
        addresses: vec!["127.0.0.1:8080".to_owned()],
    };
    let read = read_file(Path::new("mcp.json"), found).unwrap();
    let found = read
        .servers
        .into_iter()
        .map(|server| ("a".to_owned(), server));
    let rows = plan_import(found, &known, &own, &BTreeMap::new());
    let states: Vec<(&str, &ImportState)> = rows
        .iter()
        .map(|row| (row.server.name.as_str(), &row.state))
        .collect();
    let same = |name: &str| ImportState::Same {
        name: name.to_owned(),
    };
    // By name, as the reader sorts them.
    let expected = [
        ("again", ImportState::New),
        ("bad", ImportState::Broken),
        ("bridge", ImportState::Own),
        ("db", ImportState::New),
        ("db2", ImportState::New),
        ("docs", same("docs-of-ours")),
        ("mine", ImportState::Own),
        ("other", same("again")),
        (
            "taken-2",
            ImportState::Renamed {
                from: "taken".to_owned(),
            },
        ),
    ];
    assert_eq!(
        states,
        expected
            .iter()
            .map(|(name, state)| (*name, state))
            .collect::<Vec<_>>()
    );
}

#[test]
fn thousands_of_servers_are_not_compared_in_pairs() {
    let entry = |name: String, settings: serde_json::Value| {
        let settings = settings.as_object().cloned().unwrap();
        let masked = settings.clone();
        let source_name = name.clone();
        let notes = Vec::new();
        (
            "a".to_owned(),
            moongate_config::ParsedServer {
                name,
                source_name,
                settings,
                masked,
                notes,
                is_broken: false,
                needs_login: false,
            },
        )
    };
    // Accounts at one address, and programs with one command.
    let accounts = (0..300)
        .map(|n| json!({ "url": "https://a.example", "headers": { "X-Key": n.to_string() } }));
    let programs =
        (0..40_000).map(|n| json!({ "command": "npx", "args": ["-y", format!("p{n}")] }));
    let again = [json!({ "command": "npx", "args": ["-y", "p39999"] })];
    let found = accounts.chain(programs).chain(again).enumerate();
    let found = found.map(|(n, settings)| entry(format!("s{n}"), settings));
    let rows = plan_import(found, &[], &SelfAddresses::default(), &BTreeMap::new());
    let (last, others) = rows.split_last().unwrap();
    assert!(others.iter().all(|row| row.state == ImportState::New));
    assert_eq!(
        last.state,
        ImportState::Same {
            name: "s40299".to_owned()
        }
    );
}

#[test]
fn a_program_with_relative_paths_is_another_one_in_another_folder() {
    let text = r#"{"projects": {
        "/a": {"mcpServers": {"files": {"command": "files", "args": ["."]}, "same": {"command": "same"}}},
        "/b": {"mcpServers": {"files": {"command": "files", "args": ["."]}, "same": {"command": "same"}}},
        "/$c": {"mcpServers": {"bridged": {"command": "npx", "args": ["mcp-remote", "https://x.example/mcp"]},
                               "own": {"command": "run", "args": [".."], "cwd": "/own"}}},
        "/odd": {"mcpServers": []}, "/none": {}}}"#;
    for read in [
        read_file(Path::new("/home/ada/.claude.json"), text),
        read_text(text),
    ] {
        let projects = read.unwrap().projects;
        let found = projects.into_iter().flat_map(|project| {
            let path = project.path;
            project
                .servers
                .into_iter()
                .map(move |server| (path.clone(), server))
        });
        let rows = plan_import(found, &[], &SelfAddresses::default(), &BTreeMap::new());
        let facts: Vec<Value> = rows
            .iter()
            .map(|row| json!([row.origin, row.server.name, row.server.settings.get("cwd")]))
            .collect();
        let expected = json!([
            ["/a", "files", "/a"],
            ["/a", "same", null],
            ["/b", "files-2", "/b"],
            ["/b", "same", null],
            ["/$c", "bridged", null],
            ["/$c", "own", "/own"]
        ]);
        assert_eq!(json!(facts), expected);
        assert_eq!(
            rows[3].state,
            ImportState::Same {
                name: "same".to_owned()
            }
        );
        assert_eq!(rows[4].server.settings["url"], "https://x.example/mcp");
    }
}

/// Plans the servers of a client's file.
fn plan_found(known: &[KnownServer], found: &Value) -> Vec<ImportRow> {
    let read = read_text(&json!({ "mcpServers": found }).to_string()).unwrap();
    let found = read
        .servers
        .into_iter()
        .map(|server| ("a".to_owned(), server));
    plan_import(found, known, &SelfAddresses::default(), &BTreeMap::new())
}

/// Describes what a row says of the config's entry.
fn difference(row: &ImportRow) -> Value {
    match &row.state {
        ImportState::Differs { name, lacks } => {
            json!([
                row.server.name,
                name,
                lacks
                    .iter()
                    .map(|setting| setting.path())
                    .collect::<Vec<_>>()
            ])
        }
        other => json!(format!("{other:?}")),
    }
}

#[test]
fn an_entry_with_more_than_the_config_s_differs_and_waits() {
    let known = [
        (
            "docs",
            json!({ "url": "https://docs.example/mcp", "headers": { "X-Org": "${ORG}" } }),
        ),
        ("db", json!({ "command": "db" })),
    ]
    .map(|(name, settings)| KnownServer {
        name: name.to_owned(),
        settings: settings.as_object().cloned().unwrap(),
    });
    let with_key = json!({ "url": "https://docs.example/mcp",
        "headers": { "x-org": "${ORG}", "Authorization": "Bearer k" } });
    let found = json!({
        "docs": with_key, "docs-2": with_key,
        "db": { "command": "db", "env": { "KEY": "k" } },
        "plain": { "url": "https://docs.example/mcp" },
    });
    let mut rows = plan_found(&known, &found);
    let facts: Vec<Value> = rows.iter().map(difference).collect();
    let expected = json!([
        ["db-2", "db", ["env.KEY"]],
        ["docs-2", "docs", ["headers.Authorization"]],
        ["docs-2-2", "docs", ["headers.Authorization"]],
        "Same { name: \"docs\" }",
    ]);
    assert_eq!(json!(facts), expected);
    assert!(rows.iter().all(|row| !row.is_added));
    rows.iter_mut().for_each(|row| row.choose());
    let chosen: Vec<bool> = rows.iter().map(|row| row.is_added).collect();
    assert_eq!(chosen, [true, true, true, false]);
    // Once it is there, a second import finds it there.
    let added = rows.iter().filter(|row| row.is_added);
    let added = added.map(|row| KnownServer {
        name: row.server.name.clone(),
        settings: row.server.settings.clone(),
    });
    let known: Vec<KnownServer> = known.iter().cloned().chain(added).collect();
    let again = plan_found(&known, &found);
    assert!(
        again
            .iter()
            .all(|row| matches!(row.state, ImportState::Same { .. })),
        "{again:?}"
    );
    // Of two new programs, each may be another account.
    let two = plan_found(
        &[],
        &json!({ "a": { "command": "x" }, "b": { "command": "x", "env": { "KEY": "k" } } }),
    );
    assert!(two.iter().all(|row| row.is_added), "{two:?}");
}

/// Plans two servers, and returns the names that would be added.
pub(crate) fn new_names(one: Value, other: Value) -> Vec<String> {
    let text = json!({ "mcpServers": { "one": one, "other": other } }).to_string();
    let read = read_file(Path::new("mcp.json"), &text).unwrap();
    let variables = BTreeMap::from([("SET".to_owned(), "s3$".to_owned())]);
    let found = read
        .servers
        .into_iter()
        .map(|server| ("a".to_owned(), server));
    let rows = plan_import(found, &[], &SelfAddresses::default(), &variables);
    rows.into_iter()
        .filter(|row| row.state.is_new())
        .map(|row| row.server.name)
        .collect()
}

#[test]
fn two_entries_for_one_server_are_one_server() {
    let npx = |args: &[&str]| json!({ "command": "npx", "args": args });
    let env = |value: &str| json!({ "command": "db", "env": { "KEY": value } });
    let header = |value: &str| {
        json!({ "url": "https://x.example/mcp",
        "headers": { "Authorization": value } })
    };
    for (one, other) in [
        (
            json!({ "command": "db", "env": {}, "args": [] }),
            json!({ "command": "db" }),
        ),
        (env("${SET}"), env("s3$")),
        (env("a ${NOT_SET} b"), env("a x b")),
        (env("${NOT_SET:-x}"), env("x")),
        (npx(&["-y", "@a/b@1.2.3", "/d"]), npx(&["-y", "@a/b", "/d"])),
        (npx(&["-y", "a@latest"]), npx(&["-y", "a@1.2.3"])),
        (
            json!({ "command": "uvx", "args": ["a==1"] }),
            json!({ "command": "uvx", "args": ["a"] }),
        ),
        (
            header("Bearer k"),
            json!({ "url": "https://x.example/mcp/" }),
        ),
        (header("Bearer ${NOT_SET}"), header("Bearer k")),
    ] {
        assert_eq!(
            new_names(one.clone(), other.clone()).len(),
            1,
            "{one} {other}"
        );
    }
    for (one, other) in [
        (env("${SET}"), env("other")),
        (env("a ${NOT_SET} b"), env("a x c")),
        (env("${NOT_SET}"), env("${NOT_SET_EITHER}")),
        (npx(&["a@1"]), npx(&["a@2"])),
        (npx(&["a", "b@1"]), npx(&["a", "c@1"])),
        (header("Bearer one"), header("Bearer two")),
    ] {
        assert_eq!(
            new_names(one.clone(), other.clone()).len(),
            2,
            "{one} {other}"
        );
    }
}

#[test]
fn of_two_entries_the_one_that_works_is_taken() {
    let with = |key: &str, more: Value| {
        let mut entry = json!({ "url": "https://x.example/mcp",
            "headers": { "Authorization": format!("Bearer {key}") } });
        entry
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().cloned().unwrap());
        entry
    };
    let off = json!({ "enabled": false });
    let on = json!({});
    assert_eq!(
        new_names(with("${NOT_SET}", off.clone()), with("k", on.clone())),
        ["other"]
    );
    assert_eq!(
        new_names(with("k", off), with("${NOT_SET}", on.clone())),
        ["other"]
    );
    assert_eq!(
        new_names(with("${NOT_SET}", on.clone()), with("k", on.clone())),
        ["other"]
    );
    assert_eq!(
        new_names(
            json!({ "url": "https://x.example/mcp" }),
            with("k", on.clone())
        ),
        ["other"]
    );
    assert_eq!(new_names(with("k", on.clone()), with("k", on)), ["one"]);
}

#[test]
fn of_two_entries_the_one_that_fixes_no_transport_is_taken() {
    let url = "https://x.example/mcp";
    let bridge = |more: &[&str]| {
        let words = ["mcp-remote", url, "--header", "Authorization: Bearer k"];
        let words = [&words[..], more].concat();
        json!({ "command": "npx", "args": words })
    };
    let with = |key: &str, value: &str| json!({ "url": url, "headers": { "Authorization": "Bearer k" }, key: value });
    let open = || json!({ "url": url, "headers": { "Authorization": "Bearer k" } });
    let sse = bridge(&["--transport", "sse-only"]);
    let http = bridge(&["--transport", "http-only"]);
    for (one, other, names) in [
        (sse.clone(), bridge(&[]), &["other"][..]),
        (bridge(&[]), sse.clone(), &["one"]),
        (with("type", "sse"), open(), &["other"]),
        // A client's `http` stands for both transports of HTTP.
        (with("type", "sse"), http.clone(), &["other"]),
        (with("type", "http"), open(), &["one"]),
        (with("transport", "sse"), with("type", "http"), &["other"]),
        (with("type", "sse"), with("type", "sse"), &["one"]),
    ] {
        assert_eq!(
            new_names(one.clone(), other.clone()),
            names,
            "{one} {other}"
        );
    }
    // Nobody can tell which of these two works.
    let text = "[servers.one]\nurl = 'https://x.example/mcp'\ntransport = 'http'\n\
        [servers.other]\nurl = 'https://x.example/mcp'\ntransport = 'sse'\n";
    let found = read_text(text)
        .unwrap()
        .servers
        .into_iter()
        .map(|server| ("a".to_owned(), server));
    let rows = plan_import(found, &[], &SelfAddresses::default(), &BTreeMap::new());
    assert!(rows.iter().all(|row| row.is_added), "{rows:?}");
    // An entry of the config stays, and the row says in what the two differ.
    let settings = json!({ "url": url, "type": "sse" })
        .as_object()
        .cloned()
        .unwrap();
    let known = [KnownServer {
        name: "docs".to_owned(),
        settings,
    }];
    let found = read_text(url)
        .unwrap()
        .servers
        .into_iter()
        .map(|server| ("a".to_owned(), server));
    let row = plan_import(found, &known, &SelfAddresses::default(), &BTreeMap::new()).remove(0);
    assert_eq!(
        row.state,
        ImportState::Same {
            name: "docs".to_owned()
        }
    );
    assert!(
        row.server
            .notes
            .iter()
            .any(|note| note.contains("`docs` connects only by `sse`")),
        "{row:?}"
    );
}
