//! Environment of child processes: what they inherit, and what is held back.
//!
//! Owns the names. Does not know the `env` of a server (`stdio_link.rs`). Invariant: variables that
//! give power or hold credentials pass only if the config names them, apart from the proxies, and
//! from what a program needs to find the credential that it prints.

use std::ffi::{OsStr, OsString};

use moongate_platform::child_process;
use moongate_telemetry::secret_look::secret_ranges;

/// Variables that every child inherits. They suffice to find programs, the user's files, the
/// network and its certificates. Only the proxy variables may hold secrets: programs that fetch
/// packages need the same proxies as the gateway.
const INHERITED: [&str; 25] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "XDG_CACHE_HOME",
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
    "NO_PROXY",
    "no_proxy",
];
/// Variables for the indexes, proxies and certificates of tools that fetch packages.
const PACKAGE_SOURCES: [&str; 17] = [
    "UV_INDEX",
    "UV_DEFAULT_INDEX",
    "UV_INDEX_URL",
    "UV_EXTRA_INDEX_URL",
    "UV_FIND_LINKS",
    "UV_NATIVE_TLS",
    "UV_SYSTEM_CERTS",
    "UV_PYTHON_INSTALL_MIRROR",
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_FIND_LINKS",
    "PIP_PROXY",
    "PIP_CERT",
    "PIP_TRUSTED_HOST",
    "YARN_REGISTRY",
    "YARN_NPM_REGISTRY_SERVER",
    "BUN_CONFIG_REGISTRY",
];
/// The same for npm, which reads each setting from `npm_config_NAME` in any case.
const NPM_SETTINGS: [&str; 7] = [
    "registry",
    "proxy",
    "https_proxy",
    "https-proxy",
    "noproxy",
    "cafile",
    "strict_ssl",
];
/// Variables for programs that print credentials: where their settings and the keyring are.
const CREDENTIAL_STORES: [&str; 2] = ["XDG_CONFIG_HOME", "DBUS_SESSION_BUS_ADDRESS"];
/// Start of the variables of GitHub's `gh`, which is the usual such program.
const GITHUB_SETTINGS: &str = "GH_";
/// Variables that give a program power over other programs or machines.
const POWERS: [&str; 6] = [
    "SSH_AUTH_SOCK",
    "DOCKER_HOST",
    "KUBECONFIG",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "DBUS_SESSION_BUS_ADDRESS",
    "GPG_AGENT_INFO",
];
/// Ends of the names of credentials.
const CREDENTIALS: [&str; 6] = [
    "_TOKEN",
    "_API_KEY",
    "_SECRET",
    "_PASSWORD",
    "_ACCESS_KEY",
    "_ACCESS_KEY_ID",
];
/// Limit of names that are reported.
const NAMES_MAX: usize = 12;

/// Kind of a program, by what it needs of the environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProgramKind {
    /// Any program.
    #[default]
    Other,
    /// Tool that fetches packages before it runs them.
    PackageTool,
    /// Program that prints a credential of the user.
    CredentialHelper,
}

/// Returns the variables that a program of this kind inherits.
pub fn inherited(kind: ProgramKind) -> Vec<(OsString, OsString)> {
    std::env::vars_os()
        .filter(|(name, value)| is_inherited(name) || passes_to(kind, name, value))
        .collect()
}

/// Returns the names of variables that a program may miss since they are held back, apart from
/// those that are `set` for it. Never their values.
pub fn held_back_variables(kind: ProgramKind, set: &[(String, String)]) -> Vec<String> {
    let held = std::env::vars_os().filter(|(name, value)| {
        !is_inherited(name)
            && !passes_to(kind, name, value)
            && (is_power(name) || is_package_source(kind, name))
    });
    let names = held.filter_map(|(name, _)| name.into_string().ok());
    let mut names: Vec<String> = names
        .filter(|name| set.iter().all(|(other, _)| other != name))
        .collect();
    names.sort();
    let more = names.len().saturating_sub(NAMES_MAX);
    names.truncate(NAMES_MAX);
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    names
}

fn is_inherited(name: &OsStr) -> bool {
    INHERITED
        .iter()
        .chain(child_process::SYSTEM_VARIABLES)
        .any(|known| name == *known)
}

fn passes_to(kind: ProgramKind, name: &OsStr, value: &OsStr) -> bool {
    let holds_none = || value.to_str().is_some_and(|it| !holds_credentials(it));
    is_of_credential_store(kind, name) || is_package_source(kind, name) && holds_none()
}

fn is_of_credential_store(kind: ProgramKind, name: &OsStr) -> bool {
    let Some(name) = name
        .to_str()
        .filter(|_| kind == ProgramKind::CredentialHelper)
    else {
        return false;
    };
    CREDENTIAL_STORES.contains(&name) || name.starts_with(GITHUB_SETTINGS)
}

