//! Network between the gateway and its servers: proxies and authorities.
//!
//! Owns the meaning of `proxy` and `ca`, for a server and for the defaults. Does not connect.
//! Invariant: no message quotes a proxy's credentials.

use moongate_platform::foreign_file;

use super::resolver::PlanResolver;
use crate::expand::{fix_or, reason, relative_to};
use crate::problem::ProblemKind;
use crate::server_keys::ServerOptions;
use crate::tree::ConfigPath;
use moongate_transport::proxy::{ProxyAddress, ProxyChoice};
use moongate_transport::trust::CaFile;
use moongate_upstream::NetworkSettings;

/// Largest file of authorities. The whole list of a system has a quarter of that.
const CA_BYTES_MAX: u64 = 1 << 20;

/// Value of `proxy` for no proxy, in spite of the environment.
pub(super) const NO_PROXY: &str = "none";

impl PlanResolver<'_> {
    /// Resolves the settings of a server, or of the defaults.
    pub(super) fn network(
        &mut self,
        path: &ConfigPath,
        options: &ServerOptions,
    ) -> NetworkSettings {
        let proxy = options.proxy.as_deref();
        let proxy = proxy.map(|text| self.proxy(&self.origin(path, "proxy"), text));
        let ca = options.ca.as_deref();
        let ca = ca.and_then(|text| self.ca(&self.origin(path, "ca"), text));
        NetworkSettings {
            proxy: proxy.unwrap_or_default(),
            ca,
        }
    }

    /// Returns where a server's key is written: in its entry, or in the defaults.
    fn origin(&self, path: &ConfigPath, key: &str) -> ConfigPath {
        let own = path.key(key);
        match self.is_accepted(&own) {
            true => own,
            false => ConfigPath::of(&["defaults", key]),
        }
    }

    fn proxy(&mut self, path: &ConfigPath, text: &str) -> ProxyChoice {
        if text.trim() == NO_PROXY {
            return ProxyChoice::Direct;
        }
        match ProxyAddress::parse(text, path.to_string()) {
            Ok(proxy) => ProxyChoice::Fixed(proxy),
            Err(fault) => {
                let message = format!("`{path}`: {} {fault}", self.quoted_value(path));
                let fix = "write http://HOST:PORT or http://USER:PASSWORD@HOST:PORT, and \
                           percent-encode special characters in the password (`@` is `%40`); or \
                           \"none\"";
                self.error(ProblemKind::Value, path, message, fix);
                ProxyChoice::Direct
            }
        }
    }

    fn ca(&mut self, path: &ConfigPath, text: &str) -> Option<CaFile> {
        let file = relative_to(
            text,
            self.tree
                .at(path)
                .and_then(|node| self.sources.directory(node.span)),
        );
        // The plan holds the file's content: a changed file makes another plan, and a reload
        // notices it.
        self.files.push(file.clone());
        let mut fix =
            "name a PEM file with the authority's certificate that the gateway's user can read"
                .to_owned();
        let read = match foreign_file::read(&file, CA_BYTES_MAX) {
            Ok(pem) => CaFile::parse(&pem),
            Err(error) => {
                fix = fix_or(&error, &fix);
                Err(format!("cannot be read: {}", reason(&error)))
            }
        };
        let fault = match read {
            Ok(ca) => return Some(ca),
            Err(fault) => fault,
        };
        let message = format!("`{path}`: the file {} {fault}", file.display());
        self.error(ProblemKind::Value, path, message, fix);
        None
    }
}
