//! What users of MCP gateways complain about, one test for each complaint, numbered as in the research behind this
//! project (`users_NN_...`): each holds the gateway to not giving them the same reason.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "users/access.rs"]
mod access;
#[path = "users/askers.rs"]
mod askers;
#[path = "users/children.rs"]
mod children;
#[path = "users/connection.rs"]
mod connection;
#[path = "users/findings.rs"]
mod findings;
#[path = "users/input.rs"]
mod input;
#[path = "users/lists.rs"]
mod lists;
#[path = "users/lookalikes.rs"]
mod lookalikes;
#[path = "users/names.rs"]
mod names;
#[path = "users/own.rs"]
mod own;
#[path = "users/pages.rs"]
mod pages;
#[path = "users/restarts.rs"]
mod restarts;
#[path = "users/proxies.rs"]
mod proxies;
#[path = "users/resume.rs"]
mod resume;
#[path = "users/sessions.rs"]
mod sessions;
#[path = "users/sse.rs"]
mod sse;
#[allow(dead_code, unused_imports, reason = "each test crate uses a part of it")]
mod support;
#[path = "users/subscribing.rs"]
mod subscribing;
#[path = "users/tls.rs"]
mod tls;
#[path = "users/transit.rs"]
mod transit;
#[path = "users/watching.rs"]
mod watching;
#[path = "users/uris.rs"]
mod uris;
