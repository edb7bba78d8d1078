//! OAuth resource names of the endpoints (RFC 9728).
//!
//! Owns their identifiers, the addresses of their metadata, and the endpoint that an audience
//! means. Does not know which endpoints exist. Invariant: every name that an endpoint could have
//! gets the same answer, so nobody learns which ones exist.

use serde::Serialize;
use url::Url;

/// Path of metadata.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";
/// Path of the endpoint for all servers. Others are below it.
const ENDPOINT: &str = "/mcp";
/// Maximum length of an endpoint's name.
const NAME_MAX: usize = 64;

/// Names of the endpoints as resources, all below one URL.
#[derive(Clone, Debug)]
pub struct ResourceNames {
    public_url: Url,
    /// Path of that URL, without a trailing slash.
    base: String,
}

/// Metadata of one endpoint, as clients read it.
#[derive(Debug, Serialize)]
pub struct ResourceDocument {
    resource: String,
    authorization_servers: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scopes_supported: Option<[String; 1]>,
    bearer_methods_supported: [&'static str; 1],
}

impl ResourceDocument {
    /// Creates the metadata of a resource. `scope` is the one that all issuers share.
    pub fn new(resource: String, authorization_servers: Vec<String>, scope: Option<&str>) -> Self {
        ResourceDocument {
            resource,
            authorization_servers,
            scopes_supported: scope.map(|scope| [scope.to_owned()]),
            bearer_methods_supported: ["header"],
        }
    }
}

impl ResourceNames {
    /// Creates the names below the URL that clients see.
    pub fn new(public_url: &Url) -> Self {
        ResourceNames {
            public_url: public_url.clone(),
            base: public_url.path().trim_end_matches('/').to_owned(),
        }
    }

    /// Returns the identifier of an endpoint: its URL. The empty name is the endpoint for all
    /// servers.
    pub fn identifier(&self, endpoint: &str) -> String {
        let origin = self.public_url.origin().ascii_serialization();
        format!("{origin}{}", self.path(endpoint))
    }

    /// Returns the URL of an endpoint's metadata (RFC 9728, section 3.1).
    pub fn metadata_url(&self, endpoint: &str) -> String {
        let origin = self.public_url.origin().ascii_serialization();
        format!("{origin}{WELL_KNOWN}{}", self.path(endpoint))
    }

    /// Finds the endpoint whose metadata is at a path of this gateway. A proxy may have removed the
    /// path of the public URL.
    pub fn endpoint_at(&self, path: &str) -> Option<String> {
        let resource = path.strip_prefix(WELL_KNOWN)?;
        let below = resource.strip_prefix(&self.base).unwrap_or(resource);
        endpoint_below(below)
    }

    /// Finds the endpoint that an audience means. Case in the scheme and host, the default port, a
    /// trailing slash and a query make no difference.
    pub fn endpoint_of(&self, audience: &str) -> Option<String> {
        let url = Url::parse(audience).ok()?;
        let is_plain =
            url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
        if url.origin() != self.public_url.origin() || !is_plain {
            return None;
        }
        let path = url.path();
        let path = path.strip_suffix('/').unwrap_or(path);
        endpoint_below(path.strip_prefix(&self.base)?)
    }

    /// Returns true if a Host value names the host of the public URL, on any port.
    pub fn is_own_host(&self, value: &str) -> bool {
        // The colons of an IPv6 address are in brackets.
        let port = value
            .rfind(':')
            .filter(|colon| value.rfind(']').is_none_or(|bracket| bracket < *colon));
        let host = port.map_or(value, |colon| &value[..colon]);
        self.public_url
            .host_str()
            .is_some_and(|own| own.eq_ignore_ascii_case(host))
    }

