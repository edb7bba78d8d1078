//! Discovery: which authorization server a server logs in at.
//!
//! Owns the order of the documents, and the choice of the issuer. Does not register or authorize.
//! Invariant: a client of the config meets no other issuer than its own.

use moongate_transport::fetcher::{FetchError, Fetcher};
use url::Url;

use crate::challenge::BearerChallenge;
use crate::json_fetch::LoginFetcher;
use crate::login_error::LoginError;
use crate::resource_metadata::{ResourceMetadata, canonical_uri, covers, well_known_urls};
use crate::server_metadata::{
    AuthorizationServer, MetadataFault, ServerMetadata, candidates, is_same_issuer, parse_issuer,
};
use crate::settings::{LoginTarget, OAuthSettings};
use crate::untrusted_url;

/// Facts that a login needs, found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovered {
    /// Server that the login is for.
    pub target: LoginTarget,
    /// Authorization server.
    pub server: AuthorizationServer,
    /// Resource that requests name, as it was published. `None`: the config leaves it out.
    pub resource: Option<String>,
    /// Scopes in the metadata of the resource.
    pub scopes_supported: Option<Vec<String>>,
}

/// Finds the authorization server of a server, from its challenge or from its well-known metadata.
///
/// # Errors
/// The server names none, or names one that must not be used.
pub async fn discover(
    fetcher: &Fetcher,
    target: &LoginTarget,
    settings: &OAuthSettings,
    challenge: Option<&BearerChallenge>,
) -> Result<Discovered, LoginError> {
    let discovery = Discovery {
        fetcher: LoginFetcher {
            fetcher,
            server: &target.url,
        },
        target,
        url: untrusted_url::http_url(&target.url),
    };
    let metadata_url = challenge.and_then(|challenge| challenge.resource_metadata.as_ref());
    let published = discovery.resource_metadata(metadata_url).await?;
    let metadata = published.unwrap_or_default();
    let issuers = metadata.authorization_servers.unwrap_or_default();
    let issuer = discovery.choose_issuer(settings, &issuers)?;
    let found = discovery.server_metadata(&issuer).await?;
    let server = found.ok_or_else(|| discovery.without_metadata(&issuer, issuers.is_empty()))?;
    let resource = metadata.resource;
    let resource = resource.unwrap_or_else(|| canonical_uri(&discovery.url));
    Ok(Discovered {
        target: target.clone(),
        server,
        resource: settings.sends_resource.then_some(resource),
        scopes_supported: metadata.scopes_supported,
    })
}

/// Discovery for one server.
struct Discovery<'a> {
    fetcher: LoginFetcher<'a>,
    target: &'a LoginTarget,
    /// URL of the server over HTTP.
    url: Url,
}

impl Discovery<'_> {
    /// Fetches the metadata of the resource: at the URL of the challenge, else at the path, else at
    /// the root. `None`: there is none.
    async fn resource_metadata(
        &self,
        named: Option<&Url>,
    ) -> Result<Option<ResourceMetadata>, LoginError> {
        let well_known = well_known_urls(&self.url);
        for url in named.into_iter().chain(&well_known) {
            let fetched = self
                .fetcher
                .get_resource_json::<ResourceMetadata>(url)
                .await;
            let fetched = fetched.map_err(|failure| self.unfetched(failure))?;
            // A site may answer any path with some JSON.
            let Some(found) = fetched.filter(|found| found.resource.is_some()) else {
                continue;
            };
            let resource = found.resource.as_deref().and_then(untrusted_url::parse);
            if resource.is_some_and(|resource| covers(&resource, url, &self.url)) {
                return Ok(Some(found));
            }
            return Err(LoginError::OtherResource {
                server: self.server(),
                host: untrusted_url::host(url),
            });
        }
        Ok(None)
    }

    /// Chooses the issuer, letter by letter as the server names it.
    fn choose_issuer(
        &self,
        settings: &OAuthSettings,
        published: &[String],
    ) -> Result<String, LoginError> {
        let usable = |text: &&String| parse_issuer(text).is_some();
        if published.is_empty() {
            let configured = settings.issuer.as_ref().map(Url::to_string);
            // 2025-03-26, basic/authorization, "Authorization Base URL": it "MUST be determined
            // from the MCP server URL by discarding any existing `path` component". Its default
            // endpoints are not used, because nothing would say that they support S256.
            let origin = || self.url.origin().ascii_serialization();
            return Ok(configured.unwrap_or_else(origin));
        }
        let first = published.iter().find(usable);
        let first = first.ok_or_else(|| LoginError::InvalidIssuer {
            server: self.server(),
        })?;
        let Some(expected) = &settings.issuer else {
            return Ok(first.clone());
        };
        let is_expected = |text: &&String| {
            let parsed = parse_issuer(text);
            parsed.is_some_and(|url| is_same_issuer(expected.as_str(), url.as_str()))
        };
        // 2026-07-28, basic/authorization/client-registration, "Authorization Server Binding":
        // clients "SHOULD surface an error rather than silently attempting to use mismatched
        // credentials."
        let chosen = published.iter().find(is_expected);
        chosen.cloned().ok_or_else(|| LoginError::OtherIssuer {
            server: self.server(),
            expected: untrusted_url::host(expected),
            found: parse_issuer(first).map_or_else(String::new, |url| untrusted_url::host(&url)),
        })
    }

    /// Fetches the metadata of an issuer. `None`: it has none.
    async fn server_metadata(
        &self,
        issuer: &str,
    ) -> Result<Option<AuthorizationServer>, LoginError> {
        let Some(url) = parse_issuer(issuer) else {
            return Ok(None);
        };
        let mut first_fault = None;
        for candidate in candidates(&url) {
            let fetched = self.fetcher.get_json::<ServerMetadata>(&candidate).await;
            let fetched = fetched.map_err(|failure| self.unfetched(failure))?;
            let found = fetched.filter(ServerMetadata::names_issuer);
            match found.map(|metadata| metadata.check(issuer)) {
                Some(Ok(server)) => return Ok(Some(server)),
                // The next candidate may have what this one lacks.
                Some(Err(fault)) => {
                    first_fault.get_or_insert(fault);
                }
                None => {}
            }
        }
        match first_fault {
            Some(fault) => Err(self.faulty(fault, untrusted_url::host(&url))),
            None => Ok(None),
        }
    }

    fn without_metadata(&self, issuer: &str, is_guessed: bool) -> LoginError {
        let server = self.server();
        let host = parse_issuer(issuer).map_or_else(String::new, |url| untrusted_url::host(&url));
        match is_guessed {
            true => LoginError::NoLogin { server, host },
            false => LoginError::NoMetadata { server, host },
        }
    }

    fn faulty(&self, fault: MetadataFault, host: String) -> LoginError {
        let server = self.server();
        match fault {
            MetadataFault::Issuer(published) => LoginError::MixedMetadata {
                server,
                host,
                published: published.unwrap_or_else(|| "without a name".to_owned()),
            },
            MetadataFault::Pkce => LoginError::NoPkce { server, host },
            MetadataFault::Endpoint(member) => LoginError::Endpoint {
                server,
                host,
                member,
            },
        }
    }

    fn unfetched(&self, failure: FetchError) -> LoginError {
        LoginError::Fetch {
            server: self.server(),
            failure,
        }
    }

    fn server(&self) -> String {
        self.target.server.clone()
    }
}
