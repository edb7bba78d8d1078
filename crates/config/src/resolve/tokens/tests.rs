//! Issuers and roles: how they are resolved, and which are refused.

use moongate_access::auth::{AuthSettings, SignatureAlgorithm};

use crate::{LoadOptions, load};

const GATEWAY: &str = "[gateway]\npublic_url = \"https://mcp.example.com\"\n";
const JWT: &str = "[[auth.jwt]]\nissuer = \"https://login.example.com\"\n\
                   jwks_url = \"https://login.example.com/keys\"\n";
const ROLE: &str = "[[auth.roles]]\nname = \"staff\"\n\
                    match = { issuer = \"https://login.example.com\", groups = [\"a\"] }\n";

/// Loads a config. Returns its settings, or the messages of its errors.
fn auth_of(text: &str) -> Result<AuthSettings, Vec<String>> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("moongate.toml");
    std::fs::write(&path, text).unwrap();
    let loaded = load(&LoadOptions {
        paths: vec![path],
        ..LoadOptions::default()
    });
    loaded.map(|config| config.plan.auth).map_err(|problems| {
        let errors = problems.errors.into_iter();
        errors.map(|error| error.message).collect()
    })
}

/// Checks that a config has one error with this beginning.
fn assert_refused(text: &str, beginning: &str) {
    let errors = auth_of(text).expect_err(text);
    assert!(
        errors.len() == 1 && errors[0].starts_with(beginning),
        "{text}\nexpected {beginning:?}, found {errors:#?}"
    );
}

#[test]
fn an_issuer_and_a_role_have_the_settings_of_the_config() {
    let text = format!("{GATEWAY}{JWT}{ROLE}tools = [\"a__*\"]\n");
    let auth = auth_of(&text).unwrap();
    assert!(!auth.is_open());
    let tokens = auth.tokens.unwrap();
    assert_eq!(tokens.public_url.as_str(), "https://mcp.example.com/");
    let issuer = &tokens.issuers[0];
    assert_eq!(issuer.issuer, "https://login.example.com");
    assert_eq!(issuer.jwks_url.as_str(), "https://login.example.com/keys");
    assert_eq!(issuer.audience, None);
    assert_eq!(issuer.scope, "mcp");
    let expected = [SignatureAlgorithm::Rs256, SignatureAlgorithm::Es256];
    assert_eq!(issuer.algorithms, expected);
    assert_eq!(auth.roles[0].name, "staff");
    assert!(auth.roles[0].endpoints.is_none());
    let people = &auth.matches[0];
    assert_eq!(people.role, "staff");
    assert_eq!(people.issuer, "https://login.example.com");
    assert_eq!(people.claims["groups"], ["a"]);
    assert!(!people.anyone && people.emails.is_none());
}

#[test]
fn a_gateway_without_issuers_takes_no_tokens() {
    let auth = auth_of(GATEWAY).unwrap();
    assert!(auth.is_open() && auth.tokens.is_none() && auth.matches.is_empty());
}

#[test]
fn an_issuer_that_would_be_unsafe_is_refused() {
    let keys = "jwks_url = \"https://login.example.com/keys\"";
    for (old, new, beginning) in [
        (GATEWAY, "", "`auth.jwt` needs `gateway.public_url`"),
        (
            "https://mcp",
            "http://mcp",
            "`gateway.public_url` must be an `https` URL",
        ),
        (keys, "", "`auth.jwt[0].jwks_url` is missing"),
        (
            "https://login.example.com/keys",
            "http://login.example.com/keys",
            "`auth.jwt[0].jwks_url`: ",
        ),
        (
            "https://login.example.com/keys",
            "file:///keys",
            "`auth.jwt[0].jwks_url`: ",
        ),
        (
            keys,
            &format!("{keys}\nalgorithms = []"),
            "`auth.jwt[0].algorithms` is empty",
        ),
        (
            keys,
            &format!("{keys}\nalgorithms = [\"none\"]"),
            "`auth.jwt[0].algorithms[0]`: with `none`",
        ),
        (
            keys,
            &format!("{keys}\nalgorithms = [\"RS256\", \"HS256\"]"),
            "`auth.jwt[0].algorithms[1]`: HS256 needs a secret",
        ),
        (
            keys,
            &format!("{keys}\nalgorithms = [\"rs256\"]"),
            "`auth.jwt[0].algorithms[0]`: ",
        ),
        (
            ROLE,
            "",
            "`auth.jwt` opens nothing without `[[auth.roles]]`",
        ),
        (JWT, "", "`auth.roles` is for people who log in"),
    ] {
        let text = format!("{GATEWAY}{JWT}{ROLE}");
        assert!(text.contains(old), "{old}");
        assert_refused(&text.replacen(old, new, 1), beginning);
    }
}