    fn path(&self, endpoint: &str) -> String {
        match endpoint {
            "" => format!("{}{ENDPOINT}", self.base),
            name => format!("{}{ENDPOINT}/{name}", self.base),
        }
    }
}

/// Returns the endpoint at a path, which is empty for the endpoint for all servers.
fn endpoint_below(path: &str) -> Option<String> {
    match path.strip_prefix(ENDPOINT)? {
        "" => Some(String::new()),
        rest => {
            let name = rest.strip_prefix('/')?;
            (!name.is_empty() && is_endpoint_name(name)).then(|| name.to_owned())
        }
    }
}

/// Returns true if an endpoint can have a name. The empty name is the endpoint for all servers.
pub fn is_endpoint_name(name: &str) -> bool {
    name.len() <= NAME_MAX
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(url: &str) -> ResourceNames {
        ResourceNames::new(&Url::parse(url).unwrap())
    }

    #[test]
    fn an_endpoint_has_an_identifier_and_a_metadata_url() {
        for (url, endpoint, identifier, metadata) in [
            (
                "https://Mcp.Example.com",
                "",
                "https://mcp.example.com/mcp",
                "https://mcp.example.com/.well-known/oauth-protected-resource/mcp",
            ),
            (
                "https://mcp.example.com:443/",
                "files",
                "https://mcp.example.com/mcp/files",
                "https://mcp.example.com/.well-known/oauth-protected-resource/mcp/files",
            ),
            (
                "https://example.com:8443/tools/",
                "files",
                "https://example.com:8443/tools/mcp/files",
                "https://example.com:8443/.well-known/oauth-protected-resource/tools/mcp/files",
            ),
        ] {
            let names = names(url);
            assert_eq!(names.identifier(endpoint), identifier);
            assert_eq!(names.metadata_url(endpoint), metadata);
            assert_eq!(names.endpoint_of(identifier).as_deref(), Some(endpoint));
            let path = Url::parse(metadata).unwrap();
            assert_eq!(names.endpoint_at(path.path()).as_deref(), Some(endpoint));
        }
    }

    #[test]
    fn a_proxy_may_remove_the_path_of_the_public_url() {
        let names = names("https://example.com/tools");
        let path = "/.well-known/oauth-protected-resource/mcp/files";
        assert_eq!(names.endpoint_at(path).as_deref(), Some("files"));
        for path in [
            "/.well-known/oauth-protected-resource",
            "/.well-known/oauth-protected-resource/",
            "/.well-known/oauth-protected-resource/mcp/",
            "/.well-known/oauth-protected-resource/mcp/a/b",
            "/.well-known/oauth-protected-resource/mcpx",
            "/.well-known/oauth-protected-resource/mcp/a%22b",
            "/mcp",
        ] {
            assert_eq!(names.endpoint_at(path), None, "{path}");
        }
    }

    #[test]
    fn an_audience_means_one_endpoint() {
        let names = names("https://mcp.example.com");
        for (audience, endpoint) in [
            ("https://mcp.example.com/mcp", Some("")),
            ("HTTPS://MCP.example.com:443/mcp/", Some("")),
            ("https://mcp.example.com/mcp?x=1", Some("")),
            ("https://mcp.example.com/mcp/files", Some("files")),
            ("https://mcp.example.com/mcp/files/", Some("files")),
            ("https://mcp.example.com", None),
            ("https://mcp.example.com/", None),
            ("https://mcp.example.com/MCP", None),
            ("https://mcp.example.com/mcp/a/b", None),
            ("https://mcp.example.com/mcp//", None),
            ("https://mcp.example.com/mcp#x", None),
            ("http://mcp.example.com/mcp", None),
            ("https://mcp.example.com:8443/mcp", None),
            ("https://mcp.example.com.evil.test/mcp", None),
            ("https://mcp.example.com@evil.test/mcp", None),
            ("https://ann@mcp.example.com/mcp", None),
            ("mcp", None),
        ] {
            assert_eq!(
                names.endpoint_of(audience).as_deref(),
                endpoint,
                "{audience}"
            );
        }
    }

    #[test]
    fn a_host_is_compared_without_case_and_port() {
        for (url, host, expected) in [
            ("https://mcp.example.com", "mcp.example.com", true),
            ("https://mcp.example.com", "MCP.Example.com:8080", true),
            ("https://mcp.example.com", "127.0.0.1", false),
            ("https://mcp.example.com", "localhost:8080", false),
            (
                "https://mcp.example.com",
                "mcp.example.com.evil.test",
                false,
            ),
            ("https://mcp.example.com", "", false),
            ("http://[::1]:8080", "[::1]:8080", true),
            ("http://[::1]:8080", "[::1]", true),
            ("http://[::1]:8080", "[::2]", false),
        ] {
            assert_eq!(names(url).is_own_host(host), expected, "{host} for {url}");
        }
    }

    #[test]
    fn metadata_has_these_bytes() {
        let issuers = vec!["https://login.example.com".to_owned()];
        let resource = names("https://mcp.example.com").identifier("files");
        let document = ResourceDocument::new(resource.clone(), issuers.clone(), Some("mcp"));
        assert_eq!(
            serde_json::to_string(&document).unwrap(),
            concat!(
                r#"{"resource":"https://mcp.example.com/mcp/files","#,
                r#""authorization_servers":["https://login.example.com"],"#,
                r#""scopes_supported":["mcp"],"bearer_methods_supported":["header"]}"#
            )
        );
        let document = ResourceDocument::new(resource, issuers, None);
        let text = serde_json::to_string(&document).unwrap();
        assert!(!text.contains("scopes_supported"), "{text}");
    }
}
