//! Discovery of the authorization server behind a server.
//!
//! Owns the order of the documents, and the choice of the issuer. Does not register or authorize.
//! Invariant: an issuer in the config overrides what the server names, and a client in the config
//! is only ever used with its own issuer.

use moongate_transport::fetcher::{FetchFailure, Fetcher};
use url::Url;

use crate::authorization_server::{
    AuthorizationServer, MetadataFault, ServerMetadata, candidates, is_same_issuer, parse_issuer,
};
use crate::challenge::BearerChallenge;
use crate::login_error::LoginError;
use crate::login_fetcher::{DocumentError, LoginFetcher};
use crate::resource_metadata::{ResourceMetadata, canonical_uri, covers, well_known_urls};
use crate::settings::{ClientCredentialsSettings, LoginTarget, OAuthSettings};
use crate::token_server::FoundTokenServer;
use crate::untrusted_url;

/// Maximum number of authorization servers to try from a server's list.
const ISSUERS_MAX: usize = 3;

/// Facts that discovery found for a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryOutcome {
    /// Server that the login is for.
    pub target: LoginTarget,
    /// Authorization server.
    pub server: AuthorizationServer,
    /// Resource that requests name, exactly as published. `None`: the config leaves it out.
    pub resource: Option<String>,
    /// Scopes in the resource metadata.
    pub scopes_supported: Option<Vec<String>>,
}

/// Finds a server's authorization server from its challenge or its well-known metadata. `pin` is
/// the one where the config's client first logged in.
///
/// # Errors
/// The server names none, or names one that must not be used.
pub async fn discover(
    fetcher: &Fetcher,
    target: &LoginTarget,
    settings: &OAuthSettings,
    pin: Option<&Url>,
    challenge: Option<&BearerChallenge>,
) -> Result<DiscoveryOutcome, LoginError> {
    let discovery = ServerDiscovery {
        fetcher: LoginFetcher {
            fetcher,
            server: &target.url,
        },
        target,
        url: untrusted_url::http_url(&target.url),
    };
    let metadata_url = challenge.and_then(|challenge| challenge.resource_metadata.as_ref());
    let mut too_large = None;
    let metadata = match discovery.resource_metadata(metadata_url).await {
        Ok(published) => published.unwrap_or_default(),
        // A site may answer every path with a large page and still be its own authorization server.
        Err(error) if is_too_large(&error) => {
            too_large = Some(error);
            ResourceMetadata::default()
        }
        Err(error) => return Err(error),
    };
    let published = metadata.authorization_servers.unwrap_or_default();
    let issuers = match &settings.issuer {
        // The operator knows better: some servers list an issuer that their metadata does not name.
        Some(issuer) => vec![name_of(&published, issuer)],
        None => discovery.choose_issuers(pin, &published)?,
    };
    let is_known = settings.issuer.is_some() || pin.is_some() || !published.is_empty();
    let found = discovery.find_server(&issuers, is_known).await;
    let server = found.map_err(|error| match error {
        LoginError::NoLogin { .. } => too_large.unwrap_or(error),
        error => error,
    })?;
    let resource = metadata.resource;
    let resource = resource.unwrap_or_else(|| canonical_uri(&discovery.url));
    Ok(DiscoveryOutcome {
        target: target.clone(),
        server,
        resource: settings.sends_resource.then_some(resource),
        scopes_supported: metadata.scopes_supported,
    })
}

