//! Configs as users write them: the examples, every kind of mistake with the exact message for it,
//! and layers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use moongate::cli;
use moongate_config::{
    self, ConfigProblems, LoadOptions, LoadedConfig, Plan, ProblemKind, ProblemOrigin,
};
use moongate_listener::ListenAddress;
use moongate_model::SharingMode;
use moongate_upstream::{ConnectTarget, ServerSettings};

mod auth;
mod clients;
mod layers;
mod odd_lines;
mod start;
mod warnings;

fn address(text: &str) -> ListenAddress {
    ListenAddress::Tcp(text.parse().unwrap())
}

const REVISIONS: &[&str] = &["2001-01-01", "2002-02-02"];

fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn load(paths: &[PathBuf], env: &[(&str, &str)]) -> Result<LoadedConfig, ConfigProblems> {
    let options = LoadOptions {
        paths: paths.to_vec(),
        env: variables(env),
        revisions: REVISIONS,
        ..Default::default()
    };
    moongate_config::load(&options)
}

/// Writes texts to files of a directory that is gone afterwards, and loads them over one another.
fn load_texts(
    files: &[(&str, &str)],
    env: &[(&str, &str)],
) -> Result<LoadedConfig, ConfigProblems> {
    let directory = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = files
        .iter()
        .map(|(name, text)| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        })
        .collect();
    load(&paths, env)
}

#[track_caller]
fn plan(files: &[(&str, &str)], env: &[(&str, &str)]) -> Plan {
    load_texts(files, env)
        .unwrap_or_else(|problems| panic!("{problems}"))
        .plan
}

fn files_in(directory: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    let entries = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = entries
        .filter(|path| {
            path.extension()
                .is_some_and(|it| it == "toml" || it == "yaml" || it == "json")
        })
        .collect();
    paths.sort();
    paths
}

#[test]
fn every_example_loads() {
    let paths = files_in("config");
    assert!(paths.len() >= 4, "{paths:?}");
    for path in paths {
        let loaded = load(
            std::slice::from_ref(&path),
            &[("MOONGATE_KEY", "a-long-enough-test-key")],
        )
        .unwrap_or_else(|problems| panic!("{problems}"));
        let client = path.ends_with("from-a-client.json");
        assert!(
            client || loaded.warnings.is_empty(),
            "{:?}",
            loaded.warnings
        );
    }
}

#[test]
fn the_full_example_shows_the_defaults() {
    let full = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/full.toml");
    let mut shown = load(&[full], &[]).unwrap().plan;
    assert_eq!(shown.views.len(), 1);
    shown.views.clear();
    shown.disabled.clear();
    assert_eq!(shown, load(&[], &[]).unwrap().plan);
}

#[test]
fn the_full_example_has_every_key() {
    let full = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/full.toml");
    let text = std::fs::read_to_string(full).unwrap();
    let schema: serde_json::Value = serde_json::from_str(&moongate_config::json_schema()).unwrap();
    // Lists of tables have headings instead.
    let spellings = ["disabled", "isActive", "keys", "jwt", "roles"];
    for definition in schema["$defs"].as_object().unwrap().values() {
        for (key, rule) in definition["properties"].as_object().into_iter().flatten() {
            if rule["description"]
                .as_str()
                .is_some_and(|text| text.starts_with("The same as"))
            {
                continue;
            }
            assert!(
                spellings.contains(&key.as_str()) || text.contains(&format!("{key} = ")),
                "{key}"
            );
        }
    }
}

/// Each file of `tests/config/invalid` and the whole text that is printed for it, in the `.txt`
/// beside it. Set `UPDATE_EXPECTED` to write those.
#[test]
fn every_mistake_is_explained() {
    let paths = files_in("tests/config/invalid");
    assert!(paths.len() >= 20, "{}", paths.len());
    for path in paths {
        let shown = load(
            std::slice::from_ref(&path),
            &[
                ("SHORT", "abc"),
                ("TOKEN", "leaked-value-5"),
                ("SCHEME", "leaked:secret"),
            ],
        );
        let problems = shown.expect_err(&path.display().to_string());
        let directory = format!("{}/", path.parent().unwrap().display());
        let text = problems.to_string().replace(&directory, "");
        assert!(!text.contains("leaked"), "{}: {text}", path.display());
        let expected = path.with_extension("txt");
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            std::fs::write(&expected, &text).unwrap();
        }
        let expected = std::fs::read_to_string(&expected).unwrap_or_default();
        assert!(
            text == expected,
            "{} shows\n{text}\ninstead of\n{expected}",
            path.display()
        );
    }
}

