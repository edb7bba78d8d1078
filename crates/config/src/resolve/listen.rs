//! Listeners of the gateway: addresses, Unix sockets, sockets of the service manager, and TLS. Owns
//! their written form and the conflicts between them. Does not open a socket (`listener`).
//! Invariant: a TCP address that other machines can reach needs keys.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::resolver::PlanResolver;
use crate::choices::{AddressOrSwitch, OneOrMore};
use crate::gateway_keys::Gateway;
use crate::keys::Auth;
use crate::problem::ProblemKind;
use crate::tree::ConfigPath;
use moongate_listener::{INHERITED, ListenAddress, SocketSettings, TCP_LINES, TlsSettings, UNIX};

/// Limit of the path of a Unix socket in bytes. On Linux the address has 108 with a zero at the
/// end.
const SOCKET_PATH_MAX: usize = 107;

/// Parses an address and a port. `localhost` means the loopback address of IPv4.
fn numeric(text: &str) -> Result<SocketAddr, std::net::AddrParseError> {
    match text.strip_prefix("localhost:") {
        // Not resolved: a name may have several addresses, and a check of the config must not need
        // DNS.
        Some(port) => format!("127.0.0.1:{port}").parse(),
        None => text.parse(),
    }
}

impl PlanResolver<'_> {
    fn address(&mut self, path: &ConfigPath, text: &str) -> Option<ListenAddress> {
        if let Some(file) = text.strip_prefix(UNIX) {
            return self
                .has_unix_sockets(path, "use an address")
                .then(|| self.socket_path(path, file))
                .flatten();
        }
        let inherited = match text.strip_prefix(INHERITED) {
            Some("") => Some(ListenAddress::Inherited(None)),
            Some(rest) => rest
                .strip_prefix(':')
                .map(|name| ListenAddress::Inherited(Some(name.to_owned()))),
            None => None,
        };
        if inherited.is_some() {
            return inherited.filter(|_| self.has_socket_activation(path));
        }
        if let Some(lines) = text.strip_prefix(TCP_LINES) {
            return self.lines(path, lines);
        }
        numeric(text)
            .map_err(|_| {
                let message = format!("`{path}`: {} is not an address to \
                                       listen on", self.quoted_value(path));
                let fix =
                    "write an IP address and a port, such as \"127.0.0.1:8080\" or \"[::1]:8080\", \
                     or \"unix:/PATH\"";
                self.error(ProblemKind::Value, path, message, fix);
            })
            .ok()
            .map(ListenAddress::Tcp)
    }

    /// Parses an address for clients that write one message a line. A message cannot carry a key,
    /// so only loopback is allowed.
    fn lines(&mut self, path: &ConfigPath, text: &str) -> Option<ListenAddress> {
        let fix = "write a loopback address and a port, such as \"tcp:127.0.0.1:9100\"";
        let Ok(address) = numeric(text) else {
            self.error(
                ProblemKind::Value,
                path,
                format!(
                    "`{path}`: {} is not an address to listen on",
                    self.quoted_value(path)
                ),
                fix,
            );
            return None;
        };
        // Canonical, because `::ffff:127.0.0.1` is loopback, too.
        if !address.ip().to_canonical().is_loopback() {
            let message = format!(
                "{TCP_LINES}{address} could be reached from other machines, and does not check \
                 keys"
            );
            self.error(ProblemKind::Conflict, path, message, fix);
            return None;
        }
        Some(ListenAddress::TcpLines(address))
    }

    fn socket_path(&mut self, path: &ConfigPath, file: &str) -> Option<ListenAddress> {
        let wrong = match file.len() {
            0 => "does not name a file",
            long if long > SOCKET_PATH_MAX => "is too long for a Unix socket (107 bytes)",
            _ => return Some(ListenAddress::Unix(PathBuf::from(file))),
        };
        let message = format!("`{path}`: {} {wrong}", self.quoted_value(path));
        self.error(
            ProblemKind::Value,
            path,
            message,
            "write a short path, such as \"unix:/run/moongate.sock\"",
        );
        None
    }

    /// Returns the valid addresses of `listen`, each with the path where it is written.
    pub(crate) fn addresses(&mut self, listen: &OneOrMore) -> Vec<(ConfigPath, ListenAddress)> {
        let path = ConfigPath::of(&["gateway", "listen"]);
        let texts: Vec<(ConfigPath, &String)> = match listen {
            OneOrMore::One(text) => vec![(path, text)],
            OneOrMore::More(texts) => texts
                .iter()
                .enumerate()
                .map(|(i, text)| (path.item(i), text))
                .collect(),
        };
        texts
            .into_iter()
            .filter_map(|(path, text)| Some((path.clone(), self.address(&path, text)?)))
            .collect()
    }

    /// Resolves the addresses for clients. `auth` decides which of them are allowed.
    pub(super) fn listen(
        &mut self,
        listen: &OneOrMore,
        admin: Option<&ListenAddress>,
        auth: &Auth,
    ) -> Vec<ListenAddress> {
        let path = ConfigPath::of(&["gateway", "listen"]);
        if matches!(listen, OneOrMore::More(texts) if texts.is_empty()) {
            self.error(
                ProblemKind::Missing,
                &path,
                "`gateway.listen` is empty",
                "name at least one address to listen on",
            );
        }
        let mut addresses: Vec<ListenAddress> = Vec::new();
        for (path, address) in self.addresses(listen) {
            if address.is_open() && auth.is_open() {
                let message = format!(
                    "{address} can be reached from other machines, but there are no `[[auth.keys]]`"
                );
                let fix = "add a key (`moongate key new NAME` prints one), or listen on 127.0.0.1";
                self.error(ProblemKind::OpenListener, &path, message, fix);
            }
            // Without this check, lines would be a way around keys and logins.
            if !auth.is_open() && matches!(address, ListenAddress::TcpLines(_)) {
                let message = format!(
                    "clients need a key or a login, but a client on {address} cannot send one"
                );
                let fix = "remove this address, or all of `auth`; a Unix socket (\"unix:/PATH\") \
                           is open only to its owner";
                self.error(ProblemKind::Conflict, &path, message, fix);
            }
            // Port 0 lets the system pick, so two of them do not collide.
            let picked = address.socket().is_some_and(|address| address.port() == 0);
            let is_taken = addresses
                .iter()
                .chain(admin)
                .any(|other| listen_alike(other, &address));
            if !picked && is_taken {
                let message = format!("{address} is listed twice");
                self.error(
                    ProblemKind::Conflict,
                    &path,
                    message,
                    "give each listener its own address",
                );
            }
            addresses.push(address);
        }
        addresses
    }

    pub(crate) fn admin(&mut self, admin: &AddressOrSwitch) -> Option<ListenAddress> {
        let path = ConfigPath::of(&["gateway", "admin"]);
        let text = match admin {
            AddressOrSwitch::Switch(false) => return None,
            AddressOrSwitch::Address(text) if text == "off" => return None,
            AddressOrSwitch::Address(text) => text,
            AddressOrSwitch::Switch(true) => {
                let fix = "write an address, such as \"127.0.0.1:9090\"; `false` switches it off";
                self.error(
                    ProblemKind::Value,
                    &path,
                    "`gateway.admin` has no address",
                    fix,
                );
                return None;
            }
        };
        let address = self.address(&path, text)?;
        if matches!(address, ListenAddress::TcpLines(_)) {
            let fix = "write an address without \"tcp:\", such as \"127.0.0.1:9090\"";
            self.error(
                ProblemKind::Value,
                &path,
                "`gateway.admin` speaks HTTP only, not JSON-RPC lines",
                fix,
            );
            return None;
        }
        Some(address)
    }

    pub(super) fn sockets(&mut self, gateway: &Gateway) -> SocketSettings {
        // The schema checked the digits, but not those of a replaced variable.
        let mode = u32::from_str_radix(&gateway.socket_mode, 8)
            .ok()
            .filter(|mode| *mode <= 0o777);
        let path = ConfigPath::of(&["gateway", "socket_mode"]);
        if mode.is_none() {
            let message = format!("`{path}`: {} is not a file mode", self.quoted_value(&path));
            self.error(
                ProblemKind::Value,
                &path,
                message,
                "write three or four octal digits, such as \"0660\"",
            );
        }
        SocketSettings {
            reuse_port: gateway.reuse_port,
            mode: mode.unwrap_or(0o600),
        }
    }

    pub(super) fn tls(&mut self, gateway: &Gateway) -> Option<TlsSettings> {
        let tls = gateway.tls.as_ref()?;
        let path = ConfigPath::of(&["gateway", "tls"]);
        // The schema's check reported what is missing.
        let cert = tls.cert.as_ref()?;
        let key = tls.key.as_ref()?;
        let client_ca = tls.client_ca.as_ref().map(PathBuf::from);
        let settings = TlsSettings {
            cert: PathBuf::from(cert),
            key: PathBuf::from(key),
            client_ca,
        };
        // The files are read now, so that a mistake shows before the gateway starts.
        if let Err(problem) = settings.check() {
            let path = path.key(problem.setting);
            let fix =
                "name a PEM file that the gateway can read; the certificate and the key must match";
            self.error(
                ProblemKind::Value,
                &path,
                format!("`{path}`: {}", problem.message),
                fix,
            );
        }
        Some(settings)
    }
}

