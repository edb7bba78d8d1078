//! Operations on files in the three formats and in clients' dialects.

mod operator_edits;
mod tool_switches;
mod unset_references;

use std::path::PathBuf;

use moongate_access::auth::KeyHash;
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
        settings: members(&json!({ "url": "https://b.example/mcp" })),
    }
}

fn members(table: &serde_json::Value) -> serde_json::Map<String, serde_json::Value> {
    table.as_object().unwrap().clone()
}

fn key(name: &str) -> KeyEntry {
    KeyEntry::new(name, KeyHash::of(name))
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
    assert_eq!(scene.text("a.toml"), TOML);
    assert_eq!(written.line, 3);
    assert_eq!(
        scene.code(&ConfigOperation::RemoveServer("a".to_owned())),
        "cannot_edit"
    );
}

#[test]
fn a_server_that_another_layer_switches_off_is_switched_on_by_its_entry() {
    let off = format!("{TOML}enabled = false\n");
    let defaults = format!("[defaults]\nenabled = false\n{TOML}");
    for (layer, base, variable) in [
        ("entry of a weaker file", off.as_str(), ""),
        ("defaults of a weaker file", defaults.as_str(), ""),
        ("variable", TOML, "MOONGATE_DEFAULTS__ENABLED"),
    ] {
        for own in ["title = \"A\"\n", "title = \"A\"\nenabled = false\n"] {
            let local = format!("[servers.a]\n{own}");
            let mut scene = Scene::of(&[("base.toml", base), ("local.toml", &local)]);
            if !variable.is_empty() {
                let value = "false".to_owned();
                scene.options.env.insert(variable.to_owned(), value);
            }
            scene
                .apply(&ConfigOperation::EnableServer("a".to_owned()))
                .unwrap_or_else(|error| panic!("{layer}: {own}: {error}"));
            let expected = "[servers.a]\ntitle = \"A\"\nenabled = true\n";
            assert_eq!(scene.text("local.toml"), expected, "{layer}: {own}");
            let plan = crate::load(&scene.options).unwrap().plan;
            assert_eq!(plan.servers.len(), 1, "{layer}: {own}");
        }
    }
}

#[test]
fn a_variable_that_switches_a_server_off_is_named() {
    let mut scene = Scene::of(&[("a.toml", &format!("{TOML}enabled = false\n"))]);
    let variable = "MOONGATE_SERVERS__A__ENABLED";
    let value = "false".to_owned();
    scene.options.env.insert(variable.to_owned(), value);
    let enable = ConfigOperation::EnableServer("a".to_owned());
    let message = refusal_message(&scene.options, enable);
    assert!(message.contains(variable), "{message}");
}

#[test]
fn without_a_file_one_is_begun() {
    let scene = Scene::of(&[]);
    let written = scene.apply(&add("b")).unwrap();
    assert_eq!(
        scene.text("new/moongate.toml"),
        "[servers.b]\nurl = \"https://b.example/mcp\"\n"
    );
    assert_eq!(written.line, 1);
    assert_eq!(written.before, None);
}

#[test]
fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let scene = Scene::of(&[("a.toml", TOML)]);
    let bad = ConfigOperation::AddServer {
        name: "b".to_owned(),
        settings: members(&json!({ "url": "ftp://x" })),
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
        assert_eq!(error.code, code, "{operation:?}: {error}");
        assert_eq!(scene.text("a.toml"), TOML, "{operation:?}: {error}");
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
            .contains("the variable MOONGATE_SERVERS__A__ENABLED overrides"),
        "{error}"
    );
    // A broken file is never written, and what to paste is shown.
    let broken = Scene::of(&[("a.toml", "[servers.a\n")]);
    let error = broken.apply(&add("b")).unwrap_err();
    assert_eq!(error.code, "cannot_edit");
    assert_eq!(broken.text("a.toml"), "[servers.a\n");
    assert_eq!(
        error.snippet.as_deref(),
        Some("[servers.b]\nurl = \"https://b.example/mcp\"\n")
    );
}

#[test]
fn keys_are_added_and_removed_by_name() {
    let key = key("laptop");
    for (file, text) in [("a.toml", TOML), ("a.yaml", YAML), ("a.json", JSON)] {
        for list in [KeyList::Clients, KeyList::Operators] {
            let scene = Scene::of(&[(file, text)]);
            scene
                .apply(&ConfigOperation::AddKey {
                    list,
                    key: key.clone(),
                })
                .unwrap();
            assert!(scene.text(file).contains(&key.hash.to_string()));
            scene
                .apply(&ConfigOperation::RemoveKey(list, "laptop".to_owned()))
                .unwrap();
            let plan = crate::load(&scene.options).unwrap().plan;
            assert!(plan.auth.keys.is_empty() && plan.admin_access.keys.is_empty());
            assert_eq!(scene.text(file), text, "{file}: nothing is left of it");
        }
    }
}

/// Returns a list with keys of these names, as TOML.
fn key_lines(list: KeyList, names: &[&str]) -> String {
    names
        .iter()
        .map(|name| key_toml(list, &key(name)).unwrap())
        .collect()
}

