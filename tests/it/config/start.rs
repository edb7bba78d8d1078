//! Problems at the start of a gateway: which of them cost one server, and which stop it.

use moongate_config::{ConfigProblems, ErrorTolerance, LoadOptions, LoadedConfig};
use moongate_upstream::ConnectTarget;

use super::{REVISIONS, load_texts};

/// Loads as at the start of a gateway.
pub(super) fn load_at_start(text: &str, name: &str) -> Result<LoadedConfig, ConfigProblems> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    std::fs::write(&path, text).unwrap();
    let tolerance = ErrorTolerance::PerServer;
    moongate_config::load(&LoadOptions {
        paths: vec![path],
        revisions: REVISIONS,
        tolerance,
        ..Default::default()
    })
}

#[test]
fn at_the_start_a_problem_in_an_entry_costs_that_server() {
    let text = "[gateway]\ndrain = '1s'\n[servers.good]\ncommand = 'a'\n\
        [servers.unset]\nurl = 'https://a.example/'\nheaders = { A = '${NOT_SET}' }\n\
        [servers.typo]\ncommand = 't'\ntols = { deny = ['delete_*'] }\n[servers.nowhere]\n\
        [servers.'two words']\ncommand = 'a'\n[servers.off]\ncommand = 'a'\nenabled = \
        false\ncolour = 'red'\n\
        [views.v]\nservers = ['typo', 'good']\n";
    assert!(
        load_texts(&[("a.toml", text)], &[]).is_err(),
        "a reload and `check` refuse it"
    );
    let loaded =
        load_at_start(text, "moongate.toml").unwrap_or_else(|problems| panic!("{problems}"));
    let failed: Vec<(&str, &str)> = loaded
        .plan
        .servers
        .iter()
        .filter_map(|server| match &server.connect {
            ConnectTarget::Misconfigured { reason } => {
                Some((server.name.as_str(), reason.as_str()))
            }
            _ => None,
        })
        .collect();
    let names: Vec<&str> = failed.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["nowhere", "two-words", "typo", "unset"]);
    assert!(
        failed[2].1.contains("unknown key `tols`") && failed[2].1.contains("moongate.toml:10"),
        "{failed:?}"
    );
    assert!(failed[3].1.contains("NOT_SET is not set"), "{failed:?}");
    let off: Vec<&str> = loaded
        .plan
        .disabled
        .iter()
        .map(|server| server.name.as_str())
        .collect();
    assert_eq!(loaded.plan.servers.len(), 5);
    assert_eq!(off, ["off"]);
    assert_eq!(
        loaded.failed.len(),
        5,
        "what is wrong with a disabled one is told, too: {:?}",
        loaded.failed
    );
}

#[test]
fn at_the_start_a_problem_of_the_gateway_s_own_stops_it() {
    for own in [
        "[gateway]\nlisen = '127.0.0.1:1'",
        "[gateway]\npublic_url = '${NOT_SET}'",
        "[defaults]\ntimeout = '${NOT_SET}'",
        "[[auth.keys]]\nname = 'k'\nkey = '${NOT_SET}'",
        "[views.v]\nservers = ['nobody']",
        "servers = 5",
        "[servers.a",
    ] {
        assert!(
            load_at_start(&format!("{own}\n"), "moongate.toml").is_err(),
            "{own}"
        );
    }
}
