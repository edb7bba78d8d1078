//! Edits with references, and of servers that variables have settings for.

use super::*;

#[test]
fn a_client_s_spelling_is_a_reference_all_the_same() {
    let text =
        "{ \"mcp\": { \"a\": { \"type\": \"remote\", \"url\": \"https://a.example/mcp\" } } }\n";
    let scene = Scene::of(&[("opencode.json", text)]);
    for text in ["{env:HOME}", "{file:/etc/hostname}", "a{env:HOME}b"] {
        let url = format!("https://evil.example/mcp?q={text}");
        assert_eq!(
            refusal_of(&scene, AdminEdits::default(), add_url(&url)),
            Some("commands_not_allowed"),
            "{text}"
        );
        assert_eq!(
            refusal_of(&scene, AdminEdits::default(), describe(text)),
            Some("commands_not_allowed"),
            "{text}"
        );
    }
    assert_eq!(
        refusal_of(&scene, AdminEdits::default(), describe("costs $5 {x}")),
        None
    );
    // A client's format has no escape for it.
    assert_eq!(
        refusal_of(&scene, AdminEdits::default(), describe("costs ${HOME}")),
        Some("cannot_edit")
    );
    assert_eq!(
        refusal_of(
            &scene,
            AdminEdits::default(),
            add_url("https://b.example/mcp")
        ),
        None
    );
    let permitted = AdminEdits {
        allow_commands: true,
        ..AdminEdits::default()
    };
    assert_ne!(
        refusal_of(&scene, permitted, describe("{env:PATH}")),
        Some("commands_not_allowed")
    );
}

fn add_url(url: &str) -> ConfigOperation {
    ConfigOperation::AddServer {
        name: "b".to_owned(),
        settings: members(&json!({ "url": url })),
    }
}

fn describe(text: &str) -> ConfigOperation {
    let values = members(&json!({ "description": text }));
    ConfigOperation::SetKeys {
        server: "a".to_owned(),
        values,
    }
}

/// Returns the code with which an operator's edit is refused.
fn refusal_code(file: &str, text: &str, operation: ConfigOperation) -> Option<&'static str> {
    let scene = Scene::of(&[(file, text)]);
    refusal_of(&scene, AdminEdits::default(), operation)
}

fn refusal_of(
    scene: &Scene,
    edits: AdminEdits,
    operation: ConfigOperation,
) -> Option<&'static str> {
    prepare_operator_edit(edits, &scene.options, None, &[operation])
        .err()
        .map(|error| error.code)
}

/// Writes a client's file with a server of this type and another entry.
fn client_file(kind: &str, evil: &serde_json::Value) -> String {
    let first = json!({ "type": kind, "url": "https://a.example/mcp" });
    json!({ "mcp": { "a": first, "evil": evil } }).to_string()
}

/// Adds a server of this type, which may change the client that the file is taken for.
fn add_typed(kind: &str) -> ConfigOperation {
    ConfigOperation::AddServer {
        name: "b".to_owned(),
        settings: members(&json!({ "url": "http://127.0.0.1:9/mcp", "type": kind })),
    }
}

fn remove() -> ConfigOperation {
    ConfigOperation::RemoveServer("a".to_owned())
}

#[test]
fn no_edit_changes_what_another_entry_refers_to() {
    let not_allowed = Some("commands_not_allowed");
    // A type that only Crush has makes the file one of Crush, and the removal of the last one makes
    // it OpenCode's.
    for (crush, opencode) in [
        ("$HOME", "{env:HOME}"),
        ("$(cat /etc/hostname)", "{file:/etc/hostname}"),
    ] {
        for entry in [
            |text: &str| json!({ "url": "https://evil.example/mcp", "headers": { "X": text } }),
            |text: &str| json!({ "url": format!("https://evil.example/mcp?q={text}") }),
            |text: &str| json!({ "url": "https://evil.example/mcp", "title": text }),
        ] {
            assert_eq!(
                refusal_code(
                    "opencode.json",
                    &client_file("remote", &entry(crush)),
                    add_typed("http")
                ),
                not_allowed,
                "{crush}"
            );
            assert_eq!(
                refusal_code("m.json", &client_file("http", &entry(opencode)), remove()),
                not_allowed,
                "{opencode}"
            );
        }
    }
    let plain = json!({ "url": "https://c.example/mcp", "headers": { "X": "100$" } });
    assert_eq!(
        refusal_code(
            "opencode.json",
            &client_file("remote", &plain),
            add_typed("http")
        ),
        None
    );
    assert_eq!(
        refusal_code("m.json", &client_file("http", &plain), remove()),
        None
    );
    // In a client's file, a key that any operator may set can say where a server leads.
    let values = json!({ "protocol": "sse" }).as_object().unwrap().clone();
    let protocol = ConfigOperation::SetKeys {
        server: "evil".to_owned(),
        values,
    };
    assert_eq!(
        refusal_code("m.json", &client_file("http", &plain), protocol),
        not_allowed
    );
}

#[test]
fn references_of_the_owner_stay_as_they_are() {
    // What the owner wrote stays, references and programs too.
    let owned =
        json!({ "command": ["x"], "environment": { "A": "{env:HOME}" }, "description": "$$5" });
    assert_eq!(
        refusal_code(
            "opencode.json",
            &client_file("remote", &owned),
            add_typed("http")
        ),
        Some("commands_not_allowed"),
        "its variable is lost"
    );
    assert_eq!(
        refusal_code("opencode.json", &client_file("remote", &owned), add("b")),
        None
    );
    assert_eq!(
        refusal_code("opencode.json", &client_file("remote", &owned), remove()),
        None
    );
}

