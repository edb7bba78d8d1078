//! Addresses of forward proxies, and the choice of one for a server.
//!
//! Owns the meaning of proxy URLs and of the proxy environment variables. Does not connect
//! (`tunnel`). Invariant: the credentials of a proxy appear in no text.

use std::error::Error;
use std::fmt;

use http::{HeaderValue, Uri};
use hyper_util::client::proxy::matcher::Matcher;
use tower::BoxError;

use crate::loopback_host::is_loopback;

/// Port of a proxy whose URL names none.
// As in the URL standard for `http:`. curl would take 1080.
const DEFAULT_PORT: u16 = 80;

/// Choice of a proxy for one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ProxyChoice {
    /// Proxy that the environment names for the server's URL, if any.
    #[default]
    Environment,
    /// No proxy.
    Direct,
    /// Fixed proxy, wherever the server is.
    Fixed(ProxyAddress),
}

/// Address of an HTTP proxy, with its credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct ProxyAddress {
    host: String,
    port: u16,
    authorization: Option<HeaderValue>,
    /// Name of the environment variable or configuration key that it comes from.
    source: String,
}

/// Reason why a text names no usable proxy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyFault {
    /// The proxy is of an unsupported kind.
    #[error("names a proxy with the scheme {0}://, but only http:// proxies are supported")]
    Scheme(String),
    /// The text isn't a proxy's URL.
    #[error("is not a proxy URL")]
    Url,
}

impl ProxyAddress {
    /// Parses the URL of a proxy. As in curl, a missing scheme means `http`.
    ///
    /// # Errors
    /// Fails if the text isn't a URL, or is the URL of an unsupported kind of proxy.
    pub fn parse(text: &str, source: impl Into<String>) -> Result<Self, ProxyFault> {
        let text = text.trim();
        if let Some((scheme, _)) = text.split_once("://")
            && !scheme.eq_ignore_ascii_case("http")
        {
            let plain = !scheme.is_empty()
                && scheme
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
            return Err(if plain {
                ProxyFault::Scheme(scheme.to_ascii_lowercase())
            } else {
                ProxyFault::Url
            });
        }
        // The library has no parser for a single proxy, so it is asked for the proxy of any URL.
        let anywhere = Uri::from_static("http://mcp.invalid/");
        let found = Matcher::builder()
            .all(text)
            .build()
            .intercept(&anywhere)
            .ok_or(ProxyFault::Url)?;
        let authority = found.uri().authority().ok_or(ProxyFault::Url)?;
        let names_port = authority.as_str().len() > authority.host().len();
        let port = match authority.port_u16() {
            // Port 0 cannot be connected to.
            Some(0) => return Err(ProxyFault::Url),
            // A colon without a number behind it is a typo. Port 80 would hide it.
            None if names_port => return Err(ProxyFault::Url),
            port => port.unwrap_or(DEFAULT_PORT),
        };
        // A password with an unencoded `@` was cut in the middle.
        if authority.host().is_empty() || authority.as_str().contains('@') {
            return Err(ProxyFault::Url);
        }
        let host = authority.host().to_owned();
        let authorization = found.basic_auth().cloned();
        Ok(ProxyAddress {
            host,
            port,
            authorization,
            source: source.into(),
        })
    }

    /// Returns the host in the form of URLs.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Returns the value of `Proxy-Authorization`, if the URL has credentials.
    pub(super) fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }

    /// Returns the address in the form of an HTTP connector.
    pub(super) fn uri(&self) -> Result<Uri, http::Error> {
        let authority = format!("{}:{}", self.host, self.port);
        Uri::builder()
            .scheme("http")
            .authority(authority)
            .path_and_query("/")
            .build()
    }

    /// Creates an error that names the proxy.
    pub(super) fn error(&self, what: impl Into<String>, source: Option<BoxError>) -> ProxyError {
        ProxyError {
            proxy: self.clone(),
            what: what.into(),
            source,
        }
    }
}

impl fmt::Display for ProxyAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the proxy {}:{} (from {})",
            self.host, self.port, self.source
        )
    }
}

impl fmt::Debug for ProxyAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Failure of a connection through a proxy.
#[derive(Debug, thiserror::Error)]
#[error("{proxy} {what}")]
pub(super) struct ProxyError {
    proxy: ProxyAddress,
    what: String,
    #[source]
    source: Option<BoxError>,
}

