//! Headers of a client's request that the config names to be forwarded to servers.
//!
//! Owns their collection from the request, and their form for the link. Does not know which server wants which.
//! Invariant: only headers that the config names are forwarded.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::dialect::DownstreamState;
use moongate_jsonrpc::json::ByteString;
use moongate_model::Caller;
use moongate_transport::HeaderList;

/// Collects the client's headers that the config of some server names.
pub(crate) fn collect_headers(headers: &HeaderMap, state: &DownstreamState) -> Vec<(ByteString, ByteString)> {
    let value = |name: &HeaderName| Some(ByteString::from(headers.get(name)?.to_str().ok()?));
    state.forwarded_headers.iter().filter_map(|name| Some((ByteString::from(name.as_str()), value(name)?))).collect()
}

/// Returns the client's headers to forward to the server, under the names from the config.
pub(super) fn header_list(caller: &Caller) -> HeaderList {
    let header = |(name, value): &(ByteString, ByteString)| {
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_str(value).ok()?))
    };
    caller.forwarded_headers.iter().filter_map(header).collect()
}
