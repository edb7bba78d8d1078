//! Settings that the operating system must support.
//!
//! Owns the errors about what it lacks. Does not use its calls (`moongate_platform`). Invariant: a
//! setting that cannot work on this system is an error that names its key, and never ignored.

use super::resolver::PlanResolver;
use crate::gateway_keys::Gateway;
use crate::problem::ProblemKind;
use crate::tree::{ConfigPath, SourceSpan};

impl PlanResolver<'_> {
    /// Reports Unix sockets where there are none. Returns true if there are.
    pub(super) fn has_unix_sockets(&mut self, path: &ConfigPath, fix: &str) -> bool {
        self.is_available(self.platform.unix_sockets, path, "Unix sockets are", fix)
    }

    /// Reports sockets of the service manager where there are none. Returns true if there are.
    pub(super) fn has_socket_activation(&mut self, path: &ConfigPath) -> bool {
        self.is_available(
            self.platform.socket_activation,
            path,
            "systemd sockets are",
            "use an address",
        )
    }

    /// Reports settings of the gateway that were switched on and that this system lacks.
    pub(super) fn check_system(&mut self, gateway: &Gateway) {
        let path = ConfigPath::of(&["gateway", "reuse_port"]);
        if gateway.reuse_port {
            self.is_available(
                self.platform.reuse_port,
                &path,
                "shared ports are",
                "remove it",
            );
        }
        let path = ConfigPath::of(&["gateway", "reload", "signal"]);
        // It is on by default, so only one that somebody wrote is refused. The tree has the
        // defaults, too.
        let is_default = self
            .tree
            .at(&path)
            .is_none_or(|node| node.span == SourceSpan::BUILT_IN);
        if gateway.reload.signal && !is_default {
            let fix = "remove it; changed files are noticed (`gateway.reload.watch`), and the \
                       admin listener reloads";
            self.is_available(self.platform.reload_signal, &path, "SIGHUP is", fix);
        }
    }

    /// Reports a limit of memory where the use of memory is not known.
    pub(super) fn check_memory_limit(&mut self, path: &ConfigPath) {
        self.is_available(
            self.platform.memory_usage,
            path,
            "memory limits are",
            "remove it",
        );
    }

    fn is_available(&mut self, has: bool, path: &ConfigPath, what: &str, fix: &str) -> bool {
        if !has {
            let message = format!("`{path}`: {what} not available on {}", self.platform.name);
            self.error(ProblemKind::Value, path, message, fix);
        }
        has
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use moongate_platform::Platform;

    use crate::{LoadOptions, LoadedConfig, gateway_addresses, load};

    fn loads(text: &str, platform: Platform) -> Result<LoadedConfig, String> {
        let dir = tempfile::tempdir().unwrap();
        let path: PathBuf = dir.path().join("moongate.toml");
        std::fs::write(&path, text).unwrap();
        let options = LoadOptions {
            paths: vec![path],
            platform,
            ..LoadOptions::default()
        };
        load(&options).map_err(|problems| problems.to_string())
    }

    #[track_caller]
    fn is_refused(text: &str, message: &str) {
        let refused = loads(text, Platform::WINDOWS).err().unwrap();
        assert!(refused.contains(message), "{refused}");
        assert_eq!(refused.matches("error:").count(), 1, "{refused}");
        loads(text, Platform::LINUX).unwrap();
    }

    #[test]
    fn what_the_system_lacks_is_one_error_that_names_the_key() {
        let unix = "Unix sockets are not available on Windows";
        is_refused(
            "[gateway]\nlisten = \"unix:/run/m.sock\"\n",
            &format!("`gateway.listen`: {unix}"),
        );
        let second = "[gateway]\nlisten = [\"127.0.0.1:0\", \"unix:/run/m.sock\"]\n";
        is_refused(second, &format!("`gateway.listen[1]`: {unix}"));
        is_refused(
            "[gateway]\nadmin = \"unix:/run/a.sock\"\n",
            &format!("`gateway.admin`: {unix}"),
        );
        is_refused(
            "[servers.notes]\nunix = \"/run/n.sock\"\n",
            &format!("`servers.notes.unix`: {unix}"),
        );
        let systemd = "systemd sockets are not available on Windows";
        is_refused(
            "[gateway]\nlisten = \"systemd\"\n",
            &format!("`gateway.listen`: {systemd}"),
        );
        is_refused("[gateway]\nlisten = \"systemd:mcp\"\n", systemd);
        is_refused(
            "[gateway]\nreuse_port = true\n",
            "`gateway.reuse_port`: shared ports are not available on Windows",
        );
        is_refused(
            "[gateway.reload]\nsignal = true\n",
            "`gateway.reload.signal`: SIGHUP is not available on Windows",
        );
    }

    #[test]
    fn a_limit_of_memory_needs_linux() {
        let text = "[limits]\nmemory = \"1GiB\"\n";
        for (platform, name) in [(Platform::MACOS, "macOS"), (Platform::WINDOWS, "Windows")] {
            let refused = loads(text, platform).err().unwrap();
            let message = format!("`limits.memory`: memory limits are not available on {name}");
            assert!(refused.contains(&message), "{refused}");
            loads("[limits]\nmemory = \"0\"\n", platform).unwrap();
        }
        loads(text, Platform::LINUX).unwrap();
    }

    #[test]
    fn the_error_says_what_to_write_instead() {
        for (text, fix) in [
            (
                "[gateway]\nlisten = \"unix:/run/m.sock\"\n",
                "use an address",
            ),
            (
                "[servers.notes]\nunix = \"/run/n.sock\"\n",
                "use `tcp` or `url`",
            ),
        ] {
            let refused = loads(text, Platform::WINDOWS).err().unwrap();
            assert!(refused.contains(fix), "{refused}");
        }
    }

    #[test]
    fn a_config_without_such_settings_works_everywhere() {
        let text = "[gateway]\nlisten = \"127.0.0.1:8080\"\n[gateway.reload]\nsignal = false\n";
        loads(text, Platform::WINDOWS).unwrap();
        loads("", Platform::WINDOWS).unwrap();
    }

    #[test]
    fn commands_that_look_for_the_gateway_get_the_error_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("moongate.toml");
        std::fs::write(&path, "[gateway]\nadmin = \"unix:/run/a.sock\"\n").unwrap();
        let options = LoadOptions::of_files(vec![path], [].into());
        assert!(
            gateway_addresses(&LoadOptions {
                platform: Platform::LINUX,
                ..options.clone()
            })
            .is_ok()
        );
        let refused = gateway_addresses(&LoadOptions {
            platform: Platform::WINDOWS,
            ..options
        })
        .err()
        .unwrap();
        assert!(
            refused.to_string().contains("not available on Windows"),
            "{refused}"
        );
    }
}
