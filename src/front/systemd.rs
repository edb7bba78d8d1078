//! Sockets that the service manager opened before us, and keeps when we are gone.
//!
//! Owns who gets which of them (sd_listen_fds(3): `LISTEN_FDS`, `LISTEN_PID`, `LISTEN_FDNAMES`). Invariant: each has one
//! owner here.

use std::io;

use listenfd::ListenFd;
use tokio::net::{TcpListener, UnixListener};

use crate::front::socket::ListenSocket;

/// The sockets that nobody took yet, by name.
#[derive(Default)]
pub struct InheritedSockets(Vec<(String, ListenSocket)>);

impl InheritedSockets {
    /// Takes over what there is. Must be called on the runtime.
    pub fn from_env() -> io::Result<Self> {
        let mut passed = ListenFd::from_env();
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut sockets = Vec::new();
        for index in 0..passed.len() {
            let name = names.next().unwrap_or_default().to_owned();
            let socket = match passed.take_tcp_listener(index) {
                Ok(tcp) => tcp.map(|tcp| {
                    tcp.set_nonblocking(true).and_then(|()| TcpListener::from_std(tcp)).map(ListenSocket::Tcp)
                }),
                // Its file is the service manager's.
                Err(_) => passed.take_unix_listener(index)?.map(|unix| {
                    let unix = unix.set_nonblocking(true).and_then(|()| UnixListener::from_std(unix));
                    unix.map(|unix| ListenSocket::Unix(unix, None))
                }),
            };
            if let Some(socket) = socket {
                sockets.push((name, socket?));
            }
        }
        Ok(InheritedSockets(sockets))
    }

    /// Takes the sockets of a name, or all that are left.
    pub(super) fn take(&mut self, name: Option<&str>) -> Vec<ListenSocket> {
        let (taken, left) = std::mem::take(&mut self.0).into_iter().partition(|(own, _)| name.is_none_or(|n| n == own));
        self.0 = left;
        let taken: Vec<(String, ListenSocket)> = taken;
        taken.into_iter().map(|(_, socket)| socket).collect()
    }

    /// How many nobody took.
    pub fn remaining(&self) -> usize {
        self.0.len()
    }
}
