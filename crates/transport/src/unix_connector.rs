//! Connections to Unix sockets.
//!
//! Owns connecting and the reasons of its failures. Does not read or write. Invariant: every
//! attempt ends within its limit.

use std::io;
use std::path::Path;
use std::time::Duration;

use moongate_platform::unix_socket::UnixStream;
use tokio::time::timeout;

use crate::LinkError;

/// Connects to the Unix socket at this path.
pub(super) async fn connect_unix(path: &Path, limit: Duration) -> Result<UnixStream, LinkError> {
    let connecting = timeout(limit, UnixStream::connect(path))
        .await
        .map_err(|_| connect_timed_out(limit))?;
    connecting.map_err(|e| unix_connect_error(path, &e))
}

/// Returns the error of an attempt that took longer than `limit`.
pub(super) fn connect_timed_out(limit: Duration) -> LinkError {
    LinkError::Unreachable(format!(
        "cannot connect: the connection was not accepted within {limit:?}"
    ))
}

/// Explains why a Unix socket cannot be connected to. Every reason may pass: the server may be
/// about to create its socket, or to change its permissions.
pub(super) fn unix_connect_error(path: &Path, error: &io::Error) -> LinkError {
    // A missing path, a refusal and a full queue need different remedies.
    let path = path.display();
    LinkError::Unreachable(match error.kind() {
        io::ErrorKind::NotFound => {
            format!("cannot connect: there is no socket at {path}; is the server running?")
        }
        io::ErrorKind::PermissionDenied => {
            format!(
                "cannot connect: the gateway's user may not open {path}; it needs write permission \
                 on the socket, and search permission on each directory above it"
            )
        }
        io::ErrorKind::ConnectionRefused => {
            format!(
                "cannot connect: nothing listens at {path}; it is not a socket, or its server \
                 has ended"
            )
        }
        io::ErrorKind::WouldBlock => {
            format!("cannot connect: too many connections are waiting to be accepted at {path}")
        }
        _ => format!("cannot connect to {path}: {error}"),
    })
}