#[test]
fn dollar_signs_are_written_as_the_file_s_format_has_them() {
    let entry = r#"{ "a": { "url": "https://a.example/mcp" } }"#;
    for (file, text, written) in [
        (
            "mcp.json",
            format!(r#"{{ "mcpServers": {entry} }}"#),
            "k$$1$",
        ),
        ("mcp.json", format!(r#"{{ "servers": {entry} }}"#), "k$$1$"),
        ("opencode.json", format!(r#"{{ "mcp": {entry} }}"#), "k$$1$"),
        (
            "moongate.json",
            format!(r#"{{ "servers": {entry} }}"#),
            "k$$$$1$$",
        ),
        (
            "moongate.json",
            format!(r#"{{ "servers": {entry}, "gateway": {{}} }}"#),
            "k$$$$1$$",
        ),
        ("moongate.toml", String::new(), "k$$$$1$$"),
    ] {
        let scene = Scene::of(&[(file, &text)]);
        let headers = json!({ "Authorization": "Bearer k$$$$1$$" });
        let settings =
            json!({ "url": "https://b.example/mcp", "headers": headers, "title": "5$$" });
        scene
            .apply(&ConfigOperation::AddServer {
                name: "b".to_owned(),
                settings: members(&settings),
            })
            .unwrap();
        let after = scene.text(file);
        assert!(after.contains(&format!("\"Bearer {written}\"")), "{after}");
        let read = load(&scene.options).unwrap();
        assert_eq!(read.resolved()["servers"]["b"]["title"], "5$$", "{after}");
        let values = json!({ "description": "$$2" }).as_object().unwrap().clone();
        scene
            .apply(&ConfigOperation::SetKeys {
                server: "b".to_owned(),
                values,
            })
            .unwrap();
        assert_eq!(
            load(&scene.options).unwrap().resolved()["servers"]["b"]["description"],
            "$$$$2"
        );
    }
}

#[test]
fn a_server_of_variables_is_there_already() {
    let mut scene = Scene::of(&[("a.toml", TOML)]);
    let variables = [
        ("URL", "http://ledger.internal/mcp"),
        ("HEADERS__AUTHORIZATION", "Bearer s"),
    ];
    let variables = variables
        .map(|(key, value)| (format!("MOONGATE_SERVERS__LEDGER__{key}"), value.to_owned()));
    scene.options.env.extend(variables);
    let settings = json!({ "proxy": "http://evil.example:3128" });
    let merged = ConfigOperation::AddServer {
        name: "ledger".to_owned(),
        settings: members(&settings),
    };
    let permitted = AdminEdits {
        allow_commands: true,
        ..AdminEdits::default()
    };
    for edits in [AdminEdits::default(), permitted] {
        let operations = std::slice::from_ref(&merged);
        let refused = prepare_operator_edit(edits, &scene.options, None, operations)
            .err()
            .unwrap();
        assert_eq!(refused.code, "already_there");
        assert!(
            refused.message.contains("MOONGATE_SERVERS__LEDGER__URL"),
            "{}",
            refused.message
        );
        assert_eq!(refusal_of(&scene, edits, add("ledger2")), None);
    }
}

/// Returns the message with which these operations are refused.
fn refusal_message(operations: &[ConfigOperation]) -> String {
    let scene = Scene::of(&[("a.toml", TOML)]);
    let refused = prepare_operator_edit(AdminEdits::default(), &scene.options, None, operations);
    refused.err().unwrap().message
}

fn set(values: &serde_json::Value) -> ConfigOperation {
    ConfigOperation::SetKeys {
        server: "a".to_owned(),
        values: values.as_object().unwrap().clone(),
    }
}

#[test]
fn a_refusal_names_every_setting_that_is_refused() {
    let power = "what runs, which file is read, or where secrets go";
    let several = set(&json!({ "title": "x", "url": "https://x.example", "command": "sh" }));
    let message = refusal_message(&[several]);
    let expected = format!("`url` and `command` of a decide {power}, and `admin.allow_commands`");
    assert!(message.starts_with(&expected), "{message}");
    // The first operation of the change is fine.
    let message = refusal_message(&[add("b"), set(&json!({ "proxy": "none" }))]);
    let expected = format!("`proxy` of a decides {power}, and ");
    assert!(message.starts_with(&expected), "{message}");
    let message = refusal_message(&[ConfigOperation::AddServer {
        name: "b".to_owned(),
        settings: members(&json!({
            "url": "https://b.example/mcp",
            "headers": { "X": "${TOKEN}" },
            "env": { "A": "${OTHER}" },
        })),
    }]);
    let expected = format!("`env` of b decides {power}; `headers.X` of b uses TOKEN, which ");
    assert!(message.starts_with(&expected), "{message}");
}

#[test]
fn a_refusal_of_many_settings_stays_short() {
    let headers: serde_json::Map<String, serde_json::Value> = (0..12)
        .map(|n| (format!("X{n}"), json!("${file:/x}")))
        .collect();
    let message = refusal_message(&[ConfigOperation::AddServer {
        name: "b".to_owned(),
        settings: members(&json!({ "url": "https://b.example/mcp", "headers": headers })),
    }]);
    assert!(message.contains("`headers.X9` of b decide"), "{message}");
    assert!(!message.contains("`headers.X10`"), "{message}");
    assert!(
        message.contains("; 2 more settings are not allowed either, and"),
        "{message}"
    );
}