/// Finds the token endpoint of a client's issuer, which the config names.
///
/// # Errors
/// The issuer publishes no usable metadata, or the metadata of the server must not be used.
pub(crate) async fn discover_token_server(
    fetcher: &Fetcher,
    target: &LoginTarget,
    settings: &ClientCredentialsSettings,
) -> Result<FoundTokenServer, LoginError> {
    let discovery = ServerDiscovery {
        fetcher: LoginFetcher {
            fetcher,
            server: &target.url,
        },
        target,
        url: untrusted_url::http_url(&target.url),
    };
    let metadata = match discovery.resource_metadata(None).await {
        Ok(published) => published.unwrap_or_default(),
        Err(error) if is_too_large(&error) => ResourceMetadata::default(),
        Err(error) => return Err(error),
    };
    let published = metadata.authorization_servers.unwrap_or_default();
    let issuer = name_of(&published, &settings.issuer);
    let check = ServerMetadata::check_token_server;
    let found = discovery.server_metadata(&issuer, check).await?;
    let server = found.ok_or_else(|| discovery.without_metadata(&issuer, true))?;
    let resource = metadata.resource;
    let resource = resource.unwrap_or_else(|| canonical_uri(&discovery.url));
    Ok(FoundTokenServer {
        server,
        resource: settings.sends_resource.then_some(resource),
        scopes_supported: metadata.scopes_supported,
    })
}

/// Discovery for one server.
struct ServerDiscovery<'a> {
    fetcher: LoginFetcher<'a>,
    target: &'a LoginTarget,
    /// URL of the server over HTTP.
    url: Url,
}

