//! Reasons for failed connections, with hints for well-known causes.
//!
//! Owns the texts of hints. Does not connect. Invariant: an unknown cause gets no hint.

use std::borrow::Cow;
use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::OnceLock;

use rustls::CertificateError;

use crate::LinkError;
use crate::error_chain::error_chain;
use crate::loopback_host::is_loopback;
use crate::proxy::ProxyError;

/// Marker files in Docker and Podman containers.
const CONTAINER_FILES: [&str; 2] = ["/.dockerenv", "/run/.containerenv"];

const CONTAINER_HINT: &str = "inside a container, this address is the container itself; a server \
                              on its host is at host.docker.internal (Podman: \
                              host.containers.internal)";
const PLAINTEXT_HINT: &str = "the server does not use TLS on this port; write http:// instead \
                              of https:// (ws:// instead of wss://), or use its TLS port";
const AUTHORITY_HINT: &str = "it presents a CA certificate as its own; give the server a \
                              certificate that this CA issued for its name, and set the server's \
                              `ca` (or the environment variable SSL_CERT_FILE) to a file with the \
                              CA certificate";
const PRIVATE_CA_HINT: &str = "if a private CA issued it, set the server's `ca` to a file with the \
                               CA certificate, or the environment variable SSL_CERT_FILE to a file \
                               with all certificates to trust";

/// Explains a failed connection. `host` is the host of the URL.
pub(super) fn unreachable(error: &(dyn Error + 'static), host: Option<&str>) -> LinkError {
    let text = error_chain(error);
    let tried = ProxyError::host_in(error).or(host).unwrap_or_default();
    let hint = hint(error, tried, in_container)
        .map(|hint| format!("; {hint}"))
        .unwrap_or_default();
    let to = host.map(|host| format!(" to {host}")).unwrap_or_default();
    LinkError::Unreachable(format!("cannot connect{to}: {text}{hint}"))
}

fn hint(
    error: &(dyn Error + 'static),
    host: &str,
    in_container: impl Fn() -> bool,
) -> Option<&'static str> {
    let failures = std::iter::successors(Some(error), |&error| error.source());
    for failure in failures.filter_map(|error| error.downcast_ref::<io::Error>()) {
        // In this order, since only the last question touches the file system.
        if failure.kind() == io::ErrorKind::ConnectionRefused && is_loopback(host) && in_container()
        {
            return Some(CONTAINER_HINT);
        }
        let tls = innermost(failure)
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match tls {
            Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
                return Some(PRIVATE_CA_HINT);
            }
            // rustls passes this error on from webpki as an opaque value; only its name can be
            // compared.
            Some(rustls::Error::InvalidCertificate(CertificateError::Other(other)))
                if format!("{other:?}").contains("CaUsedAsEndEntity") =>
            {
                return Some(AUTHORITY_HINT);
            }
            Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) => {
                return Some(PLAINTEXT_HINT);
            }
            _ => {}
        }
    }
    None
}

/// Removes the hint about containers, which is logged once for each server and not with each
/// failure.
pub fn without_container_hint(reason: &str) -> Cow<'_, str> {
    match reason.find(CONTAINER_HINT) {
        Some(start) => {
            let before = reason[..start].trim_end_matches("; ");
            Cow::Owned(format!(
                "{before}{}",
                &reason[start + CONTAINER_HINT.len()..]
            ))
        }
        None => Cow::Borrowed(reason),
    }
}

/// Returns the innermost `io::Error`. Connectors nest them, and `source` does not show a nested
/// one.
fn innermost(mut failure: &io::Error) -> &io::Error {
    while let Some(inner) = failure
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<io::Error>())
    {
        failure = inner;
    }
    failure
}

fn in_container() -> bool {
    // The answer cannot change while the process runs.
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| CONTAINER_FILES.iter().any(|mark| Path::new(mark).exists()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_loopback_address_in_a_container_is_explained() {
        // Nested in the errors of a client, as in production.
        let wrapped = LinkErrorOf(io::ErrorKind::ConnectionRefused.into());
        for host in ["localhost", "LOCALHOST", "127.0.0.1", "127.8.0.1", "[::1]"] {
            assert_eq!(
                hint(&wrapped, host, || true),
                Some(CONTAINER_HINT),
                "{host}"
            );
            assert_eq!(hint(&wrapped, host, || false), None, "{host}");
        }
        for host in ["example.com", "10.0.0.1", "", "localhost.example.com"] {
            assert_eq!(hint(&wrapped, host, || true), None, "{host}");
        }
        assert_eq!(
            hint(
                &io::Error::from(io::ErrorKind::TimedOut),
                "localhost",
                || true
            ),
            None
        );
    }

    #[test]
    fn an_unknown_issuer_is_explained() {
        assert_eq!(
            hint(
                &tls_failure(rustls::Error::InvalidCertificate(
                    CertificateError::UnknownIssuer
                )),
                "x",
                || false
            ),
            Some(PRIVATE_CA_HINT)
        );
        assert_eq!(
            hint(
                &tls_failure(rustls::Error::InvalidCertificate(CertificateError::Expired)),
                "x",
                || false
            ),
            None
        );
    }

    #[test]
    fn plain_http_at_an_https_url_and_an_authoritys_own_certificate_are_explained() {
        let plain = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        assert!(
            hint(&tls_failure(plain), "x", || false)
                .unwrap()
                .contains("http:// instead of https://")
        );
        #[derive(Debug, thiserror::Error)]
        #[error("CaUsedAsEndEntity")]
        struct CaUsedAsEndEntity;
        let other =
            CertificateError::Other(rustls::OtherError(std::sync::Arc::new(CaUsedAsEndEntity)));
        let hint_text = hint(
            &tls_failure(rustls::Error::InvalidCertificate(other)),
            "x",
            || false,
        )
        .unwrap();
        assert!(
            hint_text.contains("SSL_CERT_FILE")
                && hint_text.contains("`ca`")
                && hint_text.contains("CA certificate"),
            "{hint_text}"
        );
    }

    #[test]
    fn the_hint_about_containers_can_be_left_out() {
        let reason = format!(
            "cannot connect to localhost: refused; {CONTAINER_HINT}; the next attempt is in 1 s"
        );
        assert_eq!(
            without_container_hint(&reason),
            "cannot connect to localhost: refused; the next attempt is in 1 s"
        );
        assert_eq!(without_container_hint("refused"), "refused");
    }

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct LinkErrorOf(#[source] io::Error);

    fn tls_failure(error: rustls::Error) -> LinkErrorOf {
        LinkErrorOf(io::Error::other(io::Error::other(error)))
    }
}
