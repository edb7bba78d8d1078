//! Recognition of hosts that are the machine itself.
//!
//! Owns the reading of one host name. Does not resolve names. Invariant: the answer depends on the
//! text alone.

use std::net::IpAddr;

/// True if the host of a URL is the machine itself.
pub(super) fn is_loopback(host: &str) -> bool {
    let address = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<IpAddr>();
    match address {
        Ok(address) => address.to_canonical().is_loopback(),
        // RFC 6761, section 6.3: names that end in `.localhost` are loopback, too.
        Err(_) => host.to_ascii_lowercase().rsplit('.').next() == Some("localhost"),
    }
}
