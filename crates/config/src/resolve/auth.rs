//! Credentials for servers with a URL: `auth`.
//!
//! Owns what each type of credential needs, and the conflicts between its keys. Does not log in
//! (`moongate_oauth`). Invariant: a client secret goes with a client, and no message quotes it.

use http::header::AUTHORIZATION;
use moongate_listener::is_loopback_host;
use moongate_oauth::{
    CommandSettings, OAuthSettings, SecretText, ServerAuth, is_own_parameter, is_scope,
};
use url::Url;

use super::resolver::PlanResolver;
use crate::choices::LoginKind;
use crate::problem::ProblemKind;
use crate::server_keys::{Server, ServerLogin};
use crate::tree::ConfigPath;

/// Keys of a login in the browser.
const OAUTH_ONLY: [&str; 7] = [
    "client_id",
    "client_secret",
    "client_id_url",
    "issuer",
    "scopes",
    "resource",
    "params",
];
/// Keys of a login that a client without a person has no use for.
const PERSON_ONLY: [&str; 2] = ["client_id_url", "params"];
/// Keys of a program that prints a token.
const COMMAND_ONLY: [&str; 4] = ["command", "args", "env", "ttl"];
/// Keys of a client that gets tokens for itself.
const CLIENT_ONLY: [&str; 3] = ["private_key", "key_id", "audience"];

