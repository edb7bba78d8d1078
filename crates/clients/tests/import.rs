//! Texts that people have, and the servers in them.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;

use moongate_clients::import::{
    ImportState, ImportedServers, KnownServer, SelfAddresses, plan_import, read_file, read_text,
};
use serde_json::{Value, json};

/// Servers as one JSON object.
fn settings(read: ImportedServers) -> Value {
    read.servers
        .into_iter()
        .map(|server| (server.name, Value::Object(server.settings)))
        .collect()
}

#[test]
fn a_pasted_text_of_any_kind_is_understood() {
    let npx = json!({"command": "npx", "args": ["-y", "some-mcp@1"]});
    for (text, expected) in [
        (
            "https://mcp.deepwiki.com/mcp\n",
            json!({"deepwiki": {"url": "https://mcp.deepwiki.com/mcp"}}),
        ),
        ("npx -y some-mcp@1", json!({"some": npx})),
        (
            "$ npx -y \\\n  some-mcp@1\nuvx mcp-server-git",
            json!({"some": npx, "git": {"command": "uvx", "args": ["mcp-server-git"]}}),
        ),
        (
            "claude mcp add --transport http -s user sentry https://x.example/mcp \
             --header \"Authorization: Bearer k\"",
            json!({"sentry": {"url": "https://x.example/mcp",
                "headers": {"Authorization": "Bearer k"}}}),
        ),
        (
            "claude mcp add github -e TOKEN=t -- npx -y some-mcp@1",
            json!({"github": {"command": "npx", "args": ["-y", "some-mcp@1"],
                "env": {"TOKEN": "t"}}}),
        ),
        (
            "claude mcp add-json -s user x '{\"type\":\"http\",\"url\":\"http://a/mcp\"}'",
            json!({"x": {"url": "http://a/mcp", "type": "http"}}),
        ),
        (
            "codex mcp add x --url http://a/mcp --bearer-token-env-var KEY",
            json!({"x": {"url": "http://a/mcp", "headers": {"Authorization": "Bearer ${KEY}"}}}),
        ),
        (
            "gemini mcp add -t sse old http://a/sse",
            json!({"old": {"url": "http://a/sse", "type": "sse"}}),
        ),
        (
            "{\"x\": {\"command\": \"npx\", \"args\": [\"-y\", \"some-mcp@1\"]}}",
            json!({"x": npx}),
        ),
        (
            "{\"command\": \"npx\", \"args\": [\"-y\", \"some-mcp@1\"]}",
            json!({"some": npx}),
        ),
        (
            "{\"mcpServers\": {\"x\": {\"serverUrl\": \"http://a/mcp\"}}} ",
            json!({"x": {"url": "http://a/mcp"}}),
        ),
        (
            "[mcp_servers.x]\nurl = \"http://a/mcp\"\nbearer_token_env_var = \"K\"\n",
            json!({"x": {"url": "http://a/mcp", "headers": {"Authorization": "Bearer ${K}"}}}),
        ),
        (
            "extensions:\n  x:\n    type: stdio\n    cmd: run\n    args: [a]\n",
            json!({"x": {"command": "run", "args": ["a"], "type": "stdio"}}),
        ),
        (
            "{\"name\":\"io.github.ada/notes\",\"description\":\"\",\"packages\":[{\"registryType\":\"npm\",\"identifier\":\
             \"@ada/notes\",\"version\":\"1.2.0\",\"environmentVariables\":[{\"name\":\"NOTES_KEY\",\"isRequired\":true}]}]}",
            json!({"notes": {"command": "npx", "args": ["-y", "@ada/notes@1.2.0"],
                "env": {"NOTES_KEY": "${NOTES_KEY}"}}}),
        ),
        (
            "{\"server\":{\"name\":\"x/y\",\"title\":\"Y\",\"remotes\":[{\"type\":\"streamable-http\",\"url\":\"https://y.example/mcp\",\
             \"headers\":[{\"name\":\"Authorization\",\"value\":\"Bearer {token}\",\"isSecret\":true}]}]}}",
            json!({"y": {"title": "Y", "url": "https://y.example/mcp",
                "headers": {"Authorization": "Bearer ${TOKEN}"}}}),
        ),
    ] {
        let read = read_text(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(
            read.servers.iter().all(|server| !server.is_broken),
            "{text}: {read:?}"
        );
        assert_eq!(settings(read), expected, "{text}");
    }
}

#[test]
fn runtime_arguments_and_forms_of_documents_are_understood() {
    let npx = json!({"command": "npx", "args": ["-y", "some-mcp@1"]});
    for (text, expected) in [
        (
            "{\"name\":\"x/y\",\"packages\":[{\"registryType\":\"oci\",\"identifier\":\"x/y\",\"version\":\"1\",\"runtimeHint\":\"podman\",\
             \"runtimeArguments\":[{\"type\":\"named\",\"name\":\"--mount\",\"value\":\"type=bind,src={from},dst={to}\"},\
             {\"type\":\"named\",\"name\":\"--rm\"}],\"packageArguments\":[{\"type\":\"positional\",\"valueHint\":\"dir\"}]}]}",
            json!({"y": {"command": "podman", "args":
                ["run", "-i", "--rm", "--mount", "type=bind,src=${FROM},dst=${TO}", "x/y:1",
                    "${DIR}"]}}),
        ),
        (
            "{\"name\":\"x/y\",\"packages\":[{\"registryType\":\"pypi\",\"identifier\":\"y\",\"version\":\"1\",\"runtimeHint\":\"pipx\",\
             \"runtimeArguments\":[{\"type\":\"named\",\"name\":\"--python\",\"value\":\"3.13\"}]}]}",
            json!({"y": {"command": "pipx", "args": ["run", "--python", "3.13", "y==1"]}}),
        ),
        (
            "```json\n{\"x\": {\"command\": \"npx\", \"args\": [\"-y\", \"some-mcp@1\"]}}\n```\n",
            json!({"x": npx}),
        ),
        ("```sh\nnpx -y some-mcp@1\n```", json!({"some": npx})),
        (
            "FOO=bar B_2='a b' npx -y some-mcp@1",
            json!({"some": {"command": "npx", "args": ["-y", "some-mcp@1"],
                "env": {"FOO": "bar", "B_2": "a b"}}}),
        ),
        (
            "code --add-mcp '{\"name\":\"x\",\"type\":\"http\",\"url\":\"http://a/mcp\"}'",
            json!({"x": {"url": "http://a/mcp", "type": "http"}}),
        ),
    ] {
        let read = read_text(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(settings(read), expected, "{text}");
    }
}

#[test]
fn other_texts_are_refused() {
    for (text, why) in [
        ("", "no client's config"),
        ("hello there", "no client's config"),
        ("{\"a\": 1}", "no client's config"),
        ("[servers.x\nurl = 1", "TOML"),
        ("{\"mcpServers\": {", "JSON"),
        ("claude mcp list", "adds no server"),
        ("claude mcp add --what x http://a", "--what"),
        ("claude mcp add only-a-name", "names no URL"),
    ] {
        let error = read_text(text).unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}

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
fn a_client_s_file_without_servers_has_none() {
    for (path, text) in [
        (
            "/home/ada/.claude.json",
            r#"{"numStartups": 5, "projects": {"/x": {"mcpServers": {}}}, "name": "ada"}"#,
        ),
        (
            "/home/ada/.gemini/settings.json",
            r#"{"theme": "dark", "ui": {"a": 1}} // x"#,
        ),
        (
            "/home/ada/.codex/config.toml",
            "model = \"x\"\n[projects.\"/x\"]\ntrust_level = \"trusted\"\n",
        ),
        (
            "/home/ada/.config/goose/config.yaml",
            "GOOSE_MODEL: x\nextensions:\n  developer:\n    type: builtin\n    name: developer\n",
        ),
        ("/x/mcp.json", ""),
    ] {
        assert_eq!(
            settings(read_file(Path::new(path), text).unwrap()),
            json!({}),
            "{path}"
        );
    }
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
        assert_eq!(
            rows[4].server.settings["args"],
            json!(["mcp-remote", "https://x.example/mcp"])
        );
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
    let plan = |known: &[KnownServer], found: Value| {
        let read = read_text(&json!({ "mcpServers": found }).to_string()).unwrap();
        let found = read
            .servers
            .into_iter()
            .map(|server| ("a".to_owned(), server));
        plan_import(found, known, &SelfAddresses::default(), &BTreeMap::new())
    };
    let with_key = json!({ "url": "https://docs.example/mcp",
        "headers": { "x-org": "${ORG}", "Authorization": "Bearer k" } });
    let found = json!({
        "docs": with_key, "docs-2": with_key,
        "db": { "command": "db", "env": { "KEY": "k" } },
        "plain": { "url": "https://docs.example/mcp" },
    });
    let mut rows = plan(&known, found.clone());
    let facts: Vec<Value> = rows
        .iter()
        .map(|row| match &row.state {
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
        })
        .collect();
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
    let again = plan(&known, found);
    assert!(
        again
            .iter()
            .all(|row| matches!(row.state, ImportState::Same { .. })),
        "{again:?}"
    );
    // Of two new programs, each may be another account.
    let two = plan(
        &[],
        json!({ "a": { "command": "x" }, "b": { "command": "x", "env": { "KEY": "k" } } }),
    );
    assert!(two.iter().all(|row| row.is_added), "{two:?}");
}

/// Plans two servers, and returns the names that would be added.
fn new_names(one: Value, other: Value) -> Vec<String> {
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

/// Entry that starts `mcp-remote`, with what it becomes.
fn bridge(entry: Value) -> ImportedServers {
    read_text(&json!({ "mcpServers": { "x": entry } }).to_string()).unwrap()
}

#[test]
fn a_bridge_stays_unless_a_header_has_its_credential() {
    let npx = |args: &[&str]| json!({ "command": "npx", "args": args });
    let url = "https://a.example/mcp";
    let key = "Authorization: Bearer k";
    for entry in [
        npx(&["mcp-remote", url]),
        npx(&[
            "-y",
            "mcp-remote@latest",
            url,
            "3334",
            "--transport",
            "http-only",
        ]),
        npx(&[
            "-y",
            "mcp-remote@0.1.16",
            url,
            "--header",
            "X-Workspace: acme",
        ]),
        npx(&["-y", "mcp-remote", url, "--header", "Authorization:"]),
        npx(&[
            "-y",
            "mcp-remote",
            url,
            "--header",
            key,
            "--ignore-tool",
            "rm*",
        ]),
        npx(&["-y", "mcp-remote", url, "--header", key, "--enable-proxy"]),
        npx(&[
            "-y",
            "mcp-remote",
            url,
            "--header",
            key,
            "--static-oauth-client-info",
            "{}",
        ]),
        json!({ "command": "cmd", "args": ["/c", "npx", "mcp-remote", url] }),
        json!({ "command": "docker", "args": ["run", "-i", "x/mcp-remote", url, "--header", key] }),
        json!({ "command": "npx", "args": ["mcp-remote", url],
            "env": { "MCP_REMOTE_CONFIG_DIR": "/logins" } }),
        json!({ "command": "npx", "args": ["mcp-remote", url, "--header", key],
            "env": { "HTTPS_PROXY": "http://p" } }),
        json!({ "command": "mcp-remote", "args": [url] }),
        json!({ "command": "sh", "args": ["-c", format!("npx mcp-remote {url} --header \
            '{key}'")] }),
    ] {
        let read = bridge(entry.clone());
        assert!(!read.servers[0].is_broken, "{read:?}");
        assert_eq!(settings(read)["x"], entry, "{entry}");
    }
    for words in [
        &[
            "npx",
            "-y",
            "mcp-remote@latest",
            url,
            "--header",
            key,
            "--allow-http",
        ][..],
        &[
            "npx",
            "mcp-remote",
            "--header",
            key,
            url,
            "3334",
            "--debug",
            "--host",
            "localhost",
        ],
        &[
            "npx",
            "-p",
            "mcp-remote@latest",
            "mcp-remote",
            url,
            "--header",
            key,
        ],
        &[
            "/opt/node/bin/npx",
            "-y",
            "mcp-remote",
            url,
            "--header",
            key,
        ],
        &[
            "C:\\node\\npx.cmd",
            "-y",
            "mcp-remote",
            url,
            "--header",
            key,
        ],
        &["cmd", "/c", "npx", "mcp-remote", url, "--header", key],
        &["bunx", "mcp-remote", url, "--header", key],
        &[
            "pnpm",
            "dlx",
            "mcp-remote",
            url,
            "--header",
            key,
            "--transport",
            "http-first",
        ],
        &["/usr/bin/mcp-remote", url, "--header", key],
    ] {
        let read = settings(bridge(json!({ "command": words[0], "args": &words[1..] })));
        let plain = json!({ "url": url, "headers": { "Authorization": "Bearer k" } });
        assert_eq!(read["x"], plain, "{words:?}");
    }
}

#[test]
fn dollar_signs_of_a_client_s_file_mean_themselves() {
    let entry = json!({ "command": "x", "args": ["c$$d", "${NOPE"],
        "env": { "P": "a$$b", "Q": "${Q}5$" } });
    let read = settings(read_text(&json!({ "mcpServers": { "x": entry } }).to_string()).unwrap());
    let ours = json!({ "command": "x", "args": ["c$$$$d", "$${NOPE"],
        "env": { "P": "a$$$$b", "Q": "${Q}5$" } });
    assert_eq!(read["x"], ours);
    let line = read_text("KEY='a$$b' npx x 'c$$d'")
        .unwrap()
        .servers
        .remove(0)
        .settings;
    assert_eq!(
        (&line["args"], &line["env"]),
        (&json!(["x", "c$$$$d"]), &json!({ "KEY": "a$$$$b" }))
    );
    let registry = json!({ "name": "a/x", "title": "5$$",
        "remotes": [{ "type": "sse", "url": "https://a.example/$$" }] });
    let registry = settings(read_text(&registry.to_string()).unwrap());
    assert_eq!(
        registry["x"],
        json!({ "title": "5$$$$", "type": "sse", "url": "https://a.example/$$$$" })
    );
    // Our own format keeps its escape.
    let ours = settings(read_text("[servers.x]\ncommand = 'x'\nargs = ['a$$b']\n").unwrap());
    assert_eq!(ours["x"]["args"], json!(["a$$b"]));
}

#[test]
fn a_bridge_has_the_variables_of_its_entry() {
    let url = "https://a.example/mcp";
    let entry = |header: &str, env: Value| {
        let mut all = settings(bridge(json!({ "type": "stdio", "command": "npx",
                "args": ["mcp-remote", url, "--header", header], "env": env })));
        all["x"].take()
    };
    let plain = |name: &str, value: &str| json!({ "url": url, "headers": { name: value } });
    let of = entry(
        "Authorization:${AUTH}",
        json!({ "AUTH": "Bearer k", "MCP_REMOTE_CONFIG_DIR": "/logins" }),
    );
    assert_eq!(of, plain("Authorization", "Bearer k"));
    let of = entry(
        "X-Api-Key: ${KEY}",
        json!({ "KEY": "${KEY}", "PATH": "/bin" }),
    );
    assert_eq!(of, plain("X-Api-Key", "${KEY}"));
    assert_eq!(
        entry("Authorization: Bearer ${KEY}", json!({})),
        plain("Authorization", "Bearer ${KEY}")
    );
    // Without a value there is no credential, and the program knows what becomes of it.
    let empty = entry("Authorization: Bearer ${KEY}", json!({ "KEY": "" }));
    assert_eq!(
        empty["args"],
        json!([
            "mcp-remote",
            url,
            "--header",
            "Authorization: Bearer $${KEY}"
        ])
    );
}

#[test]
fn a_bridge_behind_a_wrapper_has_the_variables_of_the_wrapper() {
    let url = "http://a.example/mcp";
    let words = |value: &str, header: &str| {
        json!([
            "-i",
            format!("AUTH={value}"),
            "mcp-remote",
            url,
            "--allow-http",
            "--header",
            header
        ])
    };
    for (value, header, kept) in [
        (
            "Bearer k-1",
            "Authorization:${AUTH}",
            "Authorization:$${AUTH}",
        ),
        (
            "Bearer k-1",
            "Authorization:${OTHER}",
            "Authorization:${OTHER}",
        ),
        ("${AUTH}", "Authorization:${AUTH}", "Authorization:${AUTH}"),
    ] {
        let read = bridge(json!({ "command": "/usr/bin/env", "args": words(value, header) }));
        assert_eq!(
            settings(read)["x"],
            json!({ "command": "/usr/bin/env", "args": words(value, kept) })
        );
    }
    let line = read_text(&format!(
        "docker run -i -e 'AUTH=Bearer k' x/bridge {url} --header 'Authorization:${{AUTH}}'"
    ));
    let args = &line.unwrap().servers.remove(0).settings["args"];
    assert_eq!(
        args.as_array().unwrap().last().unwrap(),
        "Authorization:$${AUTH}"
    );
}

#[test]
fn a_bridge_to_this_gateway_is_not_imported_and_one_to_a_known_url_is_the_same() {
    let own = SelfAddresses {
        addresses: vec!["127.0.0.1:8080".to_owned()],
    };
    let known = |settings: Value| {
        vec![KnownServer {
            name: "docs".to_owned(),
            settings: settings.as_object().cloned().unwrap(),
        }]
    };
    let state = |entry: Value, known: &[KnownServer]| {
        let found = bridge(entry)
            .servers
            .into_iter()
            .map(|server| ("a".to_owned(), server));
        plan_import(found, known, &own, &BTreeMap::new()).remove(0)
    };
    let at = |url: &str| json!({ "command": "npx", "args": ["-y", "mcp-remote", url] });
    for entry in [
        at("http://localhost:8080/mcp"),
        json!({ "command": "uvx",
            "args": ["mcp-proxy", "--transport", "streamablehttp", "http://127.0.0.1:8080/mcp"] }),
        json!({ "command": "npx",
            "args": ["supergateway", "--streamableHttp=http://127.0.0.1:8080/mcp/coding"] }),
        json!({ "command": "sh", "args": ["-c", "npx mcp-remote 'http://127.0.0.1:8080/mcp'"] }),
    ] {
        assert_eq!(state(entry.clone(), &[]).state, ImportState::Own, "{entry}");
    }
    let docs = "https://docs.example/mcp";
    let row = state(
        at(docs),
        &known(json!({ "url": "https://docs.example/mcp/" })),
    );
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
            .any(|note| note.contains("this command in place of its URL")),
        "{row:?}"
    );
    let with_key = known(json!({ "url": docs, "headers": { "Authorization": "Bearer k" } }));
    assert!(state(at(docs), &with_key).state.is_new());
    assert!(
        state(
            at("https://other.example/mcp"),
            &known(json!({ "url": docs }))
        )
        .state
        .is_new()
    );
    // Of two clients' entries, the one that can log in is taken.
    assert_eq!(new_names(json!({ "url": docs }), at(docs)), ["other"]);
}

#[test]
fn a_pasted_bridge_has_the_name_of_its_server() {
    for text in [
        "npx -y mcp-remote https://mcp.tracker.example/sse",
        "mcp-remote https://mcp.tracker.example/sse 3334",
    ] {
        assert_eq!(
            read_text(text).unwrap().servers[0].name,
            "tracker",
            "{text}"
        );
    }
}
