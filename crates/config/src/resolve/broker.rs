//! People's logins at the gateway: `auth.oauth`, and the secrets behind them.
//!
//! Owns what each kind of company login needs, and what would make logins unsafe. Does not log
//! anybody in (`moongate_broker`). Invariant: no message quotes a secret.

use std::time::Duration;

use moongate_access::auth::{
    BrokerSettings, CLIENT_HOSTS, ClientKinds, ProviderKind, ProviderSecret, ProviderSettings,
};
use moongate_oauth::{SecretSettings, SecretText, is_scope};
use url::{Host, Url};

use super::egress::parse_host;
use super::resolver::PlanResolver;
use crate::broker_keys::OAuthLogin;
use crate::choices::{ClientKind, LoginProvider, StateKind};
use crate::file::ConfigFile;
use crate::gateway_keys::Gateway;
use crate::problem::ProblemKind;
use crate::tree::ConfigPath;

/// Keys that only one provider has. `None`: those of any other issuer.
const OWN_KEYS: [(&str, Option<LoginProvider>); 6] = [
    ("tenant", Some(LoginProvider::Entra)),
    ("domain", Some(LoginProvider::Google)),
    ("orgs", Some(LoginProvider::GitHub)),
    ("issuer", None),
    ("userinfo", None),
    ("trust_email", None),
];

/// Hosts of the providers that have a preset. Without the preset, their guests would count as
/// staff.
const PRESET_HOSTS: [(&str, LoginProvider); 4] = [
    ("login.microsoftonline.com", LoginProvider::Entra),
    ("sts.windows.net", LoginProvider::Entra),
    ("accounts.google.com", LoginProvider::Google),
    ("github.com", LoginProvider::GitHub),
];

/// Entra tenants that anybody can belong to.
const SHARED_TENANTS: [&str; 3] = ["common", "organizations", "consumers"];

/// Schemes that have a special meaning to browsers or gateways.
const TAKEN_SCHEMES: [&str; 11] = [
    "about",
    "blob",
    "data",
    "file",
    "filesystem",
    "ftp",
    "http",
    "https",
    "javascript",
    "vbscript",
    "view-source",
];

/// Longest lifetime of a login whose person cannot be rechecked.
const UNCHECKED_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Shortest secret, in bytes. A shorter one could be guessed to forge tokens.
const SECRET_MIN: usize = 32;

