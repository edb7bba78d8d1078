//! Connections that the listeners may hold, by the config and by the limit of open files.
//!
//! Owns how the files are shared out. Does not raise the limit (`cli/serve.rs`). Invariant: clients
//! leave files for the servers, for the state, and for operators.

use moongate_config::LimitSettings;
use moongate_platform::open_files;

/// Part of all files that servers and the state may need: a quarter, but no more than
/// `RESERVED_MAX`.
const RESERVED_PART: u64 = 4;
const RESERVED_MAX: u64 = 2048;
/// Files for connections of probes, beyond the limit of operators' connections.
const PROBES: u64 = 16;
/// Part of all files that operators' connections may take: an eighth.
const OPERATORS_PART: u64 = 8;
/// Fewest connections of clients, whatever the limit is.
const CLIENTS_MIN: u64 = 8;

/// Most connections of the listeners.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ConnectionSlots {
    pub(super) clients: usize,
    pub(super) operators: usize,
}

impl ConnectionSlots {
    /// Returns the configured limits, or as much as the open files allow.
    pub(super) fn within_open_files(limits: &LimitSettings) -> Self {
        let configured = ConnectionSlots {
            clients: limits.connections,
            operators: limits.admin_connections,
        };
        let Some(files) = open_files::limit() else {
            return configured;
        };
        let places = configured.within(files, open_files::open());
        if places.clients < limits.connections {
            let places = places.clients;
            let limit = limits.connections;
            tracing::info!(
                "connections limited to {places} of {limit}: {files} files may be open (ulimit -n)"
            );
        }
        places
    }

    /// Returns what is left of `files`, of which `open` are open before the first connection.
    fn within(&self, files: u64, open: u64) -> Self {
        let operators = lower_limit(self.operators, (files / OPERATORS_PART).max(1));
        let reserved = (files / RESERVED_PART).min(RESERVED_MAX);
        let taken = open + reserved + PROBES + u64::try_from(operators).unwrap_or(u64::MAX);
        ConnectionSlots {
            clients: lower_limit(self.clients, files.saturating_sub(taken).max(CLIENTS_MIN)),
            operators,
        }
    }
}

fn lower_limit(configured: usize, files: u64) -> usize {
    configured.min(usize::try_from(files).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_files_for_all_others() {
        let default = ConnectionSlots {
            clients: 16_384,
            operators: 256,
        };
        for (files, open, clients, operators) in [
            (65_536, 30, 16_384, 256),
            (20_000, 30, 16_384, 256),
            (4096, 30, 2770, 256),
            (1024, 30, 594, 128),
            (256, 30, 114, 32),
            (64, 30, 8, 8),
            (32, 30, 8, 4),
        ] {
            assert_eq!(
                default.within(files, open),
                ConnectionSlots { clients, operators },
                "{files}"
            );
        }
        let small = ConnectionSlots {
            clients: 3,
            operators: 1,
        };
        assert_eq!(small.within(256, 30), small);
    }
}
