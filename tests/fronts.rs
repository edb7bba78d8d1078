//! The ways in beside plain HTTP on TCP: a pipe, lines on TCP, a Unix socket, TLS, HTTP/2, a socket that another process
//! opened.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "fronts/bounds.rs"]
mod bounds;
#[path = "fronts/h2.rs"]
mod h2;
#[path = "fronts/own.rs"]
mod own;
#[path = "fronts/pipe.rs"]
mod pipe;
#[path = "fronts/short.rs"]
mod short;
#[path = "fronts/stdio.rs"]
mod stdio;
#[allow(dead_code, unused_imports, reason = "each test crate uses a part of it")]
mod support;
#[path = "fronts/takeover.rs"]
mod takeover;
#[path = "fronts/tcp.rs"]
mod tcp;
#[path = "fronts/tls.rs"]
mod tls;
#[path = "fronts/unix.rs"]
mod unix;
