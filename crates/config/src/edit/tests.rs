//! Operations on files in the three formats and in clients' dialects.

use std::path::PathBuf;

use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::problem::ConfigProblem;

struct Scene {
    folder: TempDir,
    options: LoadOptions<'static>,
}

impl Scene {
    fn of(files: &[(&str, &str)]) -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = files
            .iter()
            .map(|(name, _)| folder.path().join(name))
            .collect();
        for (path, (_, text)) in paths.iter().zip(files) {
            std::fs::write(path, text).unwrap();
        }
        Scene {
            folder,
            options: LoadOptions::of_files(paths, Default::default()),
        }
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap()
    }

    fn apply(&self, operation: &ConfigOperation) -> Result<WrittenEdit, ConfigEditError> {
        prepare_edit(
            &self.options,
            Some(&self.folder.path().join("new/moongate.toml")),
            std::slice::from_ref(operation),
        )?
        .write()
    }

    fn code(&self, operation: &ConfigOperation) -> &'static str {
        self.apply(operation).unwrap_err().code
    }
}

fn add(name: &str) -> ConfigOperation {
    ConfigOperation::AddServer {
        name: name.to_owned(),
        settings: json!({ "url": "https://b.example/mcp" }),
    }
}

fn off(tools: &[&str]) -> ConfigOperation {
    ConfigOperation::DisableTools(
        "a".to_owned(),
        tools.iter().map(|tool| (*tool).to_owned()).collect(),
    )
}

fn on(tools: &[&str]) -> ConfigOperation {
    ConfigOperation::EnableTools(
        "a".to_owned(),
        tools.iter().map(|tool| (*tool).to_owned()).collect(),
    )
}

const TOML: &str = "# mine\n[servers.a] # the first\nurl = \"https://a.example/mcp\" # why\n";
const YAML: &str = "# mine\nservers:\n  a: # the first\n    url: https://a.example/mcp # why\n";
const JSON: &str = "{\n  // mine\n  \"servers\": {\n    \"a\": { \"url\": \"https://a.example/mcp\", \"prefix\": \"x\" }\n  }, \"limits\": {}\n}\n";
const CLIENT: &str = "{\n  \"mcpServers\": {\n    \"a\": { \"command\": \"a\" }\n  }\n}\n";

#[test]
fn each_operation_and_its_inverse_lead_back_to_the_same_bytes() {
    let name = "a".to_owned();
    let disable = ConfigOperation::DisableServer("a".to_owned());
    let pairs = [
        (add("b"), ConfigOperation::RemoveServer("b".to_owned())),
        (disable, ConfigOperation::EnableServer(name)),
        (off(&["x", "delete_[all]"]), on(&["delete_[all]", "x"])),
    ];
    for (file, text) in [
        ("a.toml", TOML),
        ("a.yaml", YAML),
        ("a.json", JSON),
        ("b.json", CLIENT),
    ] {
        for (operation, inverse) in &pairs {
            let scene = Scene::of(&[(file, text)]);
            let written = scene
                .apply(operation)
                .unwrap_or_else(|error| panic!("{file}: {operation:?}: {error}"));
            assert_eq!(written.before.as_deref(), Some(text));
            assert_ne!(scene.text(file), text);
            scene
                .apply(inverse)
                .unwrap_or_else(|error| panic!("{file}: {inverse:?}: {error}"));
            assert_eq!(scene.text(file), text, "{file}: {operation:?}");
        }
    }
}

#[test]
fn edits_speak_the_dialect_of_the_file() {
    let scene = Scene::of(&[("b.json", CLIENT)]);
    scene
        .apply(&ConfigOperation::DisableServer("a".to_owned()))
        .unwrap();
    scene.apply(&add("b")).unwrap();
    let text = scene.text("b.json");
    assert!(
        text.contains("\"disabled\": true") && text.contains("\"mcpServers\""),
        "{text}"
    );
    assert!(
        !text.contains("\"servers\"") && text.contains("\"b\""),
        "{text}"
    );
}

