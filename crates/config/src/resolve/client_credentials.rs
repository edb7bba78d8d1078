//! Clients that get tokens for themselves: `auth` with `type = "client_credentials"`.
//!
//! Owns what such a client needs, and the reading of its key. Does not ask for tokens
//! (`moongate_oauth`). Invariant: a client proves itself in one way, at one issuer, and no message
//! quotes its secret or key.

use moongate_oauth::{
    AssertionKey, AssertionSettings, ClientCredentialsSettings, ClientProof, SecretText,
};

use super::resolver::PlanResolver;
use crate::problem::ProblemKind;
use crate::server_keys::ServerLogin;
use crate::tree::ConfigPath;

impl PlanResolver<'_> {
    /// Resolves a client that gets tokens for itself. `None`: something that it needs is missing or
    /// wrong, and was reported.
    pub(super) fn client_credentials(
        &mut self,
        login: &ServerLogin,
        path: &ConfigPath,
    ) -> Option<ClientCredentialsSettings> {
        self.check_scopes(login, path);
        self.require(path, "client_id", "add the client's id there");
        let fix = "add the authorization server that the client is at, because its secret goes to \
                   no other";
        self.require(path, "issuer", fix);
        let issuer = login.issuer.as_deref();
        let issuer = issuer.and_then(|text| self.issuer(&path.key("issuer"), text));
        let proof = self.client_proof(login, path);
        Some(ClientCredentialsSettings {
            client_id: login.client_id.clone()?,
            proof: proof?,
            issuer: issuer?,
            scopes: login.scopes.clone(),
            sends_resource: login.resource,
        })
    }

    /// Reports a key that is missing.
    fn require(&mut self, path: &ConfigPath, name: &str, fix: &str) {
        if self.is_written(&path.key(name)) {
            return;
        }
        let message = format!("`{path}` has type `client_credentials`, but no `{name}`");
        self.error_at_key(ProblemKind::Missing, path, message, fix);
    }

    /// Resolves how the client proves itself. `None`: in no way that can be used.
    fn client_proof(&mut self, login: &ServerLogin, path: &ConfigPath) -> Option<ClientProof> {
        let key = path.key("private_key");
        let has_secret = self.is_written(&path.key("client_secret"));
        match (has_secret, self.is_written(&key)) {
            (false, true) => self.assertion(login, path).map(ClientProof::Assertion),
            (true, false) => {
                self.reject_without_key(path);
                let secret = login.client_secret.as_deref();
                secret.map(|secret| ClientProof::Secret(SecretText::new(secret)))
            }
            (true, true) => {
                let message = format!(
                    "`{path}` has both `client_secret` and `private_key`: a client proves itself \
                     in one way"
                );
                let fix = "keep one of the two";
                self.error_at_key(ProblemKind::Conflict, &key, message, fix);
                None
            }
            (false, false) => {
                let message = format!(
                    "`{path}` has type `client_credentials`, but neither `client_secret` nor \
                     `private_key`"
                );
                let fix = "add one of them, from a variable or a file: `client_secret = \
                           \"${CLIENT_SECRET}\"`";
                self.error_at_key(ProblemKind::Missing, path, message, fix);
                None
            }
        }
    }

    /// Reports settings of assertions without a key that signs them.
    fn reject_without_key(&mut self, path: &ConfigPath) {
        let mut settings = ["key_id", "audience"]
            .into_iter()
            .map(|name| path.key(name));
        let Some(setting) = settings.find(|setting| self.is_written(setting)) else {
            return;
        };
        self.error_at_key(
            ProblemKind::Conflict,
            &setting,
            format!("`{setting}` is only for a client with a `private_key`"),
            "remove it, or replace `client_secret` by a `private_key`",
        );
    }

    fn assertion(&mut self, login: &ServerLogin, path: &ConfigPath) -> Option<AssertionSettings> {
        let text = login.private_key.as_deref()?;
        match AssertionKey::from_pem(text) {
            Ok(key) => Some(AssertionSettings {
                key,
                key_id: login.key_id.clone(),
                audience: login.audience.clone(),
            }),
            Err(fault) => {
                let path = path.key("private_key");
                let message = format!("`{path}` {fault}");
                self.error(ProblemKind::Value, &path, message, fault.fix());
                None
            }
        }
    }
}