#[test]
fn values_that_no_token_could_have_are_refused() {
    let keys = "jwks_url = \"https://login.example.com/keys\"";
    for (new, beginning) in [
        (
            &format!("{keys}\naudience = []"),
            "`auth.jwt[0].audience` is empty",
        ),
        (
            &format!("{keys}\naudience = [\"\"]"),
            "`auth.jwt[0].audience[0]` is empty",
        ),
        (&format!("{keys}\nscope = \"\""), "`auth.jwt[0].scope`: "),
        (
            &format!("{keys}\nscope = \"mcp email\""),
            "`auth.jwt[0].scope`: ",
        ),
        (
            &format!("{keys}\n{JWT}"),
            "`auth.jwt[1].issuer`: there is another entry",
        ),
    ] {
        let text = format!("{GATEWAY}{JWT}{ROLE}").replacen(keys, new, 1);
        assert_refused(&text, beginning);
    }
}

#[test]
fn each_issuer_is_checked_and_named_by_its_place() {
    let issuer = "issuer = \"https://login.example.com\"";
    let other = JWT.replace(issuer, "issuer = \"http://login.example.com\"");
    let text = format!("{GATEWAY}{JWT}{other}{ROLE}");
    assert_refused(&text, "`auth.jwt[1].issuer`: ");
    let missing = JWT.replace(issuer, "");
    let text = format!("{GATEWAY}{JWT}{missing}{ROLE}");
    assert_refused(&text, "`auth.jwt[1].issuer` is missing");
}

#[test]
fn a_role_for_nobody_or_for_everybody_by_mistake_is_refused() {
    let issuer = "issuer = \"https://login.example.com\"";
    for (people, beginning) in [
        (issuer.to_owned(), "`auth.roles[0].match` matches nobody"),
        (
            format!("{issuer}, anyone = false"),
            "`auth.roles[0].match` matches nobody",
        ),
        (
            format!("{issuer}, anyone = true, groups = [\"a\"]"),
            "`auth.roles[0].match.anyone` lets",
        ),
        (
            format!("{issuer}, groups = []"),
            "`auth.roles[0].match.groups` is empty",
        ),
        (
            format!("{issuer}, app_roles = [\"\"]"),
            "`auth.roles[0].match.app_roles[0]` is empty",
        ),
        (
            format!("{issuer}, email = []"),
            "`auth.roles[0].match.email` is empty",
        ),
        (
            format!("{issuer}, email = [\"*\"]"),
            "`auth.roles[0].match.email[0]`: ",
        ),
        (
            format!("{issuer}, email = [\"*@*\"]"),
            "`auth.roles[0].match.email[0]`: ",
        ),
        (
            format!("{issuer}, email = [\"a*@example.com\"]"),
            "`auth.roles[0].match.email[0]`: ",
        ),
        (
            format!("{issuer}, claim = {{ team = [] }}"),
            "`auth.roles[0].match.claim.team` is empty",
        ),
        (
            format!("{issuer}, groups = [\"a\"], claim = {{ groups = [\"b\"] }}"),
            "`auth.roles[0].match.claim.groups` names the same claim",
        ),
        (
            "groups = [\"a\"]".to_owned(),
            "`auth.roles[0].match.issuer` is missing",
        ),
        (
            "issuer = \"https://login.example.com/\", groups = [\"a\"]".to_owned(),
            "`auth.roles[0].match.issuer`: ",
        ),
    ] {
        let role = format!("[[auth.roles]]\nname = \"staff\"\nmatch = {{ {people} }}\n");
        assert_refused(&format!("{GATEWAY}{JWT}{role}"), beginning);
    }
    let text = format!("{GATEWAY}{JWT}{ROLE}{ROLE}");
    assert_refused(&text, "two roles are called \"staff\"");
    let text = format!("{GATEWAY}{JWT}{ROLE}views = [\"nothing\"]\n");
    assert_refused(
        &text,
        "`auth.roles[0].views[0]`: there is no view or server",
    );
}

