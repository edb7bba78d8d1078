//! Service manager that started this process, such as systemd.
//!
//! Owns what is reported to it, and the sockets that it passes on. Does not serve them. Source:
//! sd_notify(3), sd_listen_fds(3). Invariant: without a service manager nothing is reported, and
//! there are no sockets.

use std::io;

use listenfd::ListenFd;
use tokio::net::TcpListener;

use crate::unix_socket::UnixListener;

/// Listening socket that the service manager opened.
pub enum InheritedSocket {
    /// TCP socket.
    Tcp(TcpListener),
    /// Unix socket.
    Unix(UnixListener),
}

/// Takes over the sockets of the environment, in their order. Must be called on the runtime.
pub fn take_inherited_sockets() -> io::Result<Vec<Option<InheritedSocket>>> {
    let mut passed = ListenFd::from_env();
    (0..passed.len())
        .map(|index| take(&mut passed, index))
        .collect()
}

fn take(passed: &mut ListenFd, index: usize) -> io::Result<Option<InheritedSocket>> {
    let Ok(tcp) = passed.take_tcp_listener(index) else {
        return take_unix(passed, index);
    };
    let Some(tcp) = tcp else {
        return Ok(None);
    };
    tcp.set_nonblocking(true)?;
    TcpListener::from_std(tcp).map(|tcp| Some(InheritedSocket::Tcp(tcp)))
}

#[cfg(unix)]
fn take_unix(passed: &mut ListenFd, index: usize) -> io::Result<Option<InheritedSocket>> {
    let Some(unix) = passed.take_unix_listener(index)? else {
        return Ok(None);
    };
    unix.set_nonblocking(true)?;
    UnixListener::from_std(unix).map(|unix| Some(InheritedSocket::Unix(unix)))
}

#[cfg(windows)]
fn take_unix(_: &mut ListenFd, _: usize) -> io::Result<Option<InheritedSocket>> {
    Ok(None)
}

/// Tells the service manager that all listeners are bound.
pub fn notify_ready() {
    // Does nothing unless the service manager set NOTIFY_SOCKET.
    #[cfg(unix)]
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
}

/// Tells the service manager that this process is about to end.
pub fn notify_stopping() {
    #[cfg(unix)]
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
}
