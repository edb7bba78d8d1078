//! Entries that reach a server through `mcp-remote` or another bridge.

use std::collections::BTreeMap;

use moongate_clients::import::{
    ImportState, ImportedServers, KnownServer, SelfAddresses, plan_import, read_text,
};
use serde_json::{Value, json};

use super::same_servers::new_names;
use super::settings;

/// Server behind the bridges, and its credential.
const URL: &str = "https://a.example/mcp";
const KEY: &str = "Authorization: Bearer k";

/// Commands that an entry with the URL and the header replaces.
const REPLACED_BRIDGES: [&[&str]; 9] = [
    &[
        "npx",
        "-y",
        "mcp-remote@latest",
        URL,
        "--header",
        KEY,
        "--allow-http",
    ],
    &[
        "npx",
        "mcp-remote",
        "--header",
        KEY,
        URL,
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
        URL,
        "--header",
        KEY,
    ],
    &[
        "/opt/node/bin/npx",
        "-y",
        "mcp-remote",
        URL,
        "--header",
        KEY,
    ],
    &[
        "C:\\node\\npx.cmd",
        "-y",
        "mcp-remote",
        URL,
        "--header",
        KEY,
    ],
    &["cmd", "/c", "npx", "mcp-remote", URL, "--header", KEY],
    &["bunx", "mcp-remote", URL, "--header", KEY],
    &[
        "pnpm",
        "dlx",
        "mcp-remote",
        URL,
        "--header",
        KEY,
        "--transport",
        "http-first",
    ],
    &["/usr/bin/mcp-remote", URL, "--header", KEY],
];

/// Entry that starts `mcp-remote`, with what it becomes.
fn bridge(entry: Value) -> ImportedServers {
    read_text(&json!({ "mcpServers": { "x": entry } }).to_string()).unwrap()
}

fn npx(args: &[&str]) -> Value {
    json!({ "command": "npx", "args": args })
}

/// Entries with settings that only the bridge has, or with a header that has no credential yet.
fn kept_bridges() -> [Value; 11] {
    [
        npx(&["-y", "mcp-remote", URL, "--header", "Authorization:"]),
        npx(&[
            "-y",
            "mcp-remote",
            URL,
            "--header",
            KEY,
            "--ignore-tool",
            "rm*",
        ]),
        npx(&["-y", "mcp-remote", URL, "--header", KEY, "--enable-proxy"]),
        npx(&[
            "-y",
            "mcp-remote",
            URL,
            "--header",
            KEY,
            "--static-oauth-client-info",
            "{}",
        ]),
        npx(&["mcp-remote", URL, "--static-oauth-client-info", "{}"]),
        npx(&["mcp-remote", URL, "--resource", "https://b.example"]),
        json!({ "command": "docker", "args": ["run", "-i", "x/mcp-remote", URL, "--header", KEY] }),
        json!({ "command": "docker", "args": ["run", "-i", "x/mcp-remote", URL] }),
        json!({ "command": "npx", "args": ["mcp-remote", URL],
            "env": { "MCP_REMOTE_CONFIG_DIR": "/logins" } }),
        json!({ "command": "npx", "args": ["mcp-remote", URL, "--header", KEY],
            "env": { "HTTPS_PROXY": "http://p" } }),
        json!({ "command": "sh", "args": ["-c", format!("npx mcp-remote {URL} --header \
            '{KEY}'")] }),
    ]
}

#[test]
fn a_bridge_stays_if_the_url_would_lose_some_of_its_settings() {
    for entry in kept_bridges() {
        let read = bridge(entry.clone());
        assert!(!read.servers[0].is_broken, "{read:?}");
        assert!(!read.servers[0].needs_login, "{read:?}");
        assert_eq!(settings(read)["x"], entry, "{entry}");
    }
    for words in REPLACED_BRIDGES {
        let read = settings(bridge(json!({ "command": words[0], "args": &words[1..] })));
        let plain = json!({ "url": URL, "headers": { "Authorization": "Bearer k" } });
        assert_eq!(read["x"], plain, "{words:?}");
    }
}

#[test]
fn a_bridge_that_logs_in_becomes_its_url_and_the_login_is_the_next_step() {
    let workspace = "X-Workspace: acme";
    for (entry, expected) in [
        (npx(&["mcp-remote", URL]), json!({ "url": URL })),
        (
            npx(&[
                "-y",
                "mcp-remote@latest",
                URL,
                "3334",
                "--host",
                "localhost",
            ]),
            json!({ "url": URL }),
        ),
        (
            json!({ "command": "cmd", "args": ["/c", "npx", "mcp-remote", URL] }),
            json!({ "url": URL }),
        ),
        (
            json!({ "command": "mcp-remote", "args": [URL] }),
            json!({ "url": URL }),
        ),
        (
            npx(&["-y", "mcp-remote@0.1.16", URL, "--header", workspace]),
            json!({ "url": URL, "headers": { "X-Workspace": "acme" } }),
        ),
    ] {
        let read = bridge(entry.clone());
        assert_eq!(settings(read.clone())["x"], expected, "{entry}");
        let found = read
            .servers
            .into_iter()
            .map(|server| ("a".to_owned(), server));
        // Another server has its name, so that the command must have the new one.
        let known = [KnownServer {
            name: "x".to_owned(),
            settings: json!({ "command": "other" }).as_object().cloned().unwrap(),
        }];
        let row = plan_import(found, &known, &SelfAddresses::default(), &BTreeMap::new()).remove(0);
        assert_eq!(
            row.server.notes,
            [
                "`mcp-remote` is not needed: Moongate logs in to the URL itself",
                "next step: `moongate login x-2`"
            ],
            "{entry}"
        );
    }
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
    // Without a value, nothing is a credential, and the program knows what becomes of it.
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
    let ours = |url: &str| json!({ "command": "moongate", "args": ["stdio", "--url", url] });
    let team = ours("https://team.example/mcp");
    assert_eq!(state(team, &[]).state, ImportState::New);
    let here = ours("http://localhost:8080/mcp");
    assert_eq!(state(here, &[]).state, ImportState::Own);
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
            .any(|note| note.contains("run `moongate login docs`")),
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
    // Of two clients' entries, the one that shows the need of a login is taken.
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