#[test]
fn unknown_log_levels_are_config_errors() {
    for (word, level) in [
        ("verbose", "debug"),
        ("warning", "warn"),
        ("none", "off"),
        ("info,moongate=verbose", "debug"),
    ] {
        let problems = load_texts(
            &[("a.toml", &format!("[telemetry]\nlog = '{word}'\n"))],
            &[],
        )
        .unwrap_err();
        assert_eq!(
            problems.errors[0].fix,
            format!("did you mean `{level}`?"),
            "{word}"
        );
    }
    assert!(load_texts(&[("a.toml", "[telemetry]\nlog = 'loud'\n")], &[]).is_err());
    assert_eq!(
        plan(&[("a.toml", "[telemetry]\nlog = 'info,hyper=warn'\n")], &[])
            .log
            .filter,
        "info,hyper=warn"
    );
}

#[test]
fn problems_of_variables_and_flags_name_them() {
    let env = [
        ("MOONGATE_GATEWAY__LISTEN", "0.0.0.0:80"),
        ("MOONGATE_GATEWAY__DRAIN", "30"),
        ("MOONGATE_GATWAY__ADMIN", "off"),
        ("MOONGATE_LIMITS__SESSIONS", "many"),
        ("MOONGATE_LIMITS_BODY", "4MiB"),
    ];
    let mut options = LoadOptions {
        env: variables(&env),
        only: vec!["x".to_owned()],
        ..Default::default()
    };
    let problems = moongate_config::load(&options).unwrap_err();
    let found: Vec<(ProblemKind, ProblemOrigin)> = problems
        .errors
        .iter()
        .map(|it| (it.kind, it.origin.clone()))
        .collect();
    let variable = |name: &str| ProblemOrigin::Variable(name.to_owned());
    assert_eq!(
        found,
        [
            (ProblemKind::Value, variable("MOONGATE_GATEWAY__DRAIN")),
            (
                ProblemKind::OpenListener,
                variable("MOONGATE_GATEWAY__LISTEN")
            ),
            (ProblemKind::UnknownKey, variable("MOONGATE_GATWAY__ADMIN")),
            (ProblemKind::Type, variable("MOONGATE_LIMITS__SESSIONS")),
            (
                ProblemKind::Conflict,
                ProblemOrigin::Flag("--only".to_owned())
            ),
        ],
        "{problems}"
    );
    assert_eq!(problems.warnings.len(), 1);
    assert!(
        problems.to_string().contains("write MOONGATE_LIMITS__BODY"),
        "{problems}"
    );
    options.env.clear();
    options.only.clear();
    options.listen = vec!["nowhere".to_owned()];
    let problems = moongate_config::load(&options).unwrap_err();
    assert_eq!(
        problems.errors[0].origin,
        ProblemOrigin::Flag("--listen".to_owned())
    );
}

#[test]
fn variables_of_a_disabled_server_may_be_missing() {
    let text = "[servers.a]\ncommand = 'a'\n[servers.b]\nurl = 'https://${HOST}/mcp'\n";
    assert!(load_texts(&[("a.toml", text)], &[]).is_err());
    assert_eq!(
        plan(&[("a.toml", &format!("{text}enabled = false\n"))], &[])
            .servers
            .len(),
        1
    );
    let env = [("MOONGATE_SERVERS__B__ENABLED", "false")];
    assert_eq!(plan(&[("a.toml", text)], &env).servers.len(), 1);
}

