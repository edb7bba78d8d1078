//! What protocol tests stand on: a client that speaks each revision literally, and a gateway between it and mocks.

pub(crate) mod answer;
pub(crate) mod client;
pub(crate) mod rig;
pub(crate) mod sse;
pub(crate) mod tap;

use std::time::Duration;

pub(crate) use answer::{Answer, Message, Stream};
pub(crate) use client::Client;

/// Whatever takes longer hangs.
pub(crate) const GUARD: Duration = Duration::from_secs(20);

/// Waits until `condition` holds.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let polled = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(GUARD, polled).await.is_ok(), "{what}: still not so after {GUARD:?}");
}
