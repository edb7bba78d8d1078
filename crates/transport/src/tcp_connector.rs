//! TCP connectors to servers.
//!
//! Owns the options of their sockets. Does not know proxies or TLS. Invariant: a peer that vanished is detected even on
//! a silent connection.

use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;

/// TCP keepalive: idle time before the first probe, time between probes, and their number.
pub(super) const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 3);

/// Longest time that sent data may stay unacknowledged.
#[cfg(target_os = "linux")]
// tcp(7): the time that "transmitted data may remain unacknowledged" before the connection is closed.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns a TCP connector for any scheme. It resolves the name and tries each address.
pub(super) fn tcp_connector(connect_timeout: Duration) -> HttpConnector {
    let mut tcp = HttpConnector::new();
    // The URI may have the scheme `https`; TLS is a layer above this connector.
    tcp.enforce_http(false);
    // Requests are small and wait for their response: Nagle's algorithm would only delay them.
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE.0));
    tcp.set_keepalive_interval(Some(KEEPALIVE.1));
    tcp.set_keepalive_retries(Some(KEEPALIVE.2));
    tcp.set_connect_timeout(Some(connect_timeout));
    tcp
}

/// Returns a connector for long connections. A peer that vanished is detected within about a minute, whether data was
/// sent to it or not.
pub(super) fn keepalive_connector(connect_timeout: Duration) -> HttpConnector {
    limit_unacknowledged(tcp_connector(connect_timeout))
}

/// Limits the time of data in flight, which keepalive does not probe. Only Linux has the option.
fn limit_unacknowledged(tcp: HttpConnector) -> HttpConnector {
    #[cfg(target_os = "linux")]
    let tcp = {
        let mut tcp = tcp;
        tcp.set_tcp_user_timeout(Some(TCP_USER_TIMEOUT));
        tcp
    };
    tcp
}
