//! Tests of the directory of logins: which server gets which source.

use jiff::SignedDuration;
use moongate_transport::fetcher::FetchRules;
use moongate_transport::trust::tls_without_roots;
use tempfile::TempDir;
use url::Url;

use super::*;
use crate::grant::{ClientAuthMethod, ClientIdentity, LoginGrant};
use crate::secret_text::SecretText;
use crate::settings::{CommandSettings, OAuthSettings};

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

fn target(server: &str) -> LoginTarget {
    LoginTarget {
        server: server.to_owned(),
        url: url("https://mcp.example.com/mcp"),
    }
}

fn oauth(server: &str) -> LoginServer {
    LoginServer {
        target: target(server),
        auth: ServerAuth::default(),
    }
}

fn command(server: &str, program: &str) -> LoginServer {
    let settings = CommandSettings {
        command: program.to_owned(),
        args: Vec::new(),
        env: Vec::new(),
        ttl: Duration::from_secs(600),
    };
    LoginServer {
        target: target(server),
        auth: ServerAuth::Command(settings),
    }
}

fn grant(access: &str) -> LoginGrant {
    let issuer = url("https://auth.example.com");
    LoginGrant {
        token_endpoint: url("https://auth.example.com/token"),
        issuer,
        revocation_endpoint: None,
        client: ClientIdentity {
            id: "client".to_owned(),
            secret: None,
            method: ClientAuthMethod::None,
            redirect: url("http://127.0.0.1:8080/oauth/callback/abc"),
        },
        scope_asked: None,
        resource: None,
        access: SecretText::new(access),
        refresh: Some(SecretText::new("refresh")),
        obtained: Timestamp::now(),
        expires: Some(Timestamp::now() + SignedDuration::from_hours(1)),
        renewal: 0,
        ended: false,
        step_ups: 0,
    }
}

/// LoginDirectory of these servers, in a folder that another process may write, too.
fn logins(servers: Vec<LoginServer>) -> (TempDir, LoginFolder, LoginDirectory) {
    let dir = tempfile::tempdir().unwrap();
    let folder = LoginFolder::open(&dir.path().join("state")).unwrap();
    let fetcher = Fetcher::new(tls_without_roots(), &FetchRules::default());
    let logins = LoginDirectory::new(Some(folder.clone()), Arc::new(fetcher));
    logins.replace(servers);
    (dir, folder, logins)
}

fn find(logins: &LoginDirectory, server: &str, url: &Url) -> Option<Arc<dyn CredentialSource>> {
    logins.find_source(&CredentialTarget {
        server,
        url,
        person: Some(&[7; 16]),
    })
}