#[test]
fn the_last_file_gets_new_servers_and_the_strongest_entry_is_changed() {
    let scene = Scene::of(&[
        ("a.toml", TOML),
        ("b.toml", "[servers.a]\nprefix = \"y\"\n"),
    ]);
    scene.apply(&add("b")).unwrap();
    let written = scene
        .apply(&ConfigOperation::DisableServer("a".to_owned()))
        .unwrap();
    assert!(written.path.ends_with("b.toml"));
    assert_eq!((scene.text("a.toml").as_str(), written.line), (TOML, 3));
    assert_eq!(
        scene.code(&ConfigOperation::RemoveServer("a".to_owned())),
        "cannot_edit"
    );
}

#[test]
fn without_a_file_one_is_begun() {
    let scene = Scene::of(&[]);
    let written = scene.apply(&add("b")).unwrap();
    assert_eq!(
        scene.text("new/moongate.toml"),
        "[servers.b]\nurl = \"https://b.example/mcp\"\n"
    );
    assert_eq!((written.line, written.before), (1, None));
}

#[test]
fn patterns_stay_and_tools_become_their_exceptions() {
    let rules = "tools = { deny = [\"delete_*\"] } # careful\n";
    let scene = Scene::of(&[("a.toml", &format!("{TOML}{rules}"))]);
    scene.apply(&on(&["delete_repo"])).unwrap();
    assert!(
        scene
            .text("a.toml")
            .contains("deny = [\"delete_*\", \"!delete_repo\"]"),
        "{}",
        scene.text("a.toml")
    );
    scene.apply(&off(&["delete_repo"])).unwrap();
    assert!(
        scene.text("a.toml").ends_with(rules),
        "{}",
        scene.text("a.toml")
    );
    assert!(
        prepare_edit(&scene.options, None, &[off(&["delete_repo"])])
            .unwrap()
            .is_unchanged()
    );
}

#[test]
fn an_allow_list_is_where_its_tools_are_switched() {
    let scene = Scene::of(&[(
        "a.toml",
        &format!("{TOML}tools.allow = [\"read\", \"list_*\"]\n"),
    )]);
    scene.apply(&on(&["write"])).unwrap();
    scene.apply(&off(&["read", "list_all"])).unwrap();
    let text = scene.text("a.toml");
    assert!(
        text.contains("tools.allow = [\"list_*\", \"write\"]") && text.contains("\"list_all\""),
        "{text}"
    );
}

#[test]
fn a_list_of_the_defaults_is_not_lost() {
    let scene = Scene::of(&[(
        "a.toml",
        &format!("[defaults.tools]\ndeny = [\"rm\"]\n\n{TOML}"),
    )]);
    scene.apply(&off(&["x"])).unwrap();
    let plan = crate::load(&scene.options).unwrap().plan;
    assert!(!plan.servers[0].tools.allows_name("rm") && !plan.servers[0].tools.allows_name("x"));
}

#[test]
fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let scene = Scene::of(&[("a.toml", TOML)]);
    let bad = ConfigOperation::AddServer {
        name: "b".to_owned(),
        settings: json!({ "url": "ftp://x" }),
    };
    for (operation, code) in [
        (add("a"), "already_there"),
        (add("a b"), "bad_name"),
        (bad, "problems"),
        (
            ConfigOperation::RemoveServer("none".to_owned()),
            "unknown_server",
        ),
        (off(&[""]), "bad_value"),
        (
            ConfigOperation::RemoveKey(KeyList::Clients, "me".to_owned()),
            "unknown_key",
        ),
    ] {
        let error = scene.apply(&operation).unwrap_err();
        assert_eq!(
            (error.code, scene.text("a.toml").as_str()),
            (code, TOML),
            "{operation:?}: {error}"
        );
    }
    let mut scene = scene;
    scene
        .options
        .env
        .insert("MOONGATE_SERVERS__A__ENABLED".to_owned(), "true".to_owned());
    let error = scene
        .apply(&ConfigOperation::DisableServer("a".to_owned()))
        .unwrap_err();
    assert_eq!(error.code, "overridden");
    assert!(
        error
            .message
            .contains("the variable MOONGATE_SERVERS__A__ENABLED decides"),
        "{error}"
    );
    // A broken file is never written, and what to paste is shown.
    let broken = Scene::of(&[("a.toml", "[servers.a\n")]);
    let error = broken.apply(&add("b")).unwrap_err();
    assert_eq!(
        (error.code, broken.text("a.toml").as_str()),
        ("cannot_edit", "[servers.a\n")
    );
    assert_eq!(
        error.snippet.as_deref(),
        Some("[servers.b]\nurl = \"https://b.example/mcp\"\n")
    );
}