#[test]
fn secrets_come_from_variables_and_files_and_are_not_shown() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("token"), "from-a-file\n").unwrap();
    let text = "[servers.a]\nurl = 'https://a.example/${PART:-mcp}?k=hidden-1'\nheaders = \
                { A = '${file:token}', B = 'hidden-2' }\n\
        [servers.b]\ncommand = 'b'\nargs = ['--token', 'hidden-3', '--api-key=hidden-4', \
        '$${LITERAL}']\nenv = { S = '${S}' }\n\
        [[auth.keys]]\nname = 'k'\nkey = '${K}'\n";
    let path = directory.path().join("a.toml");
    std::fs::write(&path, text).unwrap();
    let loaded = load(
        &[path],
        &[("S", "hidden-5"), ("K", "hidden-6-hidden-6-hidden-6")],
    )
    .unwrap();
    let ConnectTarget::Http { headers, url, .. } = &loaded.plan.servers[0].connect else {
        panic!()
    };
    assert_eq!(headers[0].1.to_str().unwrap(), "from-a-file");
    assert_eq!(url.path(), "/mcp");
    let ConnectTarget::Stdio { args, .. } = &loaded.plan.servers[1].connect else {
        panic!()
    };
    assert_eq!(args[3], "${LITERAL}");
    let printed = loaded.print();
    assert!(
        !printed.contains("hidden") && !printed.contains("from-a-file"),
        "{printed}"
    );
    assert!(
        printed.contains("${LITERAL}") && printed.contains("\"timeout\": \"60s\""),
        "{printed}"
    );
}

#[test]
fn check_prints_a_valid_config() {
    let first = load_texts(&[("a.toml", layers::TOML)], &[("TOKEN", "secret")]).unwrap();
    let printed = first.print();
    let again = plan(
        &[("a.json", &printed.replace("\"X\": \"***\"", "\"X\": \"1\""))],
        &[],
    );
    assert_eq!(again.servers[1].connect, first.plan.servers[1].connect);
    assert_eq!(
        again.servers[1].live.timeout.0,
        first.plan.servers[1].live.timeout.0
    );
    assert_eq!(again.limits, first.plan.limits);
    assert_eq!(again.names, first.plan.names);
}

#[test]
fn a_revision_can_be_forced_if_it_is_spoken() {
    let text = |revision: &str| format!("[servers.a]\ncommand = 'a'\nprotocol = '{revision}'\n");
    let protocol = |revision: &str| {
        plan(&[("a.toml", &text(revision))], &[]).servers[0]
            .protocol
            .clone()
    };
    assert_eq!(protocol("auto"), None);
    assert_eq!(protocol(REVISIONS[0]).as_deref(), Some(REVISIONS[0]));
    assert!(load_texts(&[("a.toml", &text("2020-01-01"))], &[]).is_err());
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let problems = load(&["/nowhere/a.toml".into()], &[])
        .unwrap_err()
        .to_string();
    assert!(
        problems.contains("--> /nowhere/a.toml\n") && problems.contains("it does not exist"),
        "{problems}"
    );
    let deep = format!("x-a = {}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (name, text) in [
        ("a.toml", deep.clone()),
        ("a.yaml", deep.replace(" =", ":")),
        ("a.json", deep.replace("x-a =", "")),
    ] {
        assert_eq!(
            load_texts(&[(name, &text)], &[]).unwrap_err().errors.len(),
            1,
            "{name}"
        );
    }
    let problems = load_texts(&[("a.conf", "x = 1")], &[])
        .unwrap_err()
        .to_string();
    assert!(
        problems.contains("name it .toml, .yaml or .json"),
        "{problems}"
    );
}

#[test]
fn check_says_by_its_exit_code_whether_a_config_can_be_used() {
    let check = |path: &str| {
        let config = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(path)];
        cli::check::run(
            &cli::check::CheckArgs {
                config,
                ..cli::check::CheckArgs::default()
            },
            REVISIONS,
        )
    };
    assert_eq!(check("config/minimal.toml"), ExitCode::SUCCESS);
    assert_eq!(check("tests/config/invalid/units.toml"), ExitCode::from(2));
}

