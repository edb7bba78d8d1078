//! Everything that differs between Linux, macOS and Windows.
//!
//! Owns the calls of the operating system that only some have, one module for each concern. Does
//! not know MCP, HTTP or the config. Invariant: each module offers the same functions everywhere,
//! so that no other crate asks for the system.

pub mod browser;
mod capabilities;
pub mod child_process;
pub mod file_replacement;
pub mod open_files;
pub mod foreign_file;
pub mod port_owner;
pub mod private_file;
pub mod resident_memory;
pub mod service_manager;
pub mod signals;
pub mod tcp_socket;
pub mod unix_socket;

pub use capabilities::Platform;
