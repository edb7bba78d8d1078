//! Abilities of operating systems that settings depend on.
//!
//! Owns their list. Does not use them. Invariant: a setting that is refused on one system names it
//! in its error.

/// Abilities of an operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Platform {
    /// Name of the system in messages.
    pub name: &'static str,
    /// Unix sockets, to listen on and to connect to.
    pub unix_sockets: bool,
    /// Sockets that a service manager opened (sd_listen_fds(3)).
    pub socket_activation: bool,
    /// Several processes that listen on one address (`SO_REUSEPORT`).
    pub reuse_port: bool,
    /// SIGHUP, which asks for a reload.
    pub reload_signal: bool,
    /// Resident memory of this process (`/proc/self/status`).
    pub memory_usage: bool,
    /// Folders of the user's settings and state are named by `APPDATA` and `LOCALAPPDATA`.
    pub app_data_folders: bool,
    /// The kernel ends all children with this process, however it ends.
    pub ends_children: bool,
}

impl Platform {
    /// Linux.
    pub const LINUX: Platform = Platform {
        name: "Linux",
        unix_sockets: true,
        socket_activation: true,
        reuse_port: true,
        reload_signal: true,
        memory_usage: true,
        app_data_folders: false,
        ends_children: false,
    };
    /// macOS, and every other Unix.
    pub const MACOS: Platform = Platform {
        name: "macOS",
        memory_usage: false,
        ..Platform::LINUX
    };
    /// Windows.
    pub const WINDOWS: Platform = Platform {
        name: "Windows",
        unix_sockets: false,
        socket_activation: false,
        reuse_port: false,
        reload_signal: false,
        memory_usage: false,
        app_data_folders: true,
        ends_children: true,
    };
    /// The system that this program was compiled for.
    pub const CURRENT: Platform = if cfg!(windows) {
        Platform::WINDOWS
    } else if cfg!(target_os = "linux") {
        Platform::LINUX
    } else {
        Platform::MACOS
    };
}

impl Default for Platform {
    fn default() -> Self {
        Platform::CURRENT
    }
}