impl ProxyError {
    /// Returns the proxy host that could not be reached, if a cause is a proxy.
    pub(super) fn host_in<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a str> {
        let mut causes = std::iter::successors(Some(error), |&error| error.source());
        causes
            .find_map(|error| error.downcast_ref::<ProxyError>())
            .map(|error| error.proxy.host())
    }
}

/// Proxies named by environment variables.
#[derive(Debug, Default)]
pub struct ProxyEnvironment {
    http: Option<ProxyAddress>,
    https: Option<ProxyAddress>,
    /// Value of `NO_PROXY`.
    exceptions: String,
}

impl ProxyEnvironment {
    /// Reads the process environment and warns about variables that name no usable proxy.
    pub fn read() -> Self {
        let (environment, faults) =
            ProxyEnvironment::from_variables(|name| std::env::var(name).ok());
        for (variable, fault) in faults {
            tracing::warn!(
                variable,
                "environment variable ignored: {variable} {fault}; servers are reached without it"
            );
        }
        environment
    }

    /// Returns the proxies of these variables, and the variables that are unusable.
    fn from_variables(
        lookup: impl Fn(&str) -> Option<String>,
    ) -> (Self, Vec<(&'static str, ProxyFault)>) {
        let mut faults = Vec::new();
        // As in curl and Python, the name in lower case comes first.
        let all = read_proxy(&lookup, ["all_proxy", "ALL_PROXY"], &mut faults);
        let https = read_proxy(&lookup, ["https_proxy", "HTTPS_PROXY"], &mut faults);
        // A CGI program gets a request's `Proxy` header as `HTTP_PROXY` (httpoxy, CVE-2016-5385).
        let is_cgi = lookup("REQUEST_METHOD").is_some();
        let other = if is_cgi { "http_proxy" } else { "HTTP_PROXY" };
        let http = read_proxy(&lookup, ["http_proxy", other], &mut faults);
        let exceptions = find_variable(&lookup, ["no_proxy", "NO_PROXY"]).map(|(_, value)| value);
        let environment = ProxyEnvironment {
            http: http.or_else(|| all.clone()),
            https: https.or(all),
            exceptions: exceptions.unwrap_or_default(),
        };
        (environment, faults)
    }

    /// Returns the proxy for a server's URL. Loopback addresses never use one.
    pub fn choose(&self, url: &url::Url) -> Option<ProxyAddress> {
        let proxy = if matches!(url.scheme(), "https" | "wss") {
            &self.https
        } else {
            &self.http
        };
        let host = url.host_str()?.trim_end_matches('.');
        let port = url.port_or_known_default()?;
        let proxy = proxy
            .as_ref()
            .filter(|_| !is_loopback(host) && !is_excepted(&self.exceptions, host, port));
        proxy.cloned()
    }
}

/// Reads the proxy that the first of these variables names, and notes a fault.
fn read_proxy(
    lookup: &impl Fn(&str) -> Option<String>,
    names: [&'static str; 2],
    faults: &mut Vec<(&'static str, ProxyFault)>,
) -> Option<ProxyAddress> {
    let (name, value) = find_variable(lookup, names)?;
    ProxyAddress::parse(&value, name)
        .map_err(|fault| faults.push((name, fault)))
        .ok()
}

/// Returns the first of these variables that is set, with its value.
fn find_variable(
    lookup: &impl Fn(&str) -> Option<String>,
    names: [&'static str; 2],
) -> Option<(&'static str, String)> {
    names.into_iter().find_map(|name| {
        let value = lookup(name).filter(|value| !value.trim().is_empty())?;
        Some((name, value))
    })
}

/// True if `NO_PROXY` names a host. Entries are separated by commas or spaces: `.domain` or
/// `*.domain`, with or without a port.
fn is_excepted(exceptions: &str, host: &str, port: u16) -> bool {
    let entries = exceptions.split([',', ' ', '\t']).filter_map(|entry| {
        let entry = match entry.rsplit_once(':') {
            Some((name, digits)) if !name.contains(':') || name.ends_with(']') => {
                if digits.parse() != Ok(port) {
                    return None;
                }
                name
            }
            _ => entry,
        };
        let entry = if entry.starts_with("*.") {
            &entry[1..]
        } else {
            entry
        };
        // A final dot marks a name as absolute (RFC 1034, section 3.1). It names the same host.
        Some(entry.trim_matches(['[', ']']).trim_end_matches('.'))
    });
    let entries: Vec<&str> = entries.filter(|entry| !entry.is_empty()).collect();
    // The scheme does not matter for exceptions.
    let Ok(uri) = format!("http://{host}/").parse::<Uri>() else {
        return false;
    };
    // The library's `*` covers names only, not addresses.
    entries.contains(&"*")
        || Matcher::builder()
            .all("http://any")
            .no(entries.join(","))
            .build()
            .intercept(&uri)
            .is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(
        variables: &[(&str, &str)],
    ) -> (ProxyEnvironment, Vec<(&'static str, ProxyFault)>) {
        let lookup =
            |name: &str| Some(variables.iter().find(|(key, _)| *key == name)?.1.to_owned());
        ProxyEnvironment::from_variables(lookup)
    }

    /// Returns the host of the proxy for a URL, given these variables.
    fn chosen(variables: &[(&str, &str)], url: &str) -> Option<String> {
        Some(
            environment(variables)
                .0
                .choose(&url::Url::parse(url).unwrap())?
                .host,
        )
    }

    #[test]
    fn the_url_of_a_proxy_is_read() {
        for (text, host, port) in [
            ("http://proxy.test:3128", "proxy.test", 3128),
            (" HTTP://proxy.test/ ", "proxy.test", 80),
            ("proxy.test:3128", "proxy.test", 3128),
            ("http://[::1]:3128", "[::1]", 3128),
        ] {
            let proxy = ProxyAddress::parse(text, "x").unwrap();
            assert_eq!(proxy.host, host);
            assert_eq!(proxy.port, port);
            assert_eq!(proxy.authorization, None);
        }
        let proxy = ProxyAddress::parse("http://user:p%40ss@proxy.test:1", "x").unwrap();
        let basic = proxy.authorization.unwrap();
        assert!(basic == "Basic dXNlcjpwQHNz" && basic.is_sensitive());
        for text in [
            "",
            "http://",
            "http://:3128",
            "http://a:99999",
            "http://a:0",
            "http://a b",
            "http://u:p@h@x:1",
            "://a",
        ] {
            let fault = ProxyAddress::parse(text, "x").unwrap_err();
            assert_eq!(fault, ProxyFault::Url, "{text:?}");
        }
        for scheme in ["https", "socks5", "socks5h", "ftp"] {
            let text = format!("{scheme}://proxy.test:1080");
            let fault = ProxyAddress::parse(&text, "x").unwrap_err();
            assert_eq!(fault, ProxyFault::Scheme(scheme.to_owned()));
        }
    }

    #[test]
    fn a_proxys_credentials_are_in_no_text() {
        let proxy = ProxyAddress::parse("http://user:hush@proxy.test:3128", "HTTPS_PROXY").unwrap();
        let error = proxy.error("is away", None);
        for text in [
            format!("{proxy}"),
            format!("{proxy:?}"),
            format!("{error} {error:?}"),
        ] {
            assert!(
                text.contains("the proxy proxy.test:3128 (from HTTPS_PROXY)"),
                "{text}"
            );
            assert!(
                !text.contains("hush") && !text.contains("user") && !text.contains("Basic"),
                "{text}"
            );
        }
    }

    #[test]
    fn each_variable_is_for_its_schemes() {
        let all = [("HTTP_PROXY", "http://h:1"), ("HTTPS_PROXY", "http://s:1")];
        for (url, proxy) in [
            ("http://a.test", "h"),
            ("ws://a.test", "h"),
            ("https://a.test", "s"),
            ("wss://a.test", "s"),
        ] {
            assert_eq!(chosen(&all, url).as_deref(), Some(proxy), "{url}");
        }
        assert_eq!(chosen(&all[..1], "https://a.test"), None);
        assert_eq!(
            chosen(&[("ALL_PROXY", "http://x:1")], "wss://a.test").as_deref(),
            Some("x")
        );
        assert_eq!(
            chosen(
                &[("all_proxy", "x:1"), ("http_proxy", "h:1")],
                "http://a.test"
            )
            .as_deref(),
            Some("h")
        );
        assert_eq!(
            chosen(
                &[("https_proxy", "low:1"), ("HTTPS_PROXY", "up:1")],
                "https://a"
            )
            .as_deref(),
            Some("low")
        );
        assert_eq!(
            chosen(
                &[("HTTPS_PROXY", " "), ("ALL_PROXY", "x:1")],
                "https://a.test"
            )
            .as_deref(),
            Some("x")
        );
    }

    #[test]
    fn a_cgi_program_does_not_take_a_requests_header_for_a_proxy() {
        let cgi = ("REQUEST_METHOD", "GET");
        assert_eq!(
            chosen(&[("HTTP_PROXY", "http://evil:1"), cgi], "http://a.test"),
            None
        );
        assert_eq!(
            chosen(&[("http_proxy", "http://h:1"), cgi], "http://a.test").as_deref(),
            Some("h")
        );
        assert_eq!(
            chosen(&[("HTTPS_PROXY", "http://s:1"), cgi], "https://a.test").as_deref(),
            Some("s")
        );
    }

    #[test]
    fn our_own_machine_is_behind_no_proxy_of_the_environment() {
        for host in [
            "localhost",
            "LOCALHOST",
            "a.localhost",
            "localhost.",
            "127.0.0.1",
            "127.9.9.9",
            "[::1]",
            "[::ffff:127.0.0.1]",
        ] {
            assert_eq!(
                chosen(
                    &[("ALL_PROXY", "http://x:1")],
                    &format!("http://{host}:8080/mcp")
                ),
                None,
                "{host}"
            );
        }
        for host in ["localhost.test", "128.0.0.1", "[::2]", "notlocalhost"] {
            assert!(
                chosen(
                    &[("ALL_PROXY", "http://x:1")],
                    &format!("http://{host}/mcp")
                )
                .is_some(),
                "{host}"
            );
        }
    }

    #[test]
    fn no_proxy_names_hosts_suffixes_addresses_and_networks() {
        for (exceptions, host, excepted) in [
            ("a.test", "a.test", true),
            ("A.test", "b.a.TEST", true),
            (".a.test", "b.a.test", true),
            ("*.a.test", "b.a.test", true),
            ("a.test", "nota.test", false),
            ("b.test, a.test", "a.test", true),
            ("b.test a.test", "a.test", true),
            ("a.test", "a.test.", true),
            ("a.test.", "a.test", true),
            ("a.test.", "b.a.test.", true),
            (".a.test.", "b.a.test", true),
            ("*.a.test.", "b.a.test", true),
            ("a.test.:8080", "a.test:8080", true),
            ("a.test.:8080", "a.test:8081", false),
            ("a.test.", "nota.test", false),
            (".", "a.test", false),
            ("*", "a.test", true),
            ("*", "10.1.2.3", true),
            ("10.0.0.0/8", "10.1.2.3", true),
            ("10.0.0.0/8", "11.1.2.3", false),
            ("10.1.2.3", "10.1.2.3", true),
            ("fd00::/8", "[fd00::1]", true),
            ("[fd00::1]", "[fd00::1]", true),
            ("a.test:8080", "a.test:8080", true),
            ("a.test:8080", "a.test:8081", false),
            ("a.test:80", "a.test", true),
            ("", "a.test", false),
        ] {
            let variables = [("http_proxy", "http://x:1"), ("NO_PROXY", exceptions)];
            assert_eq!(
                chosen(&variables, &format!("http://{host}/mcp")).is_none(),
                excepted,
                "{exceptions} {host}"
            );
        }
    }

    #[test]
    fn a_variable_of_no_use_is_named_and_the_next_one_counts() {
        let (environment, faults) =
            environment(&[("HTTPS_PROXY", "socks5://s:1"), ("ALL_PROXY", "http://x:1")]);
        assert_eq!(
            faults,
            [("HTTPS_PROXY", ProxyFault::Scheme("socks5".to_owned()))]
        );
        assert_eq!(
            environment
                .choose(&url::Url::parse("https://a.test").unwrap())
                .unwrap()
                .host,
            "x"
        );
    }
}
