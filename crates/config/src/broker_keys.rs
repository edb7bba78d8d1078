//! Keys of people's logins at the gateway: `auth.oauth`.
//!
//! Owns their types and defaults. Does not check values against each other (`resolve`). Invariant:
//! no default names a company, so nobody can log in until one is configured.

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::choices::{ClientKind, LoginProvider};
use moongate_units::DurationSetting;

/// People's logins at the gateway, through the company's login.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub(super) struct OAuthLogin {
    /// The company's login: `"entra"`, `"google"` or `"github"`. Any other needs `issuer` instead.
    #[cfg_attr(test, schemars(example = &"entra"))]
    pub(super) provider: Option<LoginProvider>,
    /// The issuer of any other OpenID Connect login, exactly as in its tokens.
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub(super) issuer: Option<String>,
    /// For Entra: the id of the directory (tenant).
    #[cfg_attr(test, schemars(example = &"00000000-0000-0000-0000-000000000000"))]
    pub(super) tenant: Option<String>,
    /// For Google: the domain of the organisation.
    pub(super) domain: Option<String>,
    /// For GitHub: the organisations whose members may log in.
    pub(super) orgs: Option<Vec<String>>,
    /// The client id of this gateway at the company's login.
    #[cfg_attr(test, schemars(length(min = 1), example = &"..."))]
    pub(super) client_id: Option<String>,
    /// The client secret, from a variable or a file: `${file:/run/secrets/entra}`.
    #[cfg_attr(test, schemars(length(min = 1), example = &"${file:/run/secrets/entra}"))]
    pub(super) client_secret: Option<String>,
    /// The scopes to request from the company's login. Default: what logins and roles need.
    pub(super) scopes: Option<Vec<String>>,
    /// With `issuer`, `true`: also asks its userinfo endpoint, for claims that ID tokens lack.
    pub(super) userinfo: bool,
    /// With `issuer`, `true`: email addresses are trusted even if not marked as verified.
    pub(super) trust_email: bool,
    /// The lifetime of an access token. Clients renew it until the login ends.
    pub(super) access: DurationSetting,
    /// The lifetime of a login, even if it is used. Unused ones end after 30 days.
    pub(super) max: DurationSetting,
    /// How often the company's login is asked about a person who uses their login.
    pub(super) recheck: DurationSetting,
    /// The lifetime of a login whose person cannot be rechecked. At most a week.
    pub(super) unchecked: DurationSetting,
    /// Which clients may request a login: `"cimd"`, those with a metadata document, and `"dcr"`,
    /// those that register themselves.
    #[cfg_attr(test, schemars(example = &["cimd", "dcr"]))]
    pub(super) clients: Vec<ClientKind>,
    /// The hosts of web clients, such as `"claude.ai"`. Default: those of well-known clients.
    pub(super) allow_clients: Option<Vec<String>>,
    /// More schemes of desktop clients, such as `"acme-editor"`.
    pub(super) redirect_schemes: Vec<String>,
}

impl Default for OAuthLogin {
    fn default() -> Self {
        OAuthLogin {
            provider: None,
            issuer: None,
            tenant: None,
            domain: None,
            orgs: None,
            client_id: None,
            client_secret: None,
            scopes: None,
            userinfo: false,
            trust_email: false,
            access: DurationSetting::minutes(24 * 60),
            max: DurationSetting::minutes(180 * 24 * 60),
            recheck: DurationSetting::minutes(60),
            unchecked: DurationSetting::minutes(24 * 60),
            clients: vec![ClientKind::Cimd, ClientKind::Dcr],
            allow_clients: None,
            redirect_schemes: Vec::new(),
        }
    }
}

impl OAuthLogin {
    /// Returns the issuer, as tokens have it. `None` if the config does not say it.
    pub(super) fn issuer(&self) -> Option<String> {
        Some(match self.provider {
            Some(LoginProvider::Entra) => {
                let tenant = self.tenant.as_deref()?.trim().to_ascii_lowercase();
                format!("https://login.microsoftonline.com/{tenant}/v2.0")
            }
            Some(LoginProvider::Google) => "https://accounts.google.com".to_owned(),
            Some(LoginProvider::GitHub) => "https://github.com".to_owned(),
            None => self.issuer.as_deref()?.trim().to_owned(),
        })
    }
}
