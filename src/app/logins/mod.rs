//! Logins of a plan's servers.
//!
//! Owns which servers can have a login, where the login files are, and the address that answers are
//! sent to. Does not log in (`moongate_oauth`). Invariant: a server whose config sets
//! `Authorization` has no other credential.

mod callback_page;
mod callback_routes;
#[cfg(test)]
pub(crate) mod fixtures;
mod follow;
mod port_listener;
mod recent_logins;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use moongate_config::Plan;
use moongate_listener::ListenAddress;
use moongate_oauth::{
    FolderError, LoginDirectory, LoginFolder, LoginServer, LoginTarget, SecretError, ServerAuth,
};
use moongate_transport::fetcher::{FetchRules, Fetcher};
use moongate_upstream::{ConnectTarget, ServerSettings};
use url::Url;

pub(crate) use callback_page::CallbackPage;
pub(crate) use callback_routes::callback_routes;
pub(crate) use follow::follow_logins;
pub(crate) use port_listener::{LOGIN_GREETING, PortListener};

/// Start of the error for files that cannot be used.
const UNUSABLE: &str = "the logins of servers cannot be used";

/// Opens the logins of a plan: its folder, its fetcher, its servers. Blocks while it reads files.
///
/// Fails if the files cannot be used.
pub(crate) fn logins_of(plan: &Plan) -> anyhow::Result<Arc<LoginDirectory>> {
    let folder = open_folder(plan).context(UNUSABLE)?;
    Ok(build_logins(plan, folder, None, own_addresses(plan)))
}

/// Opens the logins of a gateway with listeners at these addresses. Blocks while it reads files.
///
/// Fails if there are logins that can no longer be opened. A gateway starts without them if its
/// state folder cannot be used, or if no server needs a login.
pub(super) fn open_logins(
    plan: &Plan,
    own: Vec<SocketAddr>,
) -> anyhow::Result<Arc<LoginDirectory>> {
    let (folder, problem) = match open_folder(plan) {
        Ok(folder) => (folder, None),
        Err(error) if can_start_without(plan, &error) => {
            tracing::warn!("logins of servers not used: {error}");
            (None, Some(error.to_string()))
        }
        Err(error) => return Err(anyhow::Error::new(error).context(UNUSABLE)),
    };
    Ok(build_logins(plan, folder, problem, own))
}

/// Returns true if a gateway starts although its logins cannot be opened.
fn can_start_without(plan: &Plan, error: &FolderError) -> bool {
    let has_logins = login_servers(plan)
        .iter()
        .any(|server| matches!(server.auth, ServerAuth::OAuth(_)));
    !has_logins || matches!(error, FolderError::Secret(SecretError::Io { .. }))
}

/// Explains why a gateway keeps no logins.
pub(super) fn describe_missing_folder(logins: &LoginDirectory) -> String {
    match logins.folder_problem() {
        Some(problem) => format!(
            "this gateway cannot keep logins: {problem}; restart the gateway once that is fixed"
        ),
        None => "this gateway has no folder to keep logins in: set gateway.state_dir, and remove \
                 gateway.state if it is \"memory\""
            .to_owned(),
    }
}

fn open_folder(plan: &Plan) -> Result<Option<LoginFolder>, FolderError> {
    plan.login_folder
        .as_deref()
        .map(LoginFolder::open)
        .transpose()
}

fn build_logins(
    plan: &Plan,
    folder: Option<LoginFolder>,
    folder_problem: Option<String>,
    own: Vec<SocketAddr>,
) -> Arc<LoginDirectory> {
    let rules = FetchRules {
        origins: Vec::new(),
        hosts: plan.egress.clone(),
        own,
    };
    let fetcher = Arc::new(Fetcher::with_system_roots(&rules));
    let logins = LoginDirectory::new(folder, fetcher).with_folder_problem(folder_problem);
    logins.replace(login_servers(plan));
    Arc::new(logins)
}

/// Returns the logins for one server, whose settings need not be in any config.
pub(super) fn logins_for(
    logins: &LoginDirectory,
    settings: &ServerSettings,
) -> Arc<LoginDirectory> {
    Arc::new(logins.of_others(login_server(settings).into_iter().collect()))
}

/// Returns the servers of a plan that can have a login, or a command that prints their credential.
pub(crate) fn login_servers(plan: &Plan) -> Vec<LoginServer> {
    plan.servers.iter().filter_map(login_server).collect()
}

fn login_server(settings: &ServerSettings) -> Option<LoginServer> {
    let ConnectTarget::Http {
        url, socket, auth, ..
    } = &settings.connect
    else {
        return None;
    };
    // A request has one credential, and the config names it.
    if settings.connect.credential_key().is_some() {
        return None;
    }
    // Such a server is not at the host in its URL, so there is nothing to discover.
    if socket.is_some() && matches!(auth, ServerAuth::OAuth(_)) {
        return None;
    }
    Some(LoginServer {
        target: LoginTarget {
            server: settings.name.clone(),
            url: url.clone(),
        },
        auth: auth.clone(),
    })
}

/// Returns the address that answers are sent to, without the path: `gateway.public_url`, else the
/// first loopback address of `gateway.listen`. `None`: no listener has a known address that
/// browsers can reach.
///
/// It does not depend on what is running, so it can be registered once.
pub(crate) fn redirect_base(plan: &Plan) -> Option<Url> {
    if let Some(url) = &plan.public_url {
        return Some(url.clone());
    }
    let mut local = plan.listen.iter().flat_map(ListenAddress::local_addresses);
    let address = local.find(|address| address.ip().is_loopback())?;
    let scheme = if plan.tls.is_some() { "https" } else { "http" };
    Url::parse(&format!("{scheme}://{address}/")).ok()
}

