//! Sockets that the service manager opened, and keeps after this process. Owns their assignment to
//! listeners.
//!
//! Does not accept connections. Source: sd_listen_fds(3), `LISTEN_FDS`, `LISTEN_PID`,
//! `LISTEN_FDNAMES`. Invariant: each socket has one owner here.

use std::io;

use moongate_platform::service_manager::{self, InheritedSocket};

use crate::socket::ListenSocket;

/// Inherited sockets that no listener has taken yet, by name.
#[derive(Default)]
pub struct InheritedSockets(Vec<(String, ListenSocket)>);

impl InheritedSockets {
    /// Takes over the sockets of the environment. Must be called on the runtime.
    pub fn from_env() -> io::Result<Self> {
        // sd_listen_fds(3): the names are separated by colons, in the order of the descriptors.
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut sockets = Vec::new();
        for socket in service_manager::take_inherited_sockets()? {
            let name = names.next().unwrap_or_default().to_owned();
            let socket = match socket {
                Some(InheritedSocket::Tcp(tcp)) => ListenSocket::Tcp(tcp),
                // No socket file to remove: it belongs to the service manager.
                Some(InheritedSocket::Unix(unix)) => ListenSocket::Unix(unix, None),
                None => continue,
            };
            sockets.push((name, socket));
        }
        Ok(InheritedSockets(sockets))
    }

    /// Takes the sockets of a name, or all that remain.
    pub(super) fn take(&mut self, name: Option<&str>) -> Vec<ListenSocket> {
        let (taken, left) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|(socket_name, _)| name.is_none_or(|n| n == socket_name));
        self.0 = left;
        let taken: Vec<(String, ListenSocket)> = taken;
        taken.into_iter().map(|(_, socket)| socket).collect()
    }

    /// Returns the number of sockets that no listener took.
    pub fn remaining(&self) -> usize {
        self.0.len()
    }
}
