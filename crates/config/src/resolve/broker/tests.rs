//! People's logins: how they are resolved, and which are refused.

use std::time::Duration;

use moongate_access::auth::{CLIENT_HOSTS, ProviderKind};

use crate::plan::Plan;
use crate::{LoadOptions, LoadedConfig, load};

const TENANT: &str = "11111111-2222-3333-4444-555555555555";
const HEAD: &str = "[gateway]\npublic_url = \"https://mcp.example.com\"\n";
const CLIENT: &str = "client_id = \"moongate\"\nclient_secret = \"hush-hush\"\n";

/// Config with this provider, and a role with this `match`.
fn config_of(provider: &str, people: &str) -> String {
    format!(
        "{HEAD}[auth.oauth]\n{provider}\n{CLIENT}\
         [[auth.roles]]\nname = \"staff\"\nmatch = {{ {people} }}\n"
    )
}

fn entra() -> String {
    let provider = format!("provider = \"entra\"\ntenant = \"{TENANT}\"");
    config_of(&provider, "groups = [\"a\"]")
}

fn keycloak() -> String {
    let provider = "issuer = \"https://login.example.com/realms/a\"";
    config_of(provider, "groups = [\"a\"]")
}

fn load_text(text: &str) -> Result<LoadedConfig, Vec<String>> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("moongate.toml");
    std::fs::write(&path, text).unwrap();
    let loaded = load(&LoadOptions {
        paths: vec![path],
        ..LoadOptions::default()
    });
    loaded.map_err(|problems| {
        let errors = problems.errors.into_iter();
        errors.map(|error| error.message).collect()
    })
}

#[track_caller]
fn plan_of(text: &str) -> Plan {
    match load_text(text) {
        Ok(loaded) => loaded.plan,
        Err(errors) => panic!("{text}\n{errors:#?}"),
    }
}

/// Checks that a config has one error with this beginning, and that no error shows the secret.
#[track_caller]
fn assert_refused(text: &str, beginning: &str) {
    let errors = load_text(text).err().unwrap_or_default();
    assert!(
        errors.len() == 1 && errors[0].starts_with(beginning),
        "{text}\nexpected {beginning:?}, found {errors:#?}"
    );
    assert!(!errors[0].contains("hush"));
}

#[test]
fn a_login_has_the_settings_of_the_config() {
    let plan = plan_of(&entra());
    assert!(!plan.auth.is_open());
    let role = &plan.auth.matches[0];
    let broker = plan.auth.broker.as_ref().unwrap();
    let issuer = format!("https://login.microsoftonline.com/{TENANT}/v2.0");
    assert_eq!(role.issuer, issuer);
    assert_eq!(broker.issuer(), "https://mcp.example.com");
    assert_eq!(broker.provider.issuer, issuer);
    assert_eq!(broker.provider.client_id, "moongate");
    let secret = broker.provider.client_secret.as_ref().unwrap();
    assert_eq!(secret.expose(), "hush-hush");
    let tenant = TENANT.to_owned();
    assert_eq!(broker.provider.kind, ProviderKind::Entra { tenant });
    let hour = Duration::from_secs(60 * 60);
    assert_eq!(broker.access, hour * 24);
    assert_eq!(broker.max, hour * 24 * 180);
    assert_eq!(broker.recheck, hour);
    assert_eq!(broker.unchecked, hour * 24);
    assert!(broker.clients.documents && broker.clients.registered);
    assert_eq!(broker.allow_clients, CLIENT_HOSTS);
    assert!(broker.redirect_schemes.is_empty());
}

#[test]
fn each_provider_has_its_issuer_and_its_matches() {
    let google = config_of(
        "provider = \"google\"\ndomain = \"Example.com\"",
        "email = [\"*@example.com\"]",
    );
    let google = plan_of(&google).auth;
    assert_eq!(google.matches[0].issuer, "https://accounts.google.com");
    let domain = "example.com".to_owned();
    let kind = google.broker.unwrap().provider.kind;
    assert_eq!(kind, ProviderKind::Google { domain });

    let github = config_of(
        "provider = \"github\"\norgs = [\"Example\"]",
        "orgs = [\"EXAMPLE\"], teams = [\"Example/Platform\"]",
    );
    let github = plan_of(&github).auth;
    assert_eq!(github.matches[0].issuer, "https://github.com");
    assert_eq!(github.matches[0].claims["orgs"], ["example"]);
    assert_eq!(github.matches[0].claims["teams"], ["example/platform"]);
    let orgs = vec!["example".to_owned()];
    let kind = github.broker.unwrap().provider.kind;
    assert_eq!(kind, ProviderKind::GitHub { orgs });

    let other = plan_of(&keycloak()).auth;
    let issuer = "https://login.example.com/realms/a";
    assert_eq!(other.matches[0].issuer, issuer);
    let provider = other.broker.unwrap().provider;
    assert_eq!(provider.issuer, issuer);
    assert_eq!(provider.kind, ProviderKind::Issuer);
}

