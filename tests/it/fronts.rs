//! The ways in beside plain HTTP on TCP: a pipe, lines on TCP, a Unix socket, TLS, HTTP/2, a socket
//! that another process opened.

mod bounds;
mod h2;
mod dedicated;
pub(crate) mod pipe;
mod fast_path;
mod stdio;
mod takeover;
mod tcp;
mod tls;
mod unix;