/// True if only one of two listeners can be bound.
fn listen_alike(one: &ListenAddress, other: &ListenAddress) -> bool {
    let socket = one.socket();
    one == other || socket.is_some() && socket == other.socket()
}

#[cfg(test)]
mod tests {
    use crate::{LoadOptions, load};

    /// Loads a config with this address and `[auth]`. Returns the errors, or whether the gateway is
    /// open.
    fn is_open(listen: &str, auth: &str) -> Result<bool, Vec<String>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("moongate.toml");
        std::fs::write(&path, format!("[gateway]\nlisten = \"{listen}\"\n{auth}")).unwrap();
        let loaded = load(&LoadOptions {
            paths: vec![path],
            ..LoadOptions::default()
        });
        loaded
            .map(|config| config.plan.auth.is_open())
            .map_err(|problems| {
                let errors = problems.errors.into_iter();
                errors.map(|error| error.message).collect()
            })
    }

    #[test]
    fn an_address_beyond_loopback_needs_a_method_to_authenticate() {
        const EVERYWHERE: &str = "0.0.0.0:8080";
        let key = "[[auth.keys]]\nname = \"me\"\nkey = \"a-long-enough-test-key\"\n";
        for nothing in ["", "[auth]\n", "[auth]\nkeys = []\n"] {
            let errors = is_open(EVERYWHERE, nothing).unwrap_err();
            assert!(
                errors.len() == 1 && errors[0].contains("can be reached from other machines"),
                "{errors:?}"
            );
            assert_eq!(is_open("127.0.0.1:8080", nothing), Ok(true));
            assert_eq!(is_open("tcp:127.0.0.1:8080", nothing), Ok(true));
        }
        assert_eq!(is_open(EVERYWHERE, key), Ok(false));
        let errors = is_open("tcp:127.0.0.1:8080", key).unwrap_err();
        assert!(
            errors.len() == 1 && errors[0].contains("cannot send one"),
            "{errors:?}"
        );
        // A key with a mistake has its own error, and no second one about the address.
        for mistake in [
            "name = \"me\"\n",
            "name = \"me\"\nhash = \"sha256:12\"\n",
            "name = 3\nkey = \"\"\n",
        ] {
            let errors = is_open(EVERYWHERE, &format!("[[auth.keys]]\n{mistake}")).unwrap_err();
            assert!(
                !errors.iter().any(|error| error.contains("other machines")),
                "{errors:?}"
            );
        }
    }
}
