//! Credentials for MCP servers: logins by OAuth, and tokens from commands and client credentials.
//!
//! Owns discovery, registration, authorization, tokens, and the login folder that all processes of
//! a state folder share, with its root secret. Does not send MCP requests or open a browser.
//! Invariant: a login's token is on disk before it is used, unless the disk cannot be written. A
//! token goes only to its own server, and never into a log line or an error.

mod assertion_key;
mod authorization_request;
mod authorization_response;
mod authorization_server;
mod challenge;
mod client_token_source;
mod command_source;
mod discovery;
mod durable_file;
mod error_codes;
mod file_lock;
mod file_names;
mod folder_error;
mod grant;
mod grant_source;
mod login;
mod login_directory;
mod login_error;
mod login_failures;
mod login_fetcher;
mod login_folder;
mod login_problem;
mod pending_files;
mod registration;
mod reserved_space;
mod resource_metadata;
mod root_secret;
mod root_secrets;
mod row_seal;
mod scope;
mod seal_ring;
mod sealed_files;
mod secret_text;
mod settings;
mod token_endpoint;
mod token_server;
mod untrusted_url;
mod wanted_scopes;

#[cfg(test)]
mod tests;

pub use assertion_key::{AssertionKey, KeyFault};
pub use authorization_request::{
    PendingLogin, callback_path, code_challenge, is_own_parameter, random_text,
};
pub use authorization_response::AuthorizationResponse;
pub use authorization_server::AuthorizationServer;
pub use challenge::BearerChallenge;
pub use client_token_source::ClientTokenSource;
pub use command_source::CommandSource;
pub use discovery::{DiscoveryOutcome, discover};
pub use folder_error::FolderError;
pub use grant::{ClientAuthMethod, ClientIdentity, LoginGrant};
pub use grant_source::GrantSource;
pub use login::{FoundLogin, LogoutOutcome, StartedLogin, find_login, finish_login, log_out};
pub use login_directory::{LoginDirectory, LoginServer, LoginState};
pub use login_error::LoginError;
pub use login_folder::{GrantVersion, LoginFolder, RefreshLock, StoredLogins};
pub use login_problem::{LoginProblem, LoginProblemKind};
pub use registration::choose_client;
pub use root_secret::{RootSecret, SecretError};
pub use root_secrets::{RootSecrets, SecretSettings};
pub use row_seal::RowSeal;
pub use scope::is_scope;
pub use seal_ring::SealRing;
pub use secret_text::SecretText;
pub use settings::{
    AssertionSettings, ClientCredentialsSettings, ClientProof, CommandSettings, LoginTarget,
    OAuthSettings, ServerAuth,
};
pub use token_endpoint::{TokenFailure, TokenSet, exchange_code, refresh, revoke};
pub use untrusted_url::{is_loopback_url, parse_untrusted_url};
