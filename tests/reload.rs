//! A config that changes under a running gateway, and servers that are restarted: what stays is not touched, what is
//! new is there, what is gone is gone, and nothing is half done.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

#[path = "reload/apply.rs"]
mod apply;
#[path = "reload/files.rs"]
mod files;
#[path = "reload/outlive.rs"]
mod outlive;
#[path = "reload/restart.rs"]
mod restart;
#[path = "reload/same.rs"]
mod same;
#[path = "reload/subscribed.rs"]
mod subscribed;
#[path = "reload/tls.rs"]
mod tls;
#[allow(dead_code, unused_imports, reason = "each test crate uses a part of it")]
mod support;
