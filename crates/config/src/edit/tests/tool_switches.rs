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
