//! Edits with references to variables that are set elsewhere.

use super::*;
use crate::problem::ProblemKind;

/// Returns the edit that gives the server a client with a secret.
fn set_client() -> ConfigOperation {
    let values = json!({ "auth": { "client_id": "x$$y", "client_secret": "${NOT_SET_HERE}" } });
    ConfigOperation::SetKeys {
        server: "a".to_owned(),
        values: members(&values),
    }
}

#[test]
fn a_variable_that_is_not_set_here_does_not_refuse_an_edit() {
    for (file, text) in [("a.toml", TOML), ("a.yaml", YAML)] {
        let scene = Scene::of(&[(file, text)]);
        let prepared = prepare_edit(&scene.options, None, &[set_client()]).unwrap();
        let (own, _) = prepared.failed_by_concern();
        assert_eq!(own.len(), 1, "{own:?}");
        assert_eq!(own[0].kind, ProblemKind::Reference);
        prepared.write().unwrap();
        let text = scene.text(file);
        assert!(text.contains("${NOT_SET_HERE}"), "{text}");
    }
}

#[test]
fn a_setting_that_a_variable_overrides_is_still_refused() {
    let mut scene = Scene::of(&[("a.toml", TOML)]);
    let variable = "MOONGATE_SERVERS__A__AUTH__CLIENT_ID".to_owned();
    scene.options.env.insert(variable, "other".to_owned());
    assert_eq!(scene.code(&set_client()), "overridden");
}

#[test]
fn a_reference_that_a_variable_overrides_is_still_refused() {
    let mut scene = Scene::of(&[("a.toml", TOML)]);
    let variable = "MOONGATE_SERVERS__A__AUTH__CLIENT_SECRET".to_owned();
    let reference = "${ALSO_NOT_SET}".to_owned();
    scene.options.env.insert(variable, reference);
    assert_eq!(scene.code(&set_client()), "overridden");
}
