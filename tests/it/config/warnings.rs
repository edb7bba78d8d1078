//! Warnings of a config that can be used: what each one says, and when.

use std::path::Path;

use moongate_access::auth::{AdminRole, MetricsAccess};

use super::{load, load_texts};

#[test]
fn a_config_that_others_may_write_is_warned_of() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.toml");
    std::fs::write(&path, "[servers.a]\ncommand = 'a'\n").unwrap();
    let mode = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap()
    };
    let warnings = || load(std::slice::from_ref(&path), &[]).unwrap().warnings;
    mode(&path, 0o640);
    assert_eq!(warnings(), []);
    mode(&path, 0o666);
    let [warning] = &warnings()[..] else {
        panic!("{:?}", warnings())
    };
    assert!(
        warning
            .message
            .starts_with("everybody on this machine can write"),
        "{warning:?}"
    );
    assert!(warning.fix.starts_with("chmod go-w"), "{warning:?}");
    mode(&path, 0o600);
    mode(directory.path(), 0o777);
    assert!(
        warnings()[0].message.contains("can replace"),
        "{:?}",
        warnings()
    );
    mode(directory.path(), 0o1777);
    assert_eq!(warnings(), []);
}

#[test]
fn packages_without_a_version_are_advised_against() {
    let advice = |command: &str, args: &str| {
        let text = format!("[servers.a]\ncommand = '{command}'\nargs = {args}\n");
        let loaded = load_texts(&[("a.toml", &text)], &[]).unwrap();
        loaded
            .advice
            .into_iter()
            .map(|it| format!("{}: {}", it.message, it.fix))
            .collect::<Vec<_>>()
    };
    for (command, args, package) in [
        ("npx", "['-y', '@s/files', '/data']", "@s/files@1.2.3"),
        ("/usr/bin/npx", "['-y', 'files@latest']", "files@1.2.3"),
        (
            "uvx",
            "['--from', 'git-server', 'run']",
            "git-server==1.2.3",
        ),
        ("uv", "['tool', 'run', 'git-server']", "git-server==1.2.3"),
    ] {
        let found = advice(command, args);
        assert!(
            found.len() == 1 && found[0].contains(package),
            "{command} {args}: {found:?}"
        );
    }
    for (command, args) in [
        ("npx", "['-y', '@s/files@2.0.1']"),
        ("uvx", "['git-server@2.1']"),
        ("uvx", "['a==1']"),
        ("node", "['npx']"),
    ] {
        assert_eq!(
            advice(command, args),
            Vec::<String>::new(),
            "{command} {args}"
        );
    }
}

#[test]
fn unreplaced_dollar_signs_are_warned_of() {
    let text = "[servers.a]\ncommand = 'sh'\nargs = ['-c', 'echo $HOME']\nenv = \
                { A = '$HOME', B = '$$HOME', C = '5$', D = '${X:-1}' }\n";
    let loaded = load_texts(&[("a.toml", text)], &[]).unwrap();
    let [advice] = &loaded.advice[..] else {
        panic!("{:?}", loaded.advice)
    };
    assert_eq!(
        advice.message,
        "`servers.a.env.A` contains `$HOME`, which is not expanded"
    );
    assert!(
        loaded.warnings.is_empty(),
        "it is said by `check`, not at each start"
    );
}

#[test]
fn an_empty_config_warns() {
    for text in ["", "[gateway]\ndrain = '1s'\n", "[servers]\n"] {
        let warnings = load_texts(&[("a.toml", text)], &[]).unwrap().warnings;
        assert!(
            warnings.len() == 1 && warnings[0].message.starts_with("no server is configured"),
            "{warnings:?}"
        );
    }
    let empty = load_texts(&[("a.json", r#"{ "mcpServers": {} }"#)], &[]).unwrap();
    assert_eq!(empty.warnings.len(), 1);
    assert!(
        load(&[], &[]).unwrap().warnings.is_empty(),
        "without a file a demo is served"
    );
    assert!(
        load_texts(
            &[("a.toml", "[servers.a]\ncommand = 'a'\nenabled = false\n")],
            &[]
        )
        .unwrap()
        .warnings
        .is_empty()
    );
}

#[test]
fn options_of_search_mode_without_it_are_told() {
    let warnings = |text: &str| {
        let text = format!("servers.a.command = 'a'\n{text}");
        let warnings = load_texts(&[("a.toml", &text)], &[]).unwrap().warnings;
        warnings
            .into_iter()
            .map(|warning| warning.render("warning"))
            .collect::<Vec<_>>()
    };
    for table in ["gateway", "views.small"] {
        for (key, line) in [
            ("always", "always = ['a__x']"),
            ("search", "search = { split_calls = true }"),
        ] {
            let said = warnings(&format!("[{table}]\n{line}"));
            let expected =
                format!("`{table}.{key}` has no effect without `{table}.discovery = \"search\"`");
            assert!(said.len() == 1 && said[0].contains(&expected), "{said:?}");
            assert_eq!(
                warnings(&format!("[{table}]\ndiscovery = 'search'\n{line}")),
                [""; 0]
            );
        }
        // What changes nothing anyway may stand there.
        assert_eq!(
            warnings(&format!(
                "[{table}]\nalways = []\nsearch = {{ resources = true }}"
            )),
            [""; 0]
        );
    }
}

#[test]
fn an_open_admin_listener_is_warned_of_once_and_needs_no_other_config() {
    let container = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/docker.toml");
    // As the images start it. The key for commands isn't a setting.
    let image = [
        ("MOONGATE_KEY", "a-long-enough-test-key"),
        ("MOONGATE_ADMIN_KEY", "another-long-enough-key"),
        ("MOONGATE_GATEWAY__LISTEN", "0.0.0.0:8080"),
        ("MOONGATE_GATEWAY__ADMIN", "0.0.0.0:9090"),
    ];
    let loaded = load(std::slice::from_ref(&container), &image).unwrap();
    let warnings: Vec<String> = loaded
        .warnings
        .iter()
        .map(|warning| warning.render("warning"))
        .collect();
    assert!(
        warnings.len() == 1 && warnings[0].contains("`admin.keys`"),
        "{warnings:?}"
    );
    assert!(warnings[0].contains("0.0.0.0:9090"), "{warnings:?}");
    let keys = "[servers.a]\ncommand = \"a\"\n[gateway]\nadmin \
                = \"0.0.0.0:9090\"\n[[admin.keys]]\nname = \"me\"\nkey \
                = \"a-long-enough-test-key\"";
    let loaded = load_texts(&[("a.toml", keys)], &[("MOONGATE_ADMIN__METRICS", "key")]).unwrap();
    let plan = loaded.plan.admin_access;
    assert_eq!(plan.keys[0].role, AdminRole::View);
    assert_eq!(plan.metrics, MetricsAccess::Key);
    assert!(
        loaded.warnings[0].render("warning").contains("plain text"),
        "{:?}",
        loaded.warnings
    );
}