impl PlanResolver<'_> {
    /// Resolves people's logins. `None`: nobody can log in.
    pub(super) fn broker(
        &mut self,
        file: &ConfigFile,
        public_url: Option<&Url>,
    ) -> Option<BrokerSettings> {
        let login = file.auth.oauth.as_ref()?;
        let path = ConfigPath::of(&["auth", "oauth"]);
        let provider = path.key("provider");
        // An unknown provider's keys are unknown, too.
        if self.is_written(&provider) && !self.is_accepted(&provider) {
            return None;
        }
        self.check_people_exist(file, login, &path);
        self.check_state(&file.gateway);
        self.check_unchecked(login, &path.key("unchecked"));
        let provider = self.provider(login, &path);
        let clients = self.client_kinds(login, &path.key("clients"));
        let allow_clients = self.client_hosts(login, &path.key("allow_clients"));
        let redirect_schemes = self.redirect_schemes(login, &path.key("redirect_schemes"));
        let public_url = self.public_url_for_logins(file, public_url, &path);
        Some(BrokerSettings {
            public_url: public_url?,
            provider: provider?,
            access: login.access.0,
            max: login.max.0,
            recheck: login.recheck.0,
            unchecked: login.unchecked.0,
            clients,
            allow_clients,
            redirect_schemes,
        })
    }

    /// Reports logins that open nothing, since no role matches their people.
    fn check_people_exist(&mut self, file: &ConfigFile, login: &OAuthLogin, path: &ConfigPath) {
        let roles = ConfigPath::of(&["auth", "roles"]);
        let issuer = login.issuer();
        let mut written = file.auth.roles.iter().enumerate();
        let has_people = written.any(|(i, role)| {
            let named = role.people.issuer.as_deref().map(str::trim);
            !self.is_for_keys(file, role, &roles.item(i))
                && (named.is_none() || named == issuer.as_deref())
        });
        // A value that is not a list has its own error.
        if has_people || self.is_written(&roles) && !self.is_accepted(&roles) {
            return;
        }
        let message =
            format!("`{path}` opens nothing without `[[auth.roles]]` that match its people");
        let people = match login.provider {
            Some(LoginProvider::Google) => "email = [\"*@example.com\"]",
            Some(LoginProvider::GitHub) => "orgs = [\"...\"]",
            Some(LoginProvider::Entra) | None => "groups = [\"...\"]",
        };
        let fix = format!("add a role, such as `name = \"staff\"` with `match = {{ {people} }}`");
        self.error_at_key(ProblemKind::Missing, path, message, fix);
    }

    fn check_state(&mut self, gateway: &Gateway) {
        if gateway.state == Some(StateKind::Memory) {
            let path = ConfigPath::of(&["gateway", "state"]);
            let message =
                format!("`{path}` is \"memory\", so people's logins end with the process");
            self.warn(&path, message, "remove it, or write \"embedded\"");
        }
    }

    fn check_unchecked(&mut self, login: &OAuthLogin, path: &ConfigPath) {
        if login.unchecked.0 > UNCHECKED_MAX {
            let message = format!("`{path}`: {} is too long", self.quoted_value(path));
            let fix = "use at most \"7d\", since the provider cannot be asked if these people \
                       still exist";
            self.error(ProblemKind::Value, path, message, fix);
        }
    }

    /// Checks the URL that clients see, which identifies the authorization server.
    fn public_url_for_logins(
        &mut self,
        file: &ConfigFile,
        url: Option<&Url>,
        path: &ConfigPath,
    ) -> Option<Url> {
        // `auth.jwt` has had these checks already.
        let url = if file.auth.jwt.is_empty() {
            self.public_url_for_tokens(url, path)?
        } else {
            url?.clone()
        };
        if url.path() != "/" {
            let setting = ConfigPath::of(&["gateway", "public_url"]);
            let message = format!("`{setting}` has a path, but `{path}` needs a whole host");
            let fix = "remove the path; clients then find the login at the host itself";
            self.error(ProblemKind::Value, &setting, message, fix);
        }
        Some(url)
    }

    /// Resolves the company's login.
    fn provider(&mut self, login: &OAuthLogin, path: &ConfigPath) -> Option<ProviderSettings> {
        let issuer = path.key("issuer");
        if login.provider.is_none() && !self.is_written(&issuer) {
            let message = format!("`{path}` does not say where people log in");
            let fix = "add `provider = \"entra\"`, \"google\" or \"github\", or the `issuer` of \
                       another login";
            self.error_at_key(ProblemKind::Missing, path, message, fix);
            return None;
        }
        self.reject_keys_of_other_providers(login, path);
        let kind = match login.provider {
            Some(LoginProvider::Entra) => self
                .tenant(login, &path.key("tenant"))
                .map(|tenant| ProviderKind::Entra { tenant }),
            Some(LoginProvider::Google) => self
                .domain(login, &path.key("domain"))
                .map(|domain| ProviderKind::Google { domain }),
            Some(LoginProvider::GitHub) => self
                .orgs(login, &path.key("orgs"))
                .map(|orgs| ProviderKind::GitHub { orgs }),
            None => self.check_login_issuer(login, &issuer),
        };
        let client_id = self.login_client(login, path);
        self.check_login_scopes(login, &path.key("scopes"));
        Some(ProviderSettings {
            kind: kind?,
            issuer: login.issuer()?,
            client_id: client_id?,
            client_secret: login.client_secret.as_deref().map(ProviderSecret::new),
            scopes: login.scopes.clone(),
            userinfo: login.userinfo,
            trust_email: login.trust_email,
        })
    }

    /// Reports each key that belongs to another provider.
    fn reject_keys_of_other_providers(&mut self, login: &OAuthLogin, path: &ConfigPath) {
        for (key, owner) in OWN_KEYS {
            let key = path.key(key);
            if owner == login.provider || !self.is_written(&key) {
                continue;
            }
            let message = match owner {
                Some(owner) => format!("`{key}` is only for `provider = \"{}\"`", owner.name()),
                None => format!("`{key}` is only for a login without `provider`"),
            };
            let fix = "remove it, or `provider`";
            self.error_at_key(ProblemKind::Conflict, &key, message, fix);
        }
    }

    fn tenant(&mut self, login: &OAuthLogin, path: &ConfigPath) -> Option<String> {
        let fix = "write the directory (tenant) id, which is next to the application's id";
        let Some(text) = login.tenant.as_deref() else {
            self.report_missing(path, fix);
            return None;
        };
        let tenant = text.trim().to_ascii_lowercase();
        if is_uuid(&tenant) {
            return Some(tenant);
        }
        let shown = self.quoted_value(path);
        let message = if SHARED_TENANTS.contains(&tenant.as_str()) {
            format!("`{path}`: with {shown}, people from any company could log in")
        } else {
            format!("`{path}`: {shown} is not the id of a tenant")
        };
        self.error(ProblemKind::Value, path, message, fix);
        None
    }

    fn domain(&mut self, login: &OAuthLogin, path: &ConfigPath) -> Option<String> {
        let fix = "write the domain of your organisation, such as \"example.com\"";
        let Some(text) = login.domain.as_deref() else {
            self.report_missing(path, fix);
            return None;
        };
        if let Ok(Host::Domain(domain)) = Host::parse(text.trim())
            && domain.contains('.')
            && parse_host(&domain).is_some()
        {
            return Some(domain);
        }
        let message = format!("`{path}`: {} is not a domain", self.quoted_value(path));
        self.error(ProblemKind::Value, path, message, fix);
        None
    }

    fn orgs(&mut self, login: &OAuthLogin, path: &ConfigPath) -> Option<Vec<String>> {
        let Some(names) = login.orgs.as_deref() else {
            let fix = "name your organisations, as in `orgs = [\"example\"]`";
            self.report_missing(path, fix);
            return None;
        };
        self.check_values(path, Some(names), "nobody can log in");
        let mut orgs = Vec::new();
        for (i, name) in names.iter().enumerate() {
            let name = name.trim().to_ascii_lowercase();
            // An empty name has been reported.
            if !name.is_empty() && !is_github_name(&name) {
                let path = path.item(i);
                let shown = self.quoted_value(&path);
                let message = format!("`{path}`: {shown} is not the name of an organisation");
                let fix = "write its name as in `github.com/NAME`";
                self.error(ProblemKind::Value, &path, message, fix);
            }
            orgs.push(name);
        }
        Some(orgs)
    }

    fn check_login_issuer(
        &mut self,
        login: &OAuthLogin,
        path: &ConfigPath,
    ) -> Option<ProviderKind> {
        let url = self.issuer(path, login.issuer.as_deref()?)?;
        let host = url.host_str().unwrap_or_default();
        let preset = PRESET_HOSTS.iter().find(|(known, _)| *known == host);
        if let Some((_, preset)) = preset {
            let name = preset.name();
            let message = format!("`{path}`: use `provider = \"{name}\"` for this login");
            let fix = "it also checks that people belong to your company";
            self.error(ProblemKind::Conflict, path, message, fix);
            return None;
        }
        Some(ProviderKind::Issuer)
    }

    fn login_client(&mut self, login: &OAuthLogin, path: &ConfigPath) -> Option<String> {
        let needs_secret = matches!(
            login.provider,
            Some(LoginProvider::Google | LoginProvider::GitHub)
        );
        if login.client_secret.is_none() && needs_secret {
            let fix = "write the application's secret, as `\"${file:/run/secrets/login}\"`";
            self.report_missing(&path.key("client_secret"), fix);
        }
        if login.client_id.is_none() {
            let fix = "register this gateway there; its redirect address is \
                       `gateway.public_url` followed by `/oauth/provider`";
            self.report_missing(&path.key("client_id"), fix);
        }
        login.client_id.as_deref().map(|id| id.trim().to_owned())
    }

    fn check_login_scopes(&mut self, login: &OAuthLogin, path: &ConfigPath) {
        let Some(scopes) = login.scopes.as_deref() else {
            return;
        };
        for (i, scope) in scopes.iter().enumerate() {
            if !is_scope(scope) {
                let path = path.item(i);
                let message = format!("`{path}`: {} is not a scope", self.quoted_value(&path));
                let fix = "write each scope separately: [\"openid\", \"email\"]";
                self.error(ProblemKind::Value, &path, message, fix);
            }
        }
        // OpenID Connect Core, section 3.1.2.1: without it, the behaviour is unspecified.
        let has_openid = scopes.iter().any(|scope| scope == "openid");
        if !has_openid && login.provider != Some(LoginProvider::GitHub) {
            let message = format!("`{path}` lacks \"openid\", so nobody would be identified");
            self.error(ProblemKind::Missing, path, message, "add \"openid\"");
        }
    }

    fn client_kinds(&mut self, login: &OAuthLogin, path: &ConfigPath) -> ClientKinds {
        if login.clients.is_empty() {
            let message = format!("`{path}` is empty, so no client can request a login");
            let fix = "write \"cimd\", \"dcr\" or both, or remove it";
            self.error(ProblemKind::Missing, path, message, fix);
        }
        ClientKinds {
            documents: login.clients.contains(&ClientKind::Cimd),
            registered: login.clients.contains(&ClientKind::Dcr),
        }
    }

    /// Resolves the hosts of web clients. With an empty list, only programs on people's own
    /// computers remain.
    fn client_hosts(&mut self, login: &OAuthLogin, path: &ConfigPath) -> Vec<String> {
        let Some(written) = login.allow_clients.as_deref() else {
            return CLIENT_HOSTS.map(str::to_owned).to_vec();
        };
        let mut hosts = Vec::new();
        for (i, text) in written.iter().enumerate() {
            if let Some(host) = parse_host(text) {
                hosts.push(host);
                continue;
            }
            let path = path.item(i);
            let message = format!("`{path}`: {} is not a host", self.quoted_value(&path));
            let fix = "write only a name, such as \"claude.ai\", and list each host: `*` is not \
                       supported";
            self.error(ProblemKind::Value, &path, message, fix);
        }
        hosts
    }

    fn redirect_schemes(&mut self, login: &OAuthLogin, path: &ConfigPath) -> Vec<String> {
        let mut schemes = Vec::new();
        for (i, text) in login.redirect_schemes.iter().enumerate() {
            let scheme = text.to_ascii_lowercase();
            let path = path.item(i);
            let wrong = if !is_scheme(&scheme) {
                "is not the scheme of a URL"
            } else if TAKEN_SCHEMES.contains(&scheme.as_str()) {
                "is not a scheme of a desktop client"
            } else {
                schemes.push(scheme);
                continue;
            };
            let message = format!("`{path}`: {} {wrong}", self.quoted_value(&path));
            let fix = "write only the part before `:`, such as \"acme-editor\"";
            self.error(ProblemKind::Value, &path, message, fix);
        }
        schemes
    }

    /// Resolves the secrets behind people's logins.
    pub(super) fn secrets(&mut self, gateway: &Gateway) -> SecretSettings {
        let path = ConfigPath::of(&["gateway"]);
        if let Some(text) = &gateway.secret {
            self.check_secret(&path.key("secret"), text);
        }
        let before = path.key("secret_before");
        for (i, text) in gateway.secret_before.iter().enumerate() {
            self.check_secret(&before.item(i), text);
        }
        let before = gateway.secret_before.iter();
        SecretSettings {
            secret: gateway.secret.as_deref().map(SecretText::new),
            before: before.map(|text| SecretText::new(text.as_str())).collect(),
        }
    }

    fn check_secret(&mut self, path: &ConfigPath, text: &str) {
        if text.trim().len() < SECRET_MIN {
            let message = format!("`{path}` has fewer than {SECRET_MIN} bytes");
            let fix = "create a random one, for example with `openssl rand -hex 32`";
            self.error(ProblemKind::Value, path, message, fix);
        }
    }
}

/// Returns true for 32 hex digits in their five groups.
fn is_uuid(text: &str) -> bool {
    let lengths = text.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12])
        && text
            .bytes()
            .all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

/// Returns true for a name that a GitHub organisation can have.
pub(super) fn is_github_name(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    !text.is_empty() && text.len() <= 100 && text.bytes().all(is_part)
}

/// Returns true for the scheme of a URL (RFC 3986, section 3.1).
fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.')
        })
}

#[cfg(test)]
mod tests;