fn is_package_source(kind: ProgramKind, name: &OsStr) -> bool {
    let Some(name) = name.to_str().filter(|_| kind == ProgramKind::PackageTool) else {
        return false;
    };
    let lower = name.to_ascii_lowercase();
    let npm = lower.strip_prefix("npm_config_");
    PACKAGE_SOURCES.contains(&name)
        || npm.is_some_and(|setting| {
            // `npm_config_@scope:registry` names the registry of some packages.
            let is_of_scope = setting.starts_with('@') && setting.ends_with(":registry");
            NPM_SETTINGS.contains(&setting) || is_of_scope
        })
}

fn is_power(name: &OsStr) -> bool {
    let upper = name.to_string_lossy().to_ascii_uppercase();
    POWERS.contains(&upper.as_str()) || CREDENTIALS.iter().any(|end| upper.ends_with(end))
}

/// True for values with a user or a token: `https://user:pass@host/`, `https://host/TOKEN/simple`,
/// `_authToken=...`.
fn holds_credentials(value: &str) -> bool {
    let has_user = value.split("//").skip(1).any(|rest| {
        let authority = rest.split(['/', '?', '#', ' ']).next().unwrap_or(rest);
        authority.contains('@')
    });
    let lower = value.to_ascii_lowercase();
    let has_secret = !secret_ranges(value).is_empty();
    has_user
        || has_secret
        || ["_auth", "_password", "token=", "password=", "apikey="]
            .iter()
            .any(|word| lower.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(kind: ProgramKind, name: &str, value: &str) -> bool {
        is_inherited(OsStr::new(name)) || passes_to(kind, OsStr::new(name), OsStr::new(value))
    }

    #[test]
    fn certificates_pass_and_package_sources_pass_to_those_who_fetch() {
        for name in [
            "NODE_EXTRA_CA_CERTS",
            "REQUESTS_CA_BUNDLE",
            "CURL_CA_BUNDLE",
            "SSL_CERT_DIR",
            "HTTPS_PROXY",
        ] {
            assert!(passes(ProgramKind::Other, name, "/x"), "{name}");
        }
        for name in [
            "NPM_CONFIG_REGISTRY",
            "npm_config_registry",
            "npm_config_@a:registry",
            "UV_INDEX_URL",
            "PIP_PROXY",
        ] {
            assert!(
                passes(ProgramKind::PackageTool, name, "https://mirror.example/x"),
                "{name}"
            );
            assert!(
                !passes(ProgramKind::Other, name, "https://mirror.example/x"),
                "{name}"
            );
        }
    }

    #[test]
    fn a_credential_helper_finds_its_keyring_and_no_other_program_does() {
        for name in [
            "XDG_CONFIG_HOME",
            "DBUS_SESSION_BUS_ADDRESS",
            "GH_HOST",
            "GH_TOKEN",
        ] {
            assert!(passes(ProgramKind::CredentialHelper, name, "x"), "{name}");
            assert!(!passes(ProgramKind::Other, name, "x"), "{name}");
            assert!(!passes(ProgramKind::PackageTool, name, "x"), "{name}");
        }
        for name in ["GITHUB_TOKEN", "SSH_AUTH_SOCK", "UV_INDEX_URL"] {
            assert!(!passes(ProgramKind::CredentialHelper, name, "x"), "{name}");
        }
    }

    #[test]
    fn credentials_and_powers_do_not_pass() {
        let values = [
            "https://user:pass@mirror.example/x",
            "https://token@mirror.example",
            "a=https://ok.example b=//u:p@x.example",
            "//registry.example/:_authToken=abc",
            "https://mirror.example/?token=abc",
            "https://mirror.example/4f89c9f9627adf0f6f573a8edb26f0d0/simple",
            "https://ok.example/simple https://mirror.example/ghp_0123456789abcdefABCDEF/",
        ];
        for value in values {
            assert!(
                !passes(ProgramKind::PackageTool, "UV_INDEX", value),
                "{value}"
            );
        }
        for name in [
            "SSH_AUTH_SOCK",
            "DOCKER_HOST",
            "GITHUB_TOKEN",
            "npm_config__authToken",
            "NPM_TOKEN",
            "OPENAI_API_KEY",
        ] {
            assert!(!passes(ProgramKind::PackageTool, name, "x"), "{name}");
        }
        assert!(is_power(OsStr::new("GITHUB_TOKEN")) && is_power(OsStr::new("SSH_AUTH_SOCK")));
        assert!(!is_power(OsStr::new("EDITOR")));
        assert!(
            passes(
                ProgramKind::PackageTool,
                "UV_INDEX",
                "https://mirror.example/a@b/simple"
            ),
            "a path"
        );
    }
}
