//! Unix sockets where there are some.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
pub use tokio::net::{UnixListener, UnixStream};

use crate::tcp_socket::PEEK;

/// File of our own Unix socket. Removed when this is dropped.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode of the file. Another process may own its name by now.
    file: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// Listens at a path, whose file gets this mode. Must be called on the runtime.
pub async fn listen(path: &Path, mode: u32) -> io::Result<(UnixListener, SocketFile)> {
    make_way(path).await?;
    // Set before binding: between bind and chmod anybody could connect. The umask is the whole
    // process's. A file that another thread creates meanwhile gets at most too strict a mode.
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path);
    rustix::process::umask(before);
    let unix = bound?;
    let file = SocketFile {
        path: path.to_owned(),
        file: identity(path)?,
    };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    Ok((unix, file))
}

/// Returns the path of a socket.
pub fn local_path(listener: &UnixListener) -> Option<PathBuf> {
    Some(listener.local_addr().ok()?.as_pathname()?.to_owned())
}

/// Closes a socket. Returns connections that were not accepted yet, which closing would reset.
pub fn close(listener: UnixListener, file: Option<SocketFile>) -> Vec<UnixStream> {
    // The name goes first, so that no further client enters the queue.
    drop(file);
    let mut waiting = Vec::new();
    let Ok(unix) = listener.into_std() else {
        return waiting;
    };
    while let Ok((stream, _)) = unix.accept() {
        waiting.extend(
            stream
                .set_nonblocking(true)
                .and_then(|()| UnixStream::from_std(stream)),
        );
    }
    waiting
}

/// Asks the kernel, and not the runtime, whether a connection is open and has no data. Consumes
/// nothing.
pub fn peek_is_idle(stream: &UnixStream) -> bool {
    matches!(
        rustix::net::recv(stream, &mut [0; 1][..], PEEK),
        Err(rustix::io::Errno::WOULDBLOCK)
    )
}

/// Removes a socket file that an ended process left. Fails if another process listens, or if it
/// isn't a socket.
async fn make_way(path: &Path) -> io::Result<()> {
    let there = match std::fs::symlink_metadata(path) {
        Ok(there) => there,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    if !there.file_type().is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "there is a file that is not a socket",
        ));
    }
    match UnixStream::connect(path).await {
        Ok(_) => Err(address_in_use()),
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
            tracing::info!("socket of an ended process replaced: {}", path.display());
            std::fs::remove_file(path)
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        // The accept queue is full, so another process listens.
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(address_in_use()),
        Err(e) => Err(e),
    }
}

fn address_in_use() -> io::Error {
    io::Error::new(io::ErrorKind::AddrInUse, "another process listens there")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode_of(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[tokio::test]
    async fn a_living_socket_is_left_alone_and_a_dead_one_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let first = listen(&path, 0o600).await.unwrap();
        assert_eq!(mode_of(&path), 0o600);
        let refused = listen(&path, 0o600).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        drop(first);
        assert!(!path.exists(), "it goes with its owner");
        // As after a kill -9: the file stays without a listener.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let second = listen(&path, 0o660).await.unwrap();
        assert_eq!(mode_of(&path), 0o660);
        // The name belongs to another file by now.
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        drop(second);
        assert!(path.exists());
        let refused = listen(&path, 0o600).await.unwrap_err();
        assert!(refused.to_string().contains("not a socket"), "{refused}");
    }
}