/// Returns the names of the keys that are valid.
fn valid_keys(scene: &Scene, list: KeyList) -> Vec<String> {
    let plan = crate::load(&scene.options).unwrap().plan;
    let clients = plan.auth.keys.iter();
    let operators = plan.admin_access.keys.iter();
    match list {
        KeyList::Clients => clients.map(|key| key.name.clone()).collect(),
        KeyList::Operators => operators.map(|key| key.name.clone()).collect(),
    }
}

#[test]
fn a_new_key_goes_into_the_list_that_counts() {
    for list in [KeyList::Clients, KeyList::Operators] {
        let new = ConfigOperation::AddKey {
            list,
            key: key("new"),
        };
        let base = format!("{TOML}{}", key_lines(list, &["old"]));
        let scene = Scene::of(&[("base.toml", &base), ("local.toml", "[limits]\n")]);
        scene.apply(&new).unwrap();
        assert_eq!(valid_keys(&scene, list), ["old", "new"]);
        assert_eq!(scene.text("local.toml"), "[limits]\n");
        let local = key_lines(list, &["own"]);
        let mut scene = Scene::of(&[("base.toml", &base), ("local.toml", &local)]);
        scene.apply(&new).unwrap();
        assert_eq!(valid_keys(&scene, list), ["own", "new"]);
        assert_eq!(scene.text("base.toml"), base);
        let variable = format!("MOONGATE_{}__KEYS", list.table().to_uppercase());
        let value = json!([{ "name": "set", "hash": key("set").hash.to_string() }]);
        scene.options.env.insert(variable, value.to_string());
        let another = ConfigOperation::AddKey {
            list,
            key: key("another"),
        };
        assert_eq!(scene.code(&another), "overridden");
    }
}

#[test]
fn the_end_of_a_list_does_not_make_keys_of_another_file_valid() {
    for list in [KeyList::Clients, KeyList::Operators] {
        let remove = |name: &str| ConfigOperation::RemoveKey(list, name.to_owned());
        let base = format!("{TOML}{}", key_lines(list, &["old"]));
        let local = key_lines(list, &["a", "b"]);
        let scene = Scene::of(&[("base.toml", &base), ("local.toml", &local)]);
        scene.apply(&remove("a")).unwrap();
        assert_eq!(valid_keys(&scene, list), ["b"]);
        assert_eq!(scene.code(&remove("b")), "cannot_edit");
        assert_eq!(valid_keys(&scene, list), ["b"]);
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
fn a_config_that_was_broken_before_is_not_blamed_on_the_edit() {
    let scene = Scene::of(&[("a.toml", &format!("[gateway]\nlisten = 5\n{TOML}"))]);
    let error = scene.apply(&off(&["x"])).unwrap_err();
    assert!(
        error.code == "problems" && error.message.starts_with("the config is already invalid"),
        "{error}"
    );
}

#[test]
fn a_key_that_was_not_written_leaves_no_hash_to_paste() {
    let scene = Scene::of(&[("a.toml", "[servers.a\n")]);
    let error = scene
        .apply(&ConfigOperation::AddKey {
            list: KeyList::Clients,
            key: key("laptop"),
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
    assert_eq!(servers_of(&own), ["a"]);
    assert_eq!(servers_of(&others), ["b"]);
}

fn servers_of<'a>(problems: &[&'a ConfigProblem]) -> Vec<&'a str> {
    problems
        .iter()
        .map(|problem| problem.server.as_deref().unwrap())
        .collect()
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

/// Returns the lines to paste for operations on a file.
fn pasted(file: &str, text: &str, operations: &[ConfigOperation]) -> Option<String> {
    let scene = Scene::of(&[(file, text)]);
    prepare_edit(&scene.options, None, operations)
        .unwrap()
        .snippet()
}

#[test]
fn what_decides_in_place_of_an_edit_is_named() {
    let scene = Scene::of(&[(
        "a.toml",
        &format!("{TOML}\n[servers.b]\nurl = \"https://b.example/mcp\"\n"),
    )]);
    let mut first = scene.options.clone();
    first.only = vec!["b".to_owned()];
    let enabled = ConfigOperation::EnableServer("a".to_owned());
    assert!(refusal_message(&first, enabled).contains("the flag --only"));
    let mut second = scene.options.clone();
    second.env.insert(
        "MOONGATE_SERVERS__A__TOOLS__DENY".to_owned(),
        "x".to_owned(),
    );
    let refused = refusal_message(&second, on(&["x"]));
    assert!(refused.contains("MOONGATE_SERVERS__A__TOOLS__DENY"));
    let locations = crate::load(&second).unwrap().locations;
    assert_eq!(
        locations.server_variables("a"),
        ["MOONGATE_SERVERS__A__TOOLS__DENY"]
    );
}

fn refusal_message(options: &LoadOptions<'_>, operation: ConfigOperation) -> String {
    prepare_edit(options, None, &[operation])
        .err()
        .unwrap()
        .message
}
