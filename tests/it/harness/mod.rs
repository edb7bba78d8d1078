//! What the behaviour tests share: a gateway, clients of both eras, mock servers, bounded waits.
//!
//! Everything listens on loopback and on ports that the system picks. A wait that does not end within [`LONG`] fails
//! its test: the bound is there against hangs, and measures nothing.

mod client;
mod gateway;
mod process;
pub(crate) mod program;
pub(crate) mod proxy;
pub(crate) mod relay;
mod scripts;
mod stream;
pub(crate) mod tls;

use std::time::Duration;

pub(crate) use client::{Client, ERAS, Era, Http, Reply, body_of, modern_meta};
pub(crate) use gateway::{Gateway, Setup};
pub(crate) use process::{Process, alive, marked};
pub(crate) use scripts::{legacy, loopback, mock_at, modern, only, record_of, serve, tool};
pub(crate) use stream::Stream;

/// What a page of the status says of a server.
pub(crate) fn server_of(status: &serde_json::Value, server: &str) -> serde_json::Value {
    let found = status["servers"].as_array().unwrap().iter().find(|s| s["name"] == server);
    found.unwrap_or_else(|| panic!("{server} is not in {status}")).clone()
}

/// A port that is free, and not one that the system hands to connections meanwhile.
pub(crate) fn lasting_port() -> u16 {
    // Tests that run at the same time are processes with numbers close to each other: each has its own ports to choose from.
    let first = 20_000 + u16::try_from(std::process::id() % 48).unwrap() * 256;
    // Others of its own look for one in the same moment: begin somewhere else each time.
    let skip =
        u16::from(u8::from_ne_bytes([std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_micros() as u8]));
    let mut ports = (0..256).map(|n| first + (n + skip) % 256).chain(20_000..32_288);
    ports.find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("some port is free")
}

/// Longer than anything here takes on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// Waits for a future; fails the test if it does not end.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let Ok(value) = tokio::time::timeout(LONG, future).await else { panic!("{what}: not within {LONG:?}") };
    value
}

/// Looks again and again until there is something to see.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    within(what, async {
        loop {
            if let Some(seen) = look().await {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
}

/// Looks again and again until a condition holds.
pub(crate) async fn holds(what: &str, mut check: impl FnMut() -> bool) {
    until(what, || std::future::ready(check().then_some(()))).await;
}