#[test]
fn keys_are_added_and_removed_by_name() {
    let hash = format!("sha256:{}", "0".repeat(64));
    let entry = json!({ "name": "laptop", "hash": hash });
    for (file, text) in [("a.toml", TOML), ("a.yaml", YAML), ("a.json", JSON)] {
        for list in [KeyList::Clients, KeyList::Operators] {
            let scene = Scene::of(&[(file, text)]);
            scene
                .apply(&ConfigOperation::AddKey {
                    list,
                    entry: entry.clone(),
                })
                .unwrap();
            assert!(scene.text(file).contains(&hash));
            scene
                .apply(&ConfigOperation::RemoveKey(list, "laptop".to_owned()))
                .unwrap();
            let plan = crate::load(&scene.options).unwrap().plan;
            assert!(plan.auth.keys.is_empty() && plan.admin_access.keys.is_empty());
            assert_eq!(scene.text(file), text, "{file}: nothing is left of it");
        }
    }
}

#[test]
fn a_problem_of_another_server_is_no_obstacle() {
    let scene = Scene::of(&[(
        "a.toml",
        &format!("{TOML}\n[servers.broken]\nurl = \"nowhere\"\n"),
    )]);
    scene.apply(&add("b")).unwrap();
    scene.apply(&off(&["x"])).unwrap();
    let prepared = prepare_edit(
        &scene.options,
        None,
        &[ConfigOperation::DisableServer("a".to_owned())],
    )
    .unwrap();
    assert_eq!(prepared.diff(), "+ enabled = false\n");
}

#[test]
fn a_server_that_lacks_a_variable_here_is_judged_by_its_written_rules() {
    let text = format!("{TOML}env = {{ T = \"${{NOT_SET_HERE}}\" }}\ntools.deny = [\"y\"]\n");
    let mut scene = Scene::of(&[("a.toml", &text)]);
    scene.apply(&off(&["x"])).unwrap();
    assert!(
        scene.text("a.toml").contains("deny = [\"y\", \"x\"]"),
        "{}",
        scene.text("a.toml")
    );
    scene.apply(&on(&["x", "y"])).unwrap();
    assert!(
        !scene.text("a.toml").contains("deny"),
        "{}",
        scene.text("a.toml")
    );
    scene.options.env.insert(
        "MOONGATE_SERVERS__A__TOOLS__DENY".to_owned(),
        "[\"z\"]".to_owned(),
    );
    assert_eq!(scene.code(&off(&["x"])), "overridden");
}

#[test]
fn a_config_that_was_broken_before_is_not_blamed_on_the_edit() {
    let scene = Scene::of(&[("a.toml", &format!("[gateway]\nlisten = 5\n{TOML}"))]);
    let error = scene.apply(&off(&["x"])).unwrap_err();
    assert!(
        error.code == "problems"
            && error
                .message
                .starts_with("the config does not work as it is"),
        "{error}"
    );
}

#[test]
fn a_key_that_was_not_written_leaves_no_hash_to_paste() {
    let scene = Scene::of(&[("a.toml", "[servers.a\n")]);
    let entry = json!({ "name": "laptop", "hash": format!("sha256:{}", "0".repeat(64)) });
    let error = scene
        .apply(&ConfigOperation::AddKey {
            list: KeyList::Clients,
            entry,
        })
        .unwrap_err();
    assert_eq!(error.snippet, None, "{error}");
}