#[test]
fn a_config_is_found() {
    let here = tempfile::tempdir().unwrap();
    let home = tempfile::tempdir().unwrap();
    let env = variables(&[("XDG_CONFIG_HOME", home.path().to_str().unwrap())]);
    let find = || moongate_config::search(here.path(), &env);
    std::fs::create_dir(home.path().join("moongate")).unwrap();
    std::fs::write(home.path().join("moongate/moongate.yaml"), "").unwrap();
    assert_eq!(find(), Some(home.path().join("moongate/moongate.yaml")));
    std::fs::write(here.path().join("moongate.json"), "{}").unwrap();
    assert_eq!(find(), Some(here.path().join("moongate.json")));
    std::fs::write(here.path().join("moongate.toml"), "").unwrap();
    assert_eq!(find(), Some(here.path().join("moongate.toml")));
}

#[test]
fn empty_files_are_empty_configs() {
    let nothing = load(&[], &[]).unwrap().plan;
    for name in ["a.toml", "a.yaml", "a.json"] {
        assert_eq!(plan(&[(name, "")], &[]), nothing, "{name}");
    }
}

#[test]
fn the_schema_describes_the_keys() {
    let schema: serde_json::Value = serde_json::from_str(&moongate_config::json_schema()).unwrap();
    assert_eq!(
        schema["$schema"],
        "https://json-schema.org/draft/2020-12/schema"
    );
    assert_eq!(schema["additionalProperties"], false);
    for key in [
        "gateway",
        "names",
        "defaults",
        "servers",
        "mcpServers",
        "views",
        "auth",
        "egress",
        "limits",
        "telemetry",
    ] {
        assert!(schema["properties"][key].is_object(), "{key}");
    }
    assert_eq!(
        schema["$defs"]["Gateway"]["properties"]["drain"]["default"],
        "30s"
    );
    assert!(
        schema["$defs"]["Server"]["properties"]["timeout"].is_object(),
        "what all servers have is in each"
    );
    assert!(!moongate_config::json_schema().contains("null"));
}

#[test]
fn a_proxy_and_authorities_come_from_the_server_or_the_defaults() {
    use moongate_transport::proxy::ProxyChoice;
    let directory = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let own = rcgen::CertificateParams::new(["mcp.test".to_owned()])
        .unwrap()
        .self_signed(&key)
        .unwrap();
    std::fs::write(directory.path().join("ca.pem"), own.pem()).unwrap();
    let path = directory.path().join("a.toml");
    let text = "[defaults]\nproxy = \"user:leaked@proxy.test:3128\"\nca = \"ca.pem\"\n\
        [servers.a]\nurl = \"https://a.test/mcp\"\n\
        [servers.b]\nurl = \"wss://b.test/mcp\"\nproxy = \"none\"\n\
        [servers.c]\nurl = \"http://c.test/mcp\"\nproxy = \"http://${WHO}@other.test\"\n\
        [servers.d]\ncommand = \"npx\"\nargs = [\"one@1\"]\n";
    std::fs::write(&path, text).unwrap();
    let loaded = load(std::slice::from_ref(&path), &[("WHO", "user:leaked")]).unwrap();
    let network = |at: usize| match &loaded.plan.servers[at].connect {
        ConnectTarget::Http { network, .. } => network,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        format!("{:?}", network(0).proxy),
        "Fixed(the proxy proxy.test:3128 (from defaults.proxy))"
    );
    assert!(network(0).ca.is_some() && network(0).ca == network(1).ca);
    assert_eq!(network(1).proxy, ProxyChoice::Direct);
    assert_eq!(
        format!("{:?}", network(2).proxy),
        "Fixed(the proxy other.test:80 (from servers.c.proxy))"
    );
    assert!(
        !loaded.print().contains("leaked") && !format!("{:?}", loaded.plan).contains("leaked"),
        "{}",
        loaded.print()
    );
    assert!(
        loaded.files.contains(&directory.path().join("ca.pem")),
        "a change of the file is seen"
    );
}
