//! Headers of a client's request that the config names to be forwarded to servers.
//!
//! Owns their collection from the request, and their form for the link. Does not know which server
//! needs which. Invariant: only headers that the config names are forwarded, and never the client's
//! key for this gateway.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::dialect::DownstreamState;
use moongate_jsonrpc::json::ByteString;
use moongate_model::Caller;
use moongate_transport::HeaderList;

/// Collects the client's headers that the config of some server names.
// 2026-07-28/basic/authorization/security-considerations.mdx: "The MCP server **MUST NOT** pass
// through the token it received from the MCP client."
pub(crate) fn collect_headers(
    headers: &HeaderMap,
    state: &DownstreamState,
) -> Vec<(ByteString, ByteString)> {
    if state.forwarded_headers.is_empty() {
        return Vec::new();
    }
    let key = state.sent_key.and_then(|sent_key| sent_key(headers));
    headers_without_key(headers, &state.forwarded_headers, key)
}

/// Collects the headers of these names. `key` is the client's key for this gateway.
fn headers_without_key(
    headers: &HeaderMap,
    names: &[HeaderName],
    key: Option<&str>,
) -> Vec<(ByteString, ByteString)> {
    names
        .iter()
        .filter_map(|name| {
            let value = headers.get(name)?.to_str().ok()?;
            // Any header may hold the key, such as a second one that the client adds for another
            // kind of gateway.
            if key.is_some_and(|key| value.contains(key)) {
                return None;
            }
            Some((ByteString::from(name.as_str()), ByteString::from(value)))
        })
        .collect()
}

/// Returns the client's headers to forward to the server, under the names from the config.
pub(super) fn header_list(caller: &Caller) -> HeaderList {
    caller
        .forwarded_headers
        .iter()
        .filter_map(|(name, value)| {
            Some((
                HeaderName::from_bytes(name.as_bytes()).ok()?,
                HeaderValue::from_str(value).ok()?,
            ))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use moongate_access::auth::sent_key;

    use super::*;

    /// Returns the names of the headers that are forwarded from a request.
    fn forwarded(sent: &[(&'static str, &str)]) -> Vec<String> {
        let headers: HeaderMap = sent
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
            .collect();
        let names =
            ["authorization", "x-api-key", "x-copy", "x-tenant"].map(HeaderName::from_static);
        let kept = headers_without_key(&headers, &names, sent_key(&headers));
        kept.into_iter().map(|(name, _)| name.to_string()).collect()
    }

    #[test]
    fn the_key_of_the_client_is_in_no_forwarded_header() {
        let tenant = ("x-tenant", "t");
        assert_eq!(
            forwarded(&[("authorization", "Bearer mg_a"), tenant]),
            ["x-tenant"]
        );
        assert_eq!(
            forwarded(&[
                ("authorization", "bearer  mg_a "),
                ("x-copy", "k=mg_a"),
                tenant
            ]),
            ["x-tenant"]
        );
        assert_eq!(
            forwarded(&[("x-api-key", "mg_a"), ("x-copy", "Bearer mg_a"), tenant]),
            ["x-tenant"]
        );
        // A second header with a credential of the server is not ours.
        let both = [
            ("authorization", "Bearer mg_a"),
            ("x-api-key", "of-the-server"),
        ];
        assert_eq!(forwarded(&both), ["x-api-key"]);
        assert_eq!(
            forwarded(&[("x-copy", "c"), tenant]),
            ["x-copy", "x-tenant"]
        );
    }
}
