//! Gateways and mock servers that the behaviour tests share. Clients and bounded waits come from
//! `moongate-testing`.
//!
//! Everything listens on loopback and on ports that the system picks. A wait that does not end
//! within [`LONG`] fails its test: the bound is there against hangs, and measures nothing.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

mod edited;
mod gateway;
mod process;
pub(crate) mod program;
pub(crate) mod proxy;
pub(crate) mod relay;
mod scripts;
pub(crate) mod tls;
pub(crate) mod user_home;

pub(crate) use edited::{EditedGateway, JSON};
pub(crate) use gateway::{Gateway, Setup};
pub(crate) use moongate_testing::messages::{modern_meta, request as body_of};
pub(crate) use moongate_testing::wait::{LONG, holds, until, within};
pub(crate) use moongate_testing::{ERAS, Era, EventStream, HttpClient, HttpReply, McpClient};
pub(crate) use process::{Process, alive, marked};
pub(crate) use scripts::{legacy, loopback, mock_at, modern, only, record_of, serve, tool};

/// What a page of the status says of a server.
pub(crate) fn server_of(status: &serde_json::Value, server: &str) -> serde_json::Value {
    let found = status["servers"]
        .as_array()
        .unwrap()
        .iter()
        .find(|s| s["name"] == server);
    found
        .unwrap_or_else(|| panic!("{server} is not in {status}"))
        .clone()
}

/// A port that is free, and not one that the system hands to connections meanwhile.
pub(crate) fn lasting_port() -> u16 {
    // Tests that run at the same time are processes with numbers close to each other: each has its
    // own ports to choose from.
    let first = 20_000 + u16::try_from(std::process::id() % 48).unwrap() * 256;
    // Another process may have the same ones: each begins somewhere else.
    static SKIP: LazyLock<u16> = LazyLock::new(|| {
        (std::time::SystemTime::UNIX_EPOCH
            .elapsed()
            .unwrap()
            .subsec_micros()
            % 256) as u16
    });
    // A port that was given and is not bound yet is not given again.
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    let own = (0..256).map(|_| first + (*SKIP + GIVEN.fetch_add(1, Ordering::Relaxed) % 256) % 256);
    let mut ports = own.chain(20_000..32_288);
    ports
        .find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("some port is free")
}
