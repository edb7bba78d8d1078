//! Metadata of protected resources (RFC 9728).
//!
//! Owns where the document may be, and whether it applies to a server. Does not fetch it.
//! Invariant: a document applies to the whole URL of a server, or for a parent that published it
//! itself.

use serde::Deserialize;
use url::Url;

/// Path of the documents.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// Metadata of a protected resource, as far as a login needs it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ResourceMetadata {
    /// Identifier of the resource, sent exactly as published.
    pub(crate) resource: Option<String>,
    /// Issuers of the authorization servers.
    pub(crate) authorization_servers: Option<Vec<String>>,
    /// Scopes that suffice for basic use.
    pub(crate) scopes_supported: Option<Vec<String>>,
}

/// Returns the URLs at which the metadata of a server may be, in the order to try them.
// 2026-07-28, basic/authorization/authorization-server-discovery, "Protected Resource Metadata
// Discovery Requirements": clients "MUST fall back to constructing and requesting the well-known
// URIs in the order listed above", which is at the path, then at the root.
pub(crate) fn well_known_urls(server: &Url) -> Vec<Url> {
    let mut root = server.clone();
    root.set_path("/");
    root.set_query(None);
    let mut urls = vec![well_known_url(server), well_known_url(&root)];
    urls.dedup();
    urls
}

/// Returns the URL of the metadata of one resource (RFC 9728, section 3.1).
fn well_known_url(resource: &Url) -> Url {
    let mut url = resource.clone();
    // The official SDKs strip the trailing slash from every path, not only from the root.
    url.set_path(&format!(
        "{WELL_KNOWN}{}",
        resource.path().trim_end_matches('/')
    ));
    url.set_fragment(None);
    url
}

/// True if the metadata of a resource, found at `source`, applies to a server.
// RFC 9728, section 3.3: metadata of another resource "MUST NOT be used". A parent may speak for
// its servers, but on a host with several owners no server may speak for the parent.
pub(crate) fn covers(resource: &Url, source: &Url, server: &Url) -> bool {
    if resource.origin() != server.origin() {
        return false;
    }
    let of_resource = segments(resource);
    let of_server = segments(server);
    let is_whole = resource.query().is_none() || resource.query() == server.query();
    if of_resource == of_server {
        return is_whole;
    }
    let is_parent = resource.query().is_none() && of_server.starts_with(&of_resource);
    is_parent && *source == well_known_url(resource)
}

/// Segments of a path. A trailing slash makes no difference.
fn segments(url: &Url) -> Vec<&str> {
    let path = url.path();
    path.strip_suffix('/').unwrap_or(path).split('/').collect()
}

/// Returns the identifier of a server without metadata.
// 2026-07-28, basic/authorization, "Canonical Server URI": "implementations SHOULD consistently use
// the form without the trailing slash". RFC 8707, section 2: no fragment, and better no query.
pub(crate) fn canonical_uri(server: &Url) -> String {
    let mut url = server.clone();
    url.set_query(None);
    url.set_fragment(None);
    match url.path() {
        "/" => url.as_str().trim_end_matches('/').to_owned(),
        _ => url.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn the_path_is_tried_before_the_root() {
        for (server, expected) in [
            (
                "https://example.com/public/mcp",
                &[
                    "https://example.com/.well-known/oauth-protected-resource/public/mcp",
                    "https://example.com/.well-known/oauth-protected-resource",
                ][..],
            ),
            (
                "https://example.com:8443/mcp/?team=1",
                &[
                    "https://example.com:8443/.well-known/oauth-protected-resource/mcp?team=1",
                    "https://example.com:8443/.well-known/oauth-protected-resource",
                ][..],
            ),
            (
                "https://example.com",
                &["https://example.com/.well-known/oauth-protected-resource"][..],
            ),
        ] {
            let urls = well_known_urls(&url(server));
            let found: Vec<&str> = urls.iter().map(Url::as_str).collect();
            assert_eq!(found, expected, "{server}");
        }
    }

    #[test]
    fn metadata_is_for_the_same_url_or_from_the_parent_itself() {
        let own = "https://a.example/.well-known/oauth-protected-resource/mcp";
        let root = "https://a.example/.well-known/oauth-protected-resource";
        let other = "https://a.example/metadata.json";
        let server = "https://a.example/mcp";
        for (resource, source, server, expected) in [
            ("https://a.example/mcp", own, server, true),
            ("https://A.example:443/mcp/", own, server, true),
            ("https://a.example/mcp", other, server, true),
            ("https://a.example/mcp", root, server, true),
            ("https://a.example", root, server, true),
            ("https://a.example/", root, server, true),
            ("https://a.example", own, server, false),
            ("https://a.example", other, server, false),
            ("https://a.example/mc", root, server, false),
            ("https://a.example/mcp/more", own, server, false),
            ("https://a.example/other", root, server, false),
            (
                "https://a.example/mcp",
                root,
                "https://a.example/mcp/one",
                false,
            ),
            (
                "https://a.example/mcp",
                own,
                "https://a.example/mcp/one",
                true,
            ),
            (
                "https://a.example/mcp",
                own,
                "https://a.example/mcpone",
                false,
            ),
            ("https://a.example/mcp?x=1", own, server, false),
            (
                "https://a.example/mcp",
                own,
                "https://a.example/mcp?x=1",
                true,
            ),
            ("https://a.example/x/../mcp", own, server, true),
            ("https://a.example/%2e%2e/mcp", own, server, true),
            ("https://a.example/..%2fmcp", own, server, false),
            ("http://a.example/mcp", own, server, false),
            ("https://a.example:8443/mcp", own, server, false),
            ("https://evil.example/mcp", own, server, false),
            ("https://a.example.evil.example/mcp", own, server, false),
        ] {
            let found = covers(&url(resource), &url(source), &url(server));
            assert_eq!(found, expected, "{resource} from {source} for {server}");
        }
    }

    #[test]
    fn a_server_without_metadata_is_named_in_canonical_form() {
        for (server, expected) in [
            ("https://Mcp.Example.com", "https://mcp.example.com"),
            ("https://mcp.example.com:443/", "https://mcp.example.com"),
            (
                "https://mcp.example.com:8443",
                "https://mcp.example.com:8443",
            ),
            (
                "https://mcp.example.com/mcp?key=1#x",
                "https://mcp.example.com/mcp",
            ),
            (
                "https://mcp.example.com/mcp/",
                "https://mcp.example.com/mcp/",
            ),
        ] {
            assert_eq!(canonical_uri(&url(server)), expected);
        }
    }
}