#[test]
fn clients_are_those_that_the_config_names() {
    let text = keycloak().replace(
        CLIENT,
        &format!(
            "{CLIENT}clients = [\"dcr\"]\nallow_clients = [\"Chat.Example.com\"]\n\
             redirect_schemes = [\"Acme-Editor\"]\n"
        ),
    );
    let broker = plan_of(&text).auth.broker.unwrap();
    assert!(!broker.clients.documents && broker.clients.registered);
    assert_eq!(broker.allow_clients, ["chat.example.com"]);
    assert_eq!(broker.redirect_schemes, ["acme-editor"]);
}

#[test]
fn a_gateway_on_loopback_needs_no_certificate() {
    let text = keycloak()
        .replace("https://mcp.example.com", "http://127.0.0.1:8080")
        .replace("https://login.example.com/realms/a", "http://127.0.0.1:9");
    let broker = plan_of(&text).auth.broker.unwrap();
    assert_eq!(broker.issuer(), "http://127.0.0.1:8080");
}

#[test]
fn a_login_that_would_be_unsafe_is_refused() {
    let public_url = "public_url = \"https://mcp.example.com\"";
    let issuer = "issuer = \"https://login.example.com/realms/a\"";
    let id = "client_id = \"moongate\"";
    for (old, new, beginning) in [
        (HEAD, "", "`auth.oauth` needs `gateway.public_url`"),
        (
            public_url,
            "public_url = \"http://mcp.example.com\"",
            "`gateway.public_url` must be an `https` URL",
        ),
        (
            public_url,
            "public_url = \"https://mcp.example.com/gate\"",
            "`gateway.public_url` has a path",
        ),
        (issuer, "", "`auth.oauth` does not say where people log in"),
        (
            issuer,
            "issuer = \"http://login.example.com\"",
            "`auth.oauth.issuer`: ",
        ),
        (
            issuer,
            "issuer = \"https://accounts.google.com\"",
            "`auth.oauth.issuer`: use `provider = \"google\"`",
        ),
        (
            issuer,
            &format!("{issuer}\ntenant = \"{TENANT}\""),
            "`auth.oauth.tenant` is only for `provider = \"entra\"`",
        ),
        (id, "", "`auth.oauth.client_id` is missing"),
        (
            "match = { groups = [\"a\"] }",
            "",
            "`auth.roles[0].match` matches nobody",
        ),
    ] {
        let text = keycloak();
        assert!(text.contains(old), "{old}");
        assert_refused(&text.replacen(old, new, 1), beginning);
    }
    let text = keycloak();
    let without_roles = text.split("[[auth.roles]]").next().unwrap();
    assert_refused(
        without_roles,
        "`auth.oauth` opens nothing without `[[auth.roles]]`",
    );
}

#[test]
fn lists_and_times_that_would_be_unsafe_are_refused() {
    let id = "client_id = \"moongate\"";
    for (new, beginning) in [
        (
            &format!("{id}\nscopes = [\"openid\", \"a b\"]"),
            "`auth.oauth.scopes[1]`: ",
        ),
        (
            &format!("{id}\nscopes = [\"email\"]"),
            "`auth.oauth.scopes` lacks \"openid\"",
        ),
        (
            &format!("{id}\nclients = []"),
            "`auth.oauth.clients` is empty",
        ),
        (
            &format!("{id}\nallow_clients = [\"*.cursor.com\"]"),
            "`auth.oauth.allow_clients[0]`: ",
        ),
        (
            &format!("{id}\nredirect_schemes = [\"javascript\"]"),
            "`auth.oauth.redirect_schemes[0]`: ",
        ),
        (
            &format!("{id}\nredirect_schemes = [\"acme:\"]"),
            "`auth.oauth.redirect_schemes[0]`: ",
        ),
        (
            &format!("{id}\nunchecked = \"8d\""),
            "`auth.oauth.unchecked`: \"8d\" is too long",
        ),
    ] {
        assert_refused(&keycloak().replacen(id, new, 1), beginning);
    }
}

#[test]
fn a_provider_without_what_it_needs_is_refused() {
    let groups = "groups = [\"a\"]";
    let email = "email = [\"*@example.com\"]";
    let orgs = "orgs = [\"example\"]";
    for (provider, people, beginning) in [
        (
            "provider = \"entra\"",
            groups,
            "`auth.oauth.tenant` is missing",
        ),
        (
            "provider = \"entra\"\ntenant = \"common\"",
            groups,
            "`auth.oauth.tenant`: with \"common\", people from any company",
        ),
        (
            "provider = \"entra\"\ntenant = \"example.com\"",
            groups,
            "`auth.oauth.tenant`: \"example.com\" is not the id",
        ),
        (
            "provider = \"google\"",
            email,
            "`auth.oauth.domain` is missing",
        ),
        (
            "provider = \"google\"\ndomain = \"https://example.com\"",
            email,
            "`auth.oauth.domain`: ",
        ),
        (
            "provider = \"google\"\ndomain = \"example.com\"\nuserinfo = true",
            email,
            "`auth.oauth.userinfo` is only for a login without `provider`",
        ),
        (
            "provider = \"github\"",
            orgs,
            "`auth.oauth.orgs` is missing",
        ),
        (
            "provider = \"github\"\norgs = [\"a/b\"]",
            "orgs = [\"a/b\"]",
            "`auth.oauth.orgs[0]`: ",
        ),
        (
            "provider = \"okta\"",
            groups,
            "`auth.oauth.provider = \"okta\"` is not available",
        ),
    ] {
        assert_refused(&config_of(provider, people), beginning);
    }
    let secret = "client_secret = \"hush-hush\"\n";
    let google = config_of("provider = \"google\"\ndomain = \"example.com\"", email);
    let github = config_of("provider = \"github\"\norgs = [\"example\"]", orgs);
    for text in [google, github] {
        let text = text.replace(secret, "");
        assert_refused(&text, "`auth.oauth.client_secret` is missing");
    }
}