#[test]
fn problems_of_other_servers_are_told_apart() {
    let missing = "headers = { X = \"${NOT_SET_HERE}\" }\n";
    let scene = Scene::of(&[(
        "a.toml",
        &format!("{TOML}{missing}[servers.b]\nurl = \"http://b/\"\n{missing}"),
    )]);
    let prepared = prepare_edit(&scene.options, None, &[off(&["x"])]).unwrap();
    let (own, others) = prepared.failed_by_concern();
    let of = |problems: &[&ConfigProblem]| {
        problems
            .iter()
            .map(|p| p.server.clone().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (of(&own), of(&others)),
        (vec!["a".to_owned()], vec!["b".to_owned()])
    );
}

#[test]
fn a_tool_of_any_name_is_switched_and_no_other() {
    let names = [
        "!x",
        "$",
        "a$b",
        "${HOME}",
        "a\\b",
        "\u{1b}[31m",
        "a\nb",
        "[!]",
        "{a,b}",
        "*",
        "a\"'b",
        "#",
        "é\u{202e}",
    ];
    for (file, text) in [("a.toml", TOML), ("a.yaml", YAML), ("a.json", JSON)] {
        for name in names {
            let scene = Scene::of(&[(file, text)]);
            scene
                .apply(&off(&[name]))
                .unwrap_or_else(|error| panic!("{file}: {name:?}: {error}"));
            let plan = crate::load(&scene.options).unwrap().plan;
            let denied: Vec<&str> = names
                .into_iter()
                .filter(|name| !plan.servers[0].tools.allows_name(name))
                .collect();
            assert_eq!(denied, [name], "{file}: {}", scene.text(file));
            assert!(
                plan.servers[0].tools.allows_name("x") && plan.servers[0].tools.allows_name("a"),
                "{file}: {name:?}"
            );
            assert!(
                is_pattern_of(plan.servers[0].tools.deny.patterns()[0].as_str(), name),
                "{file}: {name:?}"
            );
            scene
                .apply(&on(&[name]))
                .unwrap_or_else(|error| panic!("{file}: {name:?}: {error}"));
            assert_eq!(scene.text(file), text, "{file}: {name:?}");
        }
    }
}

#[test]
fn many_tools_are_switched_as_one_and_back() {
    let names: Vec<String> = (0..400).map(|n| format!("tool_{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let rules = "tools:\n      deny:\n        - mine # by hand\n";
    for (file, text) in [
        ("a.toml", TOML.to_owned()),
        (
            "b.toml",
            format!("{TOML}tools.deny = [\n  \"mine\", # by hand\n]\n"),
        ),
        ("a.yaml", YAML.to_owned()),
        ("b.yaml", format!("{YAML}    {rules}")),
        ("a.json", JSON.to_owned()),
    ] {
        let scene = Scene::of(&[(file, &text)]);
        scene
            .apply(&off(&names))
            .unwrap_or_else(|error| panic!("{file}: {error}"));
        let plan = crate::load(&scene.options).unwrap().plan;
        assert!(
            names
                .iter()
                .all(|name| !plan.servers[0].tools.allows_name(name)),
            "{file}: {}",
            scene.text(file)
        );
        scene
            .apply(&on(&names))
            .unwrap_or_else(|error| panic!("{file}: {error}"));
        assert_eq!(scene.text(file), text, "{file}");
    }
}

#[test]
fn lines_to_paste_have_the_whole_list_in_the_format_of_the_file() {
    let rules = [
        (
            "a.toml",
            format!("{TOML}tools = {{ deny = [\"add\", \"zzz\"] }}\n"),
        ),
        ("a.yaml", format!("{YAML}    tools: {{deny: [add, zzz]}}\n")),
        (
            "a.json",
            JSON.replace(
                "\"prefix\": \"x\"",
                "\"tools\": { \"deny\": [\"add\", \"zzz\"] }",
            ),
        ),
    ];
    let pasted = |file: &str, text: &str, operations: &[ConfigOperation]| {
        let scene = Scene::of(&[(file, text)]);
        prepare_edit(&scene.options, None, operations)
            .unwrap()
            .snippet()
    };
    for (file, text) in &rules {
        let snippet = pasted(
            file,
            text,
            &[
                off(&["hello"]),
                ConfigOperation::DisableServer("a".to_owned()),
            ],
        )
        .unwrap();
        let scene = Scene::of(&[(file, &snippet)]);
        let tree = file_entry::read_tree(&scene.options, &scene.options.paths[0])
            .unwrap()
            .to_json(&|_, _| None);
        let expected = json!({
            "servers": {
                "a": { "tools": { "deny": ["add", "zzz", "hello"] }, "enabled": false } } });
        assert_eq!(tree, expected, "{file}: {snippet}");
        let emptied = pasted(file, text, &[on(&["add", "zzz"])]).unwrap();
        assert!(
            emptied.contains("[]") && !emptied.contains("zzz"),
            "{file}: {emptied}"
        );
    }
    let off = format!("{TOML}enabled = false\n");
    let enabled = pasted(
        "a.toml",
        &off,
        &[ConfigOperation::EnableServer("a".to_owned())],
    );
    assert_eq!(enabled.as_deref(), Some("[servers.a]\nenabled = true\n"));
    let disabled = pasted(
        "b.json",
        CLIENT,
        &[ConfigOperation::DisableServer("a".to_owned())],
    )
    .unwrap();
    assert!(
        disabled.contains("mcpServers") && disabled.contains("\"disabled\": true"),
        "{disabled}"
    );
    assert_eq!(
        pasted(
            "a.toml",
            TOML,
            &[ConfigOperation::RemoveServer("a".to_owned())]
        ),
        None
    );
}

#[test]
fn what_decides_in_place_of_an_edit_is_named() {
    let scene = Scene::of(&[(
        "a.toml",
        &format!("{TOML}\n[servers.b]\nurl = \"https://b.example/mcp\"\n"),
    )]);
    let mut first = scene.options.clone();
    first.only = vec!["b".to_owned()];
    let refused = |options: &LoadOptions<'_>, operation: ConfigOperation| {
        prepare_edit(options, None, &[operation])
            .err()
            .unwrap()
            .message
    };
    assert!(
        refused(&first, ConfigOperation::EnableServer("a".to_owned())).contains("the flag --only")
    );
    let mut second = scene.options.clone();
    second.env.insert(
        "MOONGATE_SERVERS__A__TOOLS__DENY".to_owned(),
        "x".to_owned(),
    );
    assert!(refused(&second, on(&["x"])).contains("MOONGATE_SERVERS__A__TOOLS__DENY"));
    let places = crate::load(&second).unwrap().places;
    assert_eq!(
        places.server_variables("a"),
        ["MOONGATE_SERVERS__A__TOOLS__DENY"]
    );
}

#[test]
fn a_client_s_spelling_is_a_reference_all_the_same() {
    let text =
        "{ \"mcp\": { \"a\": { \"type\": \"remote\", \"url\": \"https://a.example/mcp\" } } }\n";
    let scene = Scene::of(&[("opencode.json", text)]);
    let refused = |edits: AdminEdits, operation: ConfigOperation| {
        prepare_operator_edit(edits, &scene.options, None, &[operation])
            .err()
            .map(|error| error.code)
    };
    let add = |url: &str| ConfigOperation::AddServer {
        name: "b".to_owned(),
        settings: json!({ "url": url }),
    };
    let describe = |text: &str| {
        let values = json!({ "description": text }).as_object().unwrap().clone();
        ConfigOperation::SetKeys {
            server: "a".to_owned(),
            values,
        }
    };
    for text in ["{env:HOME}", "{file:/etc/hostname}", "a{env:HOME}b"] {
        let url = format!("https://evil.example/mcp?q={text}");
        assert_eq!(
            refused(AdminEdits::default(), add(&url)),
            Some("commands_not_allowed"),
            "{text}"
        );
        assert_eq!(
            refused(AdminEdits::default(), describe(text)),
            Some("commands_not_allowed"),
            "{text}"
        );
    }
    assert_eq!(
        refused(AdminEdits::default(), describe("costs $5 {x}")),
        None
    );
    // A client's format has no escape for it.
    assert_eq!(
        refused(AdminEdits::default(), describe("costs ${HOME}")),
        Some("cannot_edit")
    );
    assert_eq!(
        refused(AdminEdits::default(), add("https://b.example/mcp")),
        None
    );
    let permitted = AdminEdits {
        allow_commands: true,
        ..AdminEdits::default()
    };
    assert_ne!(
        refused(permitted, describe("{env:PATH}")),
        Some("commands_not_allowed")
    );
}

#[test]
fn no_edit_changes_what_another_entry_refers_to() {
    let refused = |file: &str, text: &str, operation: ConfigOperation| {
        let scene = Scene::of(&[(file, text)]);
        prepare_operator_edit(AdminEdits::default(), &scene.options, None, &[operation])
            .err()
            .map(|error| error.code)
    };
    let typed = |kind: &str| ConfigOperation::AddServer {
        name: "b".to_owned(),
        settings: json!({ "url": "http://127.0.0.1:9/mcp", "type": kind }),
    };
    let remove = || ConfigOperation::RemoveServer("a".to_owned());
    let file = |kind: &str, evil: &serde_json::Value| {
        let first = json!({ "type": kind, "url": "https://a.example/mcp" });
        json!({ "mcp": { "a": first, "evil": evil } }).to_string()
    };
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
                refused(
                    "opencode.json",
                    &file("remote", &entry(crush)),
                    typed("http")
                ),
                not_allowed,
                "{crush}"
            );
            assert_eq!(
                refused("m.json", &file("http", &entry(opencode)), remove()),
                not_allowed,
                "{opencode}"
            );
        }
    }
    // What the owner wrote stays, references and programs too.
    let owned =
        json!({ "command": ["x"], "environment": { "A": "{env:HOME}" }, "description": "$$5" });
    assert_eq!(
        refused("opencode.json", &file("remote", &owned), typed("http")),
        not_allowed,
        "its variable is lost"
    );
    assert_eq!(
        refused("opencode.json", &file("remote", &owned), add("b")),
        None
    );
    assert_eq!(
        refused("opencode.json", &file("remote", &owned), remove()),
        None
    );
    let plain = json!({ "url": "https://c.example/mcp", "headers": { "X": "100$" } });
    assert_eq!(
        refused("opencode.json", &file("remote", &plain), typed("http")),
        None
    );
    assert_eq!(refused("m.json", &file("http", &plain), remove()), None);
    // In a client's file, a key that any operator may set can say where a server leads.
    let values = json!({ "protocol": "sse" }).as_object().unwrap().clone();
    let protocol = ConfigOperation::SetKeys {
        server: "evil".to_owned(),
        values,
    };
    assert_eq!(
        refused("m.json", &file("http", &plain), protocol),
        not_allowed
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
                settings,
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
        settings,
    };
    let refused = |edits: AdminEdits, operation: &ConfigOperation| {
        let operations = std::slice::from_ref(operation);
        prepare_operator_edit(edits, &scene.options, None, operations)
            .err()
            .map(|error| (error.code, error.message))
    };
    let permitted = AdminEdits {
        allow_commands: true,
        ..AdminEdits::default()
    };
    for edits in [AdminEdits::default(), permitted] {
        let (code, message) = refused(edits, &merged).unwrap();
        assert_eq!(code, "already_there");
        assert!(
            message.contains("MOONGATE_SERVERS__LEDGER__URL"),
            "{message}"
        );
        assert_eq!(refused(edits, &add("ledger2")), None);
    }
}