const KEY: &str = "[[auth.keys]]\nname = \"ci\"\nkey = \"a-long-key-of-a-program\"\n";

#[test]
fn a_key_has_what_its_role_may_use() {
    let server = "[servers.files]\nurl = \"https://files.example.com/mcp\"\n";
    let limits = "views = [\"files\"]\ntools = [\"a__*\"]\nrate = \"5/s\"\n";
    // A role that a key has needs no people, and so no issuer.
    let role = format!("[[auth.roles]]\nname = \"staff\"\n{limits}");
    let auth = auth_of(&format!("{server}{KEY}role = \"staff\"\n{role}")).unwrap();
    let key = &auth.keys[0];
    assert_eq!(key.role.as_deref(), Some("staff"));
    assert_eq!(key.views.as_deref(), Some(&["files".to_owned()][..]));
    assert_eq!(key.tools.patterns(), ["a__*"]);
    assert_eq!(key.rate.flatten().map(|rate| rate.count), Some(5));
    assert!(auth.matches.is_empty() && auth.tokens.is_none());
    // People may have the same role.
    let text = format!("{GATEWAY}{JWT}{ROLE}tools = [\"a__*\"]\n{KEY}role = \"staff\"\n");
    let auth = auth_of(&text).unwrap();
    assert_eq!(auth.keys[0].tools.patterns(), ["a__*"]);
    assert_eq!(auth.matches.len(), 1);
}

#[test]
fn a_key_with_an_unknown_role_or_with_limits_next_to_it_is_refused() {
    for (settings, beginning) in [
        ("role = \"stuff\"", "`auth.keys[0].role`: there is no role"),
        (
            "role = \"staff\"\ntools = [\"*\"]",
            "`auth.keys[0]` has both `role` and its own `auth.keys[0].tools`",
        ),
        (
            "role = \"staff\"\nviews = []",
            "`auth.keys[0]` has both `role` and its own `auth.keys[0].views`",
        ),
        (
            "role = \"staff\"\nrate = \"0\"",
            "`auth.keys[0]` has both `role` and its own `auth.keys[0].rate`",
        ),
    ] {
        assert_refused(&format!("{GATEWAY}{JWT}{ROLE}{KEY}{settings}\n"), beginning);
    }
    // A role with `match` is for people, too, so their issuer must be there.
    let text = format!("{KEY}role = \"staff\"\n{ROLE}");
    assert_refused(&text, "`auth.roles` is for people who log in");
}

#[test]
fn a_mistyped_role_is_answered_with_the_nearest_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("moongate.toml");
    let text = format!("{GATEWAY}{JWT}{ROLE}{KEY}role = \"stuff\"\n");
    std::fs::write(&path, text).unwrap();
    let options = LoadOptions {
        paths: vec![path],
        ..LoadOptions::default()
    };
    let problems = load(&options).err().unwrap();
    let fix = problems.errors[0].fix.as_str();
    assert_eq!(fix, "did you mean `staff`?");
}