impl ServerDiscovery<'_> {
    /// Finds the resource metadata at the challenge's URL, or else at the path, or else at the
    /// root. `None`: there is none.
    async fn resource_metadata(
        &self,
        named: Option<&Url>,
    ) -> Result<Option<ResourceMetadata>, LoginError> {
        let well_known = well_known_urls(&self.url);
        let mut first_error = None;
        for url in named.into_iter().chain(&well_known) {
            match self.resource_metadata_at(url).await {
                Ok(Some(found)) => return Ok(Some(found)),
                Ok(None) => {}
                // The next URL may have what this one lacks.
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        first_error.map_or(Ok(None), Err)
    }

    async fn resource_metadata_at(
        &self,
        url: &Url,
    ) -> Result<Option<ResourceMetadata>, LoginError> {
        let fetched = self
            .fetcher
            .get_resource_json::<ResourceMetadata>(url)
            .await;
        let fetched = fetched.map_err(|error| self.unread(error))?;
        // A site may answer every path with some JSON.
        let Some(found) = fetched.filter(|found| found.resource.is_some()) else {
            return Ok(None);
        };
        let resource = found.resource.as_deref().and_then(untrusted_url::parse);
        match resource.is_some_and(|resource| covers(&resource, url, &self.url)) {
            true => Ok(Some(found)),
            false => Err(LoginError::OtherResource {
                server: self.server(),
                host: untrusted_url::host(url),
            }),
        }
    }

    /// Chooses the issuers to try, exactly as the server names them.
    fn choose_issuers(
        &self,
        pin: Option<&Url>,
        published: &[String],
    ) -> Result<Vec<String>, LoginError> {
        let usable = |text: &&String| parse_issuer(text).is_some();
        if published.is_empty() {
            // 2025-03-26, basic/authorization, "Authorization Base URL": it "MUST be determined
            // from the MCP server URL by discarding any existing `path` component". Its default
            // endpoints are not used, because nothing would say that they support S256.
            let origin = || self.url.origin().ascii_serialization();
            return Ok(vec![pin.map_or_else(origin, Url::to_string)]);
        }
        let issuers: Vec<&String> = published.iter().filter(usable).take(ISSUERS_MAX).collect();
        let first = issuers.first().ok_or_else(|| LoginError::InvalidIssuer {
            server: self.server(),
        })?;
        let Some(expected) = pin else {
            return Ok(issuers.into_iter().cloned().collect());
        };
        // 2026-07-28, basic/authorization/client-registration, "Authorization Server Binding":
        // clients "SHOULD surface an error rather than silently attempting to use mismatched
        // credentials."
        let chosen = find_issuer(published, expected);
        let chosen = chosen.ok_or_else(|| LoginError::OtherIssuer {
            server: self.server(),
            expected: untrusted_url::host(expected),
            found: parse_issuer(first).map_or_else(String::new, |url| untrusted_url::host(&url)),
        })?;
        Ok(vec![chosen.clone()])
    }

    /// Finds the first usable one of these issuers.
    async fn find_server(
        &self,
        issuers: &[String],
        is_known: bool,
    ) -> Result<AuthorizationServer, LoginError> {
        let mut first_error = None;
        for issuer in issuers {
            let error = match self.server_metadata(issuer, ServerMetadata::check).await {
                Ok(Some(server)) => return Ok(server),
                Ok(None) => self.without_metadata(issuer, is_known),
                Err(error) => error,
            };
            first_error.get_or_insert(error);
        }
        Err(first_error.unwrap_or_else(|| LoginError::InvalidIssuer {
            server: self.server(),
        }))
    }

    /// Fetches the metadata of an issuer, and checks it. `None`: it has none.
    async fn server_metadata<T>(
        &self,
        issuer: &str,
        check: fn(ServerMetadata, &str) -> Result<T, MetadataFault>,
    ) -> Result<Option<T>, LoginError> {
        let Some(url) = parse_issuer(issuer) else {
            return Ok(None);
        };
        let mut first_error = None;
        for candidate in candidates(&url) {
            let error = match self.fetcher.get_json::<ServerMetadata>(&candidate).await {
                Ok(Some(metadata)) if metadata.names_issuer() => match check(metadata, issuer) {
                    Ok(server) => return Ok(Some(server)),
                    Err(fault) => self.faulty(fault, &url),
                },
                Ok(_) => continue,
                Err(error) => self.unread(error),
            };
            // The next candidate may have what this one lacks.
            first_error.get_or_insert(error);
        }
        first_error.map_or(Ok(None), Err)
    }

    fn without_metadata(&self, issuer: &str, is_known: bool) -> LoginError {
        let server = self.server();
        let host = parse_issuer(issuer).map_or_else(String::new, |url| untrusted_url::host(&url));
        match is_known {
            true => LoginError::NoMetadata { server, host },
            false => LoginError::NoLogin { server, host },
        }
    }

    fn faulty(&self, fault: MetadataFault, issuer: &Url) -> LoginError {
        let server = self.server();
        let host = untrusted_url::host(issuer);
        match fault {
            MetadataFault::Issuer(published) => {
                let other = published.as_deref().and_then(parse_issuer);
                let is_same_host = other.is_some_and(|other| untrusted_url::host(&other) == host);
                LoginError::MixedMetadata {
                    server,
                    // Tenants on one host differ only in their paths.
                    host: match is_same_host {
                        true => issuer.to_string(),
                        false => host,
                    },
                    published,
                }
            }
            MetadataFault::Pkce => LoginError::NoPkce { server, host },
            MetadataFault::Endpoint(member) => LoginError::Endpoint {
                server,
                host,
                member,
            },
        }
    }

    fn unread(&self, error: DocumentError) -> LoginError {
        let server = self.server();
        match error {
            DocumentError::Fetch(failure) => LoginError::Fetch { server, failure },
            DocumentError::Busy(host) => LoginError::Busy { server, host },
        }
    }

    fn server(&self) -> String {
        self.target.server.clone()
    }
}

/// Finds an issuer in a list, and returns it exactly as listed.
fn find_issuer<'a>(published: &'a [String], expected: &Url) -> Option<&'a String> {
    published.iter().find(|text| {
        let parsed = parse_issuer(text);
        parsed.is_some_and(|url| is_same_issuer(expected.as_str(), url.as_str()))
    })
}

/// Returns an issuer's name, exactly as listed if the list has it.
fn name_of(published: &[String], issuer: &Url) -> String {
    let listed = find_issuer(published, issuer).cloned();
    listed.unwrap_or_else(|| issuer.to_string())
}

/// True if a document is too large to be metadata.
fn is_too_large(error: &LoginError) -> bool {
    matches!(error, LoginError::Fetch { failure, .. } if failure.kind == FetchFailure::TooLarge)
}
