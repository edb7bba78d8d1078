//! Tools that are switched on and off, under any name and in any number.

use super::*;

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
    assert!(
        !plan.servers[0].presentation.tools.allows_name("rm")
            && !plan.servers[0].presentation.tools.allows_name("x")
    );
}

/// Layers that the server `a` can inherit a list of tools from: their name, what `base.toml` and
/// `local.toml` add, and a variable. `LIST` stands for the list's key and value.
const ELSEWHERE: [(&str, &str, &str, &str); 5] = [
    (
        "defaults of the same file",
        "",
        "[defaults.tools]\nLIST\n",
        "",
    ),
    (
        "defaults of a weaker file",
        "[defaults.tools]\nLIST\n",
        "[defaults]\ntimeout = \"90s\"\n",
        "",
    ),
    (
        "entry of a weaker file",
        "[servers.a.tools]\nLIST\n",
        "",
        "",
    ),
    (
        "entry of a weaker file that has defaults",
        "[servers.a.tools]\nLIST\n[defaults.tools]\ndeny = [\"other\"]\n",
        "",
        "",
    ),
    ("variable", "", "", "MOONGATE_DEFAULTS__TOOLS__"),
];

/// Creates two files with the server `a`. Its entry in `local.toml` is the one that edits change,
/// and it inherits a list of tools.
fn inherited(
    (_, base, local, variable): (&str, &str, &str, &str),
    list: &str,
    patterns: &[&str],
) -> Scene {
    let value = json!(patterns).to_string();
    let with_list = |text: &str| text.replace("LIST", &format!("{list} = {value}"));
    let base = format!("{TOML}{}", with_list(base));
    let local = format!("{}[servers.a]\ntitle = \"A\"\n", with_list(local));
    let mut scene = Scene::of(&[("base.toml", &base), ("local.toml", &local)]);
    if !variable.is_empty() {
        let name = format!("{variable}{}", list.to_uppercase());
        scene.options.env.insert(name, value);
    }
    scene
}

/// Lists which of these tools the server `a` has, by its rules.
fn enabled<'a>(scene: &Scene, tools: &[&'a str]) -> Vec<&'a str> {
    let plan = crate::load(&scene.options).unwrap().plan;
    let rules = &plan.servers[0].presentation.tools;
    let mut tools = tools.to_vec();
    tools.retain(|tool| rules.allows_name(tool));
    tools
}

#[test]
fn tools_that_another_layer_denies_stay_off() {
    let tools = ["create_issue", "delete_repo", "read"];
    for layer in ELSEWHERE {
        let scene = inherited(layer, "deny", &["delete_*"]);
        scene.apply(&off(&["create_issue"])).unwrap();
        assert_eq!(enabled(&scene, &tools), ["read"], "{}", layer.0);
        scene.apply(&on(&["create_issue"])).unwrap();
        assert_eq!(
            enabled(&scene, &tools),
            ["create_issue", "read"],
            "{}",
            layer.0
        );
    }
}

#[test]
fn a_list_of_another_layer_is_where_a_new_one_starts() {
    let tools = ["create_issue", "get_issue", "list_repos", "rest"];
    for layer in ELSEWHERE {
        let scene = inherited(layer, "allow", &["get_*", "list_repos"]);
        scene.apply(&on(&["create_issue"])).unwrap();
        let text = scene.text("local.toml");
        let list = "allow = [\"get_*\", \"list_repos\", \"create_issue\"]";
        assert!(text.contains(list), "{}: {text}", layer.0);
        assert_eq!(enabled(&scene, &tools), tools[..3], "{}", layer.0);
        let scene = inherited(layer, "allow", &["get_*", "list_repos"]);
        scene.apply(&off(&["list_repos"])).unwrap();
        assert_eq!(enabled(&scene, &tools), ["get_issue"], "{}", layer.0);
        scene.apply(&on(&["list_repos"])).unwrap();
        assert_eq!(enabled(&scene, &tools), tools[1..3], "{}", layer.0);
    }
}

#[test]
fn an_exception_in_an_inherited_list_ends_for_its_server() {
    let tools = ["delete_repo", "delete_user", "read"];
    for layer in ELSEWHERE {
        let scene = inherited(layer, "deny", &["delete_*", "!delete_repo"]);
        scene.apply(&off(&["delete_repo"])).unwrap();
        assert_eq!(enabled(&scene, &tools), ["read"], "{}", layer.0);
        let scene = inherited(layer, "allow", &["*", "!read"]);
        scene.apply(&on(&["read"])).unwrap();
        assert_eq!(enabled(&scene, &tools), tools, "{}", layer.0);
    }
}

#[test]
fn a_tool_under_a_client_s_own_key_becomes_an_exception() {
    let text = CLIENT.replace("\"a\" }", "\"a\", \"disabledTools\": [\"x\", \"y\"] }");
    let scene = Scene::of(&[("b.json", &text)]);
    scene.apply(&on(&["x"])).unwrap();
    assert_eq!(enabled(&scene, &["x", "y", "z"]), ["x", "z"]);
    scene.apply(&off(&["x", "z"])).unwrap();
    assert!(enabled(&scene, &["x", "y", "z"]).is_empty());
}

#[test]
fn an_emptied_list_does_not_bring_an_inherited_one_back() {
    let tools = ["delete_repo", "x"];
    for layer in ELSEWHERE {
        let scene = inherited(layer, "deny", &["delete_*"]);
        let own = format!("{}tools.deny = [\"x\"]\n", scene.text("local.toml"));
        std::fs::write(&scene.options.paths[1], own).unwrap();
        scene.apply(&on(&["x"])).unwrap();
        assert_eq!(enabled(&scene, &tools), tools, "{}", layer.0);
    }
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
                .filter(|name| !plan.servers[0].presentation.tools.allows_name(name))
                .collect();
            assert_eq!(denied, [name], "{file}: {}", scene.text(file));
            assert!(
                plan.servers[0].presentation.tools.allows_name("x")
                    && plan.servers[0].presentation.tools.allows_name("a"),
                "{file}: {name:?}"
            );
            assert!(
                is_pattern_of(
                    plan.servers[0].presentation.tools.deny.patterns()[0].as_str(),
                    name
                ),
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
                .all(|name| !plan.servers[0].presentation.tools.allows_name(name)),
            "{file}: {}",
            scene.text(file)
        );
        scene
            .apply(&on(&names))
            .unwrap_or_else(|error| panic!("{file}: {error}"));
        assert_eq!(scene.text(file), text, "{file}");
    }
}