#[test]
fn a_role_that_a_provider_cannot_confirm_is_refused() {
    let google = "provider = \"google\"\ndomain = \"example.com\"";
    let github = "provider = \"github\"\norgs = [\"example\"]";
    let other = "issuer = \"https://login.example.com\"";
    for (provider, people, beginning) in [
        (google, "anyone = true", "`auth.roles[0].match.anyone`"),
        (github, "anyone = true", "`auth.roles[0].match.anyone`"),
        (
            google,
            "email = [\"a@example.com\"], groups = [\"a\"]",
            "`auth.roles[0].match.groups` is not available",
        ),
        (
            github,
            "orgs = [\"example\"], groups = [\"a\"]",
            "`auth.roles[0].match.groups` is not available",
        ),
        (
            github,
            "email = [\"a@example.com\"]",
            "`auth.roles[0].match.email` alone",
        ),
        (
            github,
            "orgs = [\"other\"]",
            "`auth.roles[0].match.orgs[0]`: \"other\" is not in `auth.oauth.orgs`",
        ),
        (
            github,
            "teams = [\"platform\"]",
            "`auth.roles[0].match.teams[0]`: ",
        ),
        (
            github,
            "teams = [\"other/platform\"]",
            "`auth.roles[0].match.teams[0]`: ",
        ),
        (
            other,
            "groups = [\"a\"], orgs = [\"example\"]",
            "`auth.roles[0].match.orgs` is not available",
        ),
    ] {
        assert_refused(&config_of(provider, people), beginning);
    }
    // At another issuer, everybody may have a role.
    plan_of(&config_of(other, "anyone = true"));
}

#[test]
fn the_client_of_the_login_is_no_audience_of_access_tokens() {
    let jwt = |audience: &str| {
        format!(
            "{}[[auth.jwt]]\nissuer = \"https://login.example.com/realms/a\"\n\
             jwks_url = \"https://login.example.com/keys\"\naudience = [\"api\", \"{audience}\"]\n",
            keycloak()
        )
    };
    assert_eq!(plan_of(&jwt("other")).auth.tokens.unwrap().issuers.len(), 1);
    let beginning = "`auth.jwt[0].audience[1]` is `auth.oauth.client_id`";
    assert_refused(&jwt("moongate"), beginning);
}

#[test]
fn roles_for_tokens_name_their_issuer_next_to_a_login() {
    let jwt = "[[auth.jwt]]\nissuer = \"https://tokens.example.com\"\n\
               jwks_url = \"https://tokens.example.com/keys\"\n";
    let role = "[[auth.roles]]\nname = \"ci\"\n\
                match = { issuer = \"https://tokens.example.com\", anyone = true }\n";
    let auth = plan_of(&format!("{}{jwt}{role}", keycloak())).auth;
    assert_eq!(auth.matches[0].issuer, "https://login.example.com/realms/a");
    assert_eq!(auth.matches[1].issuer, "https://tokens.example.com");
    // A role for tokens lets nobody log in.
    let text = keycloak().replace("groups", "issuer = \"https://tokens.example.com\", groups");
    assert_refused(&format!("{text}{jwt}"), "`auth.oauth` opens nothing");
}

#[test]
fn the_secrets_are_long_and_no_message_shows_them() {
    let now = "n".repeat(32);
    let before = "b".repeat(32);
    let head = format!("{HEAD}secret = \"{now}\"\nsecret_before = [\"{before}\"]\n");
    let plan = plan_of(&keycloak().replace(HEAD, &head));
    let secret = plan.secrets.secret.as_ref().map(|secret| secret.expose());
    assert_eq!(secret, Some(now.as_str()));
    assert_eq!(plan.secrets.before[0].expose(), before);
    assert!(!format!("{plan:?}").contains(&now));
    for (long, key) in [(&now, "secret"), (&before, "secret_before[0]")] {
        let text = keycloak().replace(HEAD, &head.replace(long.as_str(), "hush"));
        assert_refused(&text, &format!("`gateway.{key}` has fewer than 32 bytes"));
    }
}

#[test]
fn logins_in_memory_are_a_warning() {
    let head = format!("{HEAD}state = \"memory\"\n");
    let loaded = load_text(&keycloak().replace(HEAD, &head)).ok().unwrap();
    let messages = loaded.warnings.iter();
    let found = messages.filter(|warning| warning.message.starts_with("`gateway.state`"));
    assert_eq!(found.count(), 1);
}