/// Returns the addresses of a plan's listeners, which logins must not contact.
fn own_addresses(plan: &Plan) -> Vec<SocketAddr> {
    let listeners = plan.listen.iter().chain(&plan.admin);
    listeners.filter_map(ListenAddress::socket).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use moongate_config::LoadOptions;
    use moongate_protocol::SUPPORTED;

    use super::*;

    fn plan(text: &str) -> Plan {
        let file = PathBuf::from("moongate.toml");
        let options = LoadOptions {
            paths: vec![file.clone()],
            texts: BTreeMap::from([(file, text.to_owned())]),
            revisions: &SUPPORTED,
            ..LoadOptions::default()
        };
        moongate_config::load(&options).unwrap().plan
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn an_open_secret_stops_only_gateways_whose_servers_need_logins() {
        use std::os::unix::fs::PermissionsExt as _;

        let dir = tempfile::tempdir().unwrap();
        let secret = dir.path().join("secret");
        std::fs::write(&secret, "s".repeat(64)).unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o644)).unwrap();
        let open = |text: &str| {
            let mut plan = plan(text);
            plan.login_folder = Some(dir.path().to_owned());
            open_logins(&plan, Vec::new())
        };
        assert!(open("[servers.linear]\nurl = \"https://mcp.linear.app/mcp\"\n").is_err());
        let logins = open("[servers.program]\ncommand = \"program\"\n").unwrap();
        assert!(logins.folder().is_none());
        let reason = describe_missing_folder(&logins);
        assert!(reason.contains("chmod 600"), "{reason}");
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_folder_that_cannot_be_used_is_the_problem_of_each_login() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};

        let dir = tempfile::tempdir().unwrap();
        let elsewhere = dir.path().join("elsewhere");
        std::fs::write(&elsewhere, "s".repeat(64)).unwrap();
        // A link to a file that others can read is refused.
        std::fs::set_permissions(&elsewhere, std::fs::Permissions::from_mode(0o600)).unwrap();
        symlink(&elsewhere, dir.path().join("secret")).unwrap();
        let mut plan = plan("[servers.linear]\nurl = \"https://mcp.linear.app/mcp\"\n");
        plan.login_folder = Some(dir.path().to_owned());
        let logins = open_logins(&plan, Vec::new()).unwrap();
        let problem = logins.problem("linear").unwrap().cause;
        assert!(problem.contains("cannot be used"), "{problem}");
        let reason = describe_missing_folder(&logins);
        assert!(reason.contains(&problem), "{reason}");
    }

    #[test]
    fn servers_with_a_url_and_without_a_fixed_credential_can_have_a_login() {
        let plan = plan(
            r#"
            [servers.linear]
            url = "https://mcp.linear.app/mcp"
            [servers.traced]
            url = "https://traced.example/mcp"
            headers = { X-Team = "a" }
            [servers.fixed]
            url = "https://fixed.example/mcp"
            headers = { authorization = "Bearer abc" }
            [servers.forwarding]
            url = "https://forwarding.example/mcp"
            forward_headers = { "X-Linear-Token" = "Authorization" }
            [servers.program]
            command = "program"
            [servers.off]
            url = "https://off.example/mcp"
            enabled = false
            "#,
        );
        let found = login_servers(&plan);
        let names: Vec<&str> = found.iter().map(|it| it.target.server.as_str()).collect();
        assert_eq!(names, ["linear", "traced"]);
        assert_eq!(found[0].target.url.as_str(), "https://mcp.linear.app/mcp");
    }

    #[test]
    fn answers_go_to_the_public_address_or_to_loopback() {
        let tcp = |text: &str| ListenAddress::Tcp(text.parse().unwrap());
        let socket = ListenAddress::Unix("/run/m.sock".into());
        let public = "https://gate.example/tools";
        for (listen, public, expected) in [
            (
                vec![tcp("127.0.0.1:8080")],
                None,
                Some("http://127.0.0.1:8080/"),
            ),
            (vec![tcp("[::1]:81")], None, Some("http://[::1]:81/")),
            (vec![tcp("0.0.0.0:82")], None, Some("http://127.0.0.1:82/")),
            (
                vec![socket.clone(), tcp("10.0.0.5:82"), tcp("127.0.0.1:83")],
                None,
                Some("http://127.0.0.1:83/"),
            ),
            (vec![tcp("127.0.0.1:0")], None, None),
            (vec![tcp("10.0.0.5:82")], None, None),
            (vec![socket], None, None),
            (vec![tcp("127.0.0.1:84")], Some(public), Some(public)),
        ] {
            let mut plan = plan("");
            plan.public_url = public.map(|url| Url::parse(url).unwrap());
            plan.listen = listen;
            let base = redirect_base(&plan);
            assert_eq!(
                base.as_ref().map(Url::as_str),
                expected,
                "{:?}",
                plan.listen
            );
        }
    }

    #[test]
    fn own_listeners_are_those_with_an_address() {
        let mut plan = plan("");
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        plan.listen = vec![
            ListenAddress::Tcp(address("0.0.0.0:82")),
            ListenAddress::Unix("/run/m.sock".into()),
        ];
        plan.admin = Some(ListenAddress::Tcp(address("127.0.0.1:9090")));
        assert_eq!(
            own_addresses(&plan),
            [address("0.0.0.0:82"), address("127.0.0.1:9090")]
        );
    }
}