impl PlanResolver<'_> {
    /// Resolves `auth` of a server with a URL. Without it, a login at the server is still possible.
    pub(super) fn server_auth(&mut self, server: &Server, path: &ConfigPath) -> ServerAuth {
        let Some(login) = &server.auth else {
            return ServerAuth::default();
        };
        self.check_other_credential(server, path);
        let path = path.key("auth");
        let kind = path.key("type");
        // Which keys belong to an unknown type is unknown, too.
        if self.is_written(&kind) && !self.is_accepted(&kind) {
            return ServerAuth::default();
        }
        match login.kind {
            LoginKind::OAuth => {
                self.reject_keys_of_type("command", &COMMAND_ONLY, &path);
                self.reject_keys_of_type("client_credentials", &CLIENT_ONLY, &path);
                ServerAuth::OAuth(self.oauth(login, &path))
            }
            LoginKind::Command => {
                self.reject_keys_of_type("oauth", &OAUTH_ONLY, &path);
                self.reject_keys_of_type("client_credentials", &CLIENT_ONLY, &path);
                ServerAuth::Command(self.token_command(login, &path))
            }
            LoginKind::ClientCredentials => {
                self.reject_keys_of_type("oauth", &PERSON_ONLY, &path);
                self.reject_keys_of_type("command", &COMMAND_ONLY, &path);
                let settings = self.client_credentials(login, &path);
                settings.map_or_else(ServerAuth::default, ServerAuth::ClientCredentials)
            }
        }
    }

    /// Reports a second credential next to `auth`, whether fixed or the client's, because a request
    /// can have only one.
    fn check_other_credential(&mut self, server: &Server, path: &ConfigPath) {
        let is_credential = |name: &str| name.eq_ignore_ascii_case(AUTHORIZATION.as_str());
        let mut fixed = server.headers.iter().flatten();
        let mut forwarded = server.forward_headers.iter().flatten();
        let auth = path.key("auth");
        let (header, fix) = if let Some((name, _)) = fixed.find(|(name, _)| is_credential(name)) {
            let fix = "remove the header, or remove `auth` if the credential never changes";
            (path.key("headers").key(name), fix)
        } else if let Some((from, _)) = forwarded.find(|(_, to)| is_credential(to)) {
            let fix = "remove the header, or remove `auth` if clients send their own credential";
            (path.key("forward_headers").key(from), fix)
        } else {
            return;
        };
        let message =
            format!("`{auth}` and `{header}` are both set, but a request has one credential");
        self.error_at_key(ProblemKind::Conflict, &auth, message, fix);
    }

    /// Reports the first key of another type. One fix covers all of them.
    fn reject_keys_of_type(&mut self, owner: &str, keys: &[&str], path: &ConfigPath) {
        let mut written = keys.iter().map(|key| path.key(key));
        let Some(path) = written.find(|path| self.is_written(path)) else {
            return;
        };
        self.error_at_key(
            ProblemKind::Conflict,
            &path,
            format!("`{path}` is only for `type = \"{owner}\"`"),
            format!("write `type = \"{owner}\"`, or remove it"),
        );
    }

    fn oauth(&mut self, login: &ServerLogin, path: &ConfigPath) -> OAuthSettings {
        self.check_client(path);
        self.check_scopes(login, path);
        let params = path.key("params");
        for name in login.params.keys() {
            self.check_parameter(&params.key(name), name);
        }
        let document = login.client_id_url.as_deref();
        let issuer = login.issuer.as_deref();
        OAuthSettings {
            client_id: login.client_id.clone(),
            client_secret: login.client_secret.as_deref().map(SecretText::new),
            client_id_url: document
                .and_then(|text| self.client_document(&path.key("client_id_url"), text)),
            issuer: issuer.and_then(|text| self.issuer(&path.key("issuer"), text)),
            scopes: login.scopes.clone(),
            sends_resource: login.resource,
            params: login.params.clone(),
        }
    }

    /// Checks that a login has at most one client, and no secret without a client.
    fn check_client(&mut self, path: &ConfigPath) {
        let has_client = self.is_written(&path.key("client_id"));
        let secret = path.key("client_secret");
        if self.is_written(&secret) && !has_client {
            self.error_at_key(
                ProblemKind::Missing,
                &secret,
                format!("`{secret}` needs a `client_id`"),
                "add the `client_id` that it belongs to, or remove it",
            );
        }
        let document = path.key("client_id_url");
        if self.is_written(&document) && has_client {
            let message = format!(
                "`{path}` has both `client_id` and `client_id_url`: a login has one client"
            );
            self.error_at_key(
                ProblemKind::Conflict,
                &document,
                message,
                "keep one of the two",
            );
        }
    }

    pub(super) fn check_scopes(&mut self, login: &ServerLogin, path: &ConfigPath) {
        let scopes = path.key("scopes");
        for (at, scope) in login.scopes.iter().flatten().enumerate() {
            self.check_scope(&scopes.item(at), scope);
        }
    }

    fn check_scope(&mut self, path: &ConfigPath, scope: &str) {
        if is_scope(scope) {
            return;
        }
        let message = format!("`{path}`: {} is not a scope", self.quoted_value(path));
        self.error(
            ProblemKind::Value,
            path,
            message,
            "write each scope separately: [\"read\", \"write\"]",
        );
    }

    /// Reports a parameter that would change the login's owner, or where its answer goes.
    fn check_parameter(&mut self, path: &ConfigPath, name: &str) {
        if !is_own_parameter(name) {
            return;
        }
        let fix = match name {
            "client_id" | "client_secret" | "resource" => format!("use `auth.{name}`"),
            "scope" => "use `auth.scopes`".to_owned(),
            _ => "remove it".to_owned(),
        };
        self.error_at_key(
            ProblemKind::Value,
            path,
            format!("`{path}` is a parameter that Moongate sets itself"),
            fix,
        );
    }

    /// Resolves the address of a client metadata document.
    ///
    /// 2026-07-28, basic/authorization/client-registration: "The `client_id` URL MUST use the
    /// "https" scheme and contain a path component".
    fn client_document(&mut self, path: &ConfigPath, text: &str) -> Option<Url> {
        let url = self.url(path, text, &["https"])?;
        if url.path() != "/" && url.fragment().is_none() {
            return Some(url);
        }
        let message = format!(
            "`{path}`: {} is not the address of a client metadata document",
            self.quoted_value(path)
        );
        self.error(
            ProblemKind::Value,
            path,
            message,
            "write its whole URL, such as \"https://example.com/client.json\"",
        );
        None
    }

    /// Resolves an issuer. RFC 8414, section 2: "a URL that uses the "https" scheme and has no
    /// query or fragment components".
    pub(super) fn issuer(&mut self, path: &ConfigPath, text: &str) -> Option<Url> {
        let url = self.url(path, text, &["https", "http"])?;
        let is_near = url.host_str().is_some_and(is_loopback_host);
        let (wrong, fix) = if url.scheme() == "http" && !is_near {
            (
                "is not an `https` URL",
                "write `https://`; `http://` is only for an authorization server on this machine",
            )
        } else if url.query().is_some() || url.fragment().is_some() {
            (
                "has a query or a fragment",
                "remove everything from `?` or `#` on",
            )
        } else {
            return Some(url);
        };
        let message = format!("`{path}`: {} {wrong}", self.quoted_value(path));
        self.error(ProblemKind::Value, path, message, fix);
        None
    }

    fn token_command(&mut self, login: &ServerLogin, path: &ConfigPath) -> CommandSettings {
        let key = path.key("command");
        let has_args = self.is_written(&path.key("args"));
        if let Some(command) = login.command.as_deref() {
            let purpose = "name the program that prints a token";
            self.check_program(&key, (command, has_args), purpose);
        } else if !self.is_written(&key) {
            let message = format!("`{path}` has type `command`, but no `command`");
            let fix = "add the program that prints a token, such as `command = \"gh\"` with \
                       `args = [\"auth\", \"token\"]`";
            self.error_at_key(ProblemKind::Missing, path, message, fix);
        }
        self.check_variables(&path.key("env"), &login.env);
        let env = login
            .env
            .iter()
            .map(|(name, value)| (name.clone(), SecretText::new(value.as_str())));
        CommandSettings {
            command: login.command.clone().unwrap_or_default(),
            args: login.args.clone(),
            env: env.collect(),
            ttl: login.ttl.0,
        }
    }
}