async fn token(source: &dyn CredentialSource) -> String {
    let header = source.authorization().await.unwrap().unwrap();
    header.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_source_is_found_by_name_and_url_once_there_is_a_login() {
    let (_dir, folder, logins) = logins(vec![oauth("linear"), oauth("sentry")]);
    let url = target("linear").url;
    assert!(find(&logins, "linear", &url).is_none());
    folder
        .write_grant(&target("linear"), &grant("one"))
        .unwrap();
    let source = find(&logins, "linear", &url).unwrap();
    assert!(!source.is_personal());
    assert_eq!(token(&*source).await, "Bearer one");
    assert!(find(&logins, "sentry", &url).is_none());
    assert!(find(&logins, "unknown", &url).is_none());
}

#[tokio::test]
async fn a_changed_url_gets_nothing() {
    let (_dir, folder, logins) = logins(vec![oauth("linear")]);
    folder
        .write_grant(&target("linear"), &grant("one"))
        .unwrap();
    let before = target("linear").url;
    let after = url("https://mcp.example.com/other");
    assert!(find(&logins, "linear", &after).is_none());
    logins.replace(vec![LoginServer {
        target: LoginTarget {
            url: after.clone(),
            ..target("linear")
        },
        ..oauth("linear")
    }]);
    // Neither the new connection, nor an old one that is dialled again.
    assert!(find(&logins, "linear", &after).is_none());
    assert!(find(&logins, "linear", &before).is_none());
    assert_eq!(logins.login_state("linear"), LoginState::None);
}

#[tokio::test]
async fn unchanged_sources_stay() {
    let (_dir, folder, logins) = logins(vec![oauth("linear"), command("github", "gh")]);
    let url = target("linear").url;
    folder
        .write_grant(&target("linear"), &grant("one"))
        .unwrap();
    let is_same = |a: &Option<Arc<dyn CredentialSource>>, server: &str| {
        let found = find(&logins, server, &url);
        Arc::ptr_eq(a.as_ref().unwrap(), &found.unwrap())
    };
    let linear = find(&logins, "linear", &url);
    let github = find(&logins, "github", &url);
    let settings = OAuthSettings {
        scopes: Some(vec!["read".to_owned()]),
        ..OAuthSettings::default()
    };
    let with_scope = LoginServer {
        auth: ServerAuth::OAuth(settings),
        ..oauth("linear")
    };
    logins.replace(vec![with_scope.clone(), command("github", "gh")]);
    assert!(is_same(&linear, "linear") && is_same(&github, "github"));
    assert_eq!(logins.settings_of("linear"), Some(with_scope));
    logins.replace(vec![command("github", "other")]);
    assert!(!is_same(&github, "github"));
    assert!(find(&logins, "linear", &url).is_none());
    assert_eq!(logins.settings_of("linear"), None);
}

#[tokio::test]
async fn logins_that_come_or_go_are_reported_and_renewals_are_not() {
    let (_dir, folder, logins) = logins(vec![oauth("linear"), oauth("sentry")]);
    let linear = target("linear");
    folder.write_grant(&linear, &grant("one")).unwrap();
    assert_eq!(logins.changed().await, ["linear"]);
    let mut renewed = LoginGrant {
        renewal: 1,
        ..grant("two")
    };
    folder.write_grant(&linear, &renewed).unwrap();
    folder.write_grant(&target("sentry"), &grant("s")).unwrap();
    assert_eq!(logins.changed().await, ["sentry"]);
    renewed.ended = true;
    folder.write_grant(&linear, &renewed).unwrap();
    assert_eq!(logins.changed().await, ["linear"]);
    assert_eq!(logins.login_state("linear"), LoginState::Ended);
    // Another login, then another one in its place, then none.
    for access in ["three", "four"] {
        folder.write_grant(&linear, &grant(access)).unwrap();
        assert_eq!(logins.changed().await, ["linear"], "{access}");
    }
    folder.remove_grant(&linear).unwrap();
    assert_eq!(logins.changed().await, ["linear"]);
}

#[tokio::test]
async fn a_check_goes_on_with_the_servers_of_a_reload() {
    let (_dir, folder, logins) = logins(Vec::new());
    folder.write_grant(&target("sentry"), &grant("s")).unwrap();
    let logins = Arc::new(logins);
    let checking = tokio::spawn({
        let logins = logins.clone();
        async move { logins.changed().await }
    });
    tokio::task::yield_now().await;
    // The login of a new server isn't reported, because its first connection uses it.
    logins.replace(vec![oauth("linear"), oauth("sentry")]);
    folder
        .write_grant(&target("linear"), &grant("one"))
        .unwrap();
    assert_eq!(checking.await.unwrap(), ["linear"]);
}

#[tokio::test]
async fn without_a_folder_only_commands_work() {
    let fetcher = Fetcher::new(tls_without_roots(), &FetchRules::default());
    let logins = LoginDirectory::new(None, Arc::new(fetcher));
    logins.replace(vec![oauth("linear"), command("github", "gh")]);
    let url = target("linear").url;
    assert!(find(&logins, "linear", &url).is_none());
    assert!(find(&logins, "github", &url).is_some());
    assert_eq!(logins.login_state("linear"), LoginState::None);
    assert_eq!(logins.login_state("github"), LoginState::None);
    assert_eq!(logins.problem("linear"), None);
    let logins = logins.with_folder_problem(Some("a reason".to_owned()));
    let problem = logins.problem("linear").unwrap();
    assert_eq!(problem.cause, "a reason");
    let problems = logins.problems();
    assert_eq!(problems, [("linear".to_owned(), problem)]);
    assert_eq!(logins.problem("github"), None);
    let others = logins.of_others(vec![oauth("sentry")]);
    assert_eq!(others.problem("sentry").unwrap().cause, "a reason");
}

#[tokio::test]
async fn the_state_of_a_login_is_that_of_its_grant() {
    let (_dir, folder, logins) = logins(vec![oauth("linear")]);
    let linear = target("linear");
    let written = grant("one");
    folder.write_grant(&linear, &written).unwrap();
    let live = LoginState::LoggedIn {
        expires: written.expires,
        renews: true,
    };
    assert_eq!(logins.login_state("linear"), live);
    let over = LoginGrant {
        refresh: None,
        expires: Some(Timestamp::now()),
        ..written
    };
    folder.write_grant(&linear, &over).unwrap();
    assert_eq!(logins.login_state("linear"), LoginState::Ended);
    assert!(find(&logins, "linear", &linear.url).is_none());
    assert_eq!(logins.problem("linear"), None);
}
