//! Unix sockets: types, listening, and the file of a socket.
//!
//! Owns making, protecting and removing that file. Does not serve connections. Invariant: the file
//! of a socket that another process listens on is never removed. The file of ours is removed with
//! its socket.

#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as system;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as system;

pub use system::{SocketFile, UnixListener, UnixStream, close, listen, local_path, peek_is_idle};
