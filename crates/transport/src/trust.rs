//! Trust in the certificates of servers.
//!
//! Owns the root certificates: the system's, and those of a server's `ca`. Does not connect.
//! Invariant: without its own file, a server is checked against the system's roots and no others.

use std::fmt;
use std::sync::{Arc, OnceLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Returns the system's root certificates, or Mozilla's if there are none.
pub fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    // System stores often have a certificate that no library reads. The others must still count.
    roots.add_parsable_certificates(found.certs);
    // Minimal container images have no certificate store.
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
}

/// Returns a client configuration for plain HTTP, which saves the time to read the system's
/// certificates.
pub fn tls_without_roots() -> Arc<ClientConfig> {
    client_config(RootCertStore::empty())
}

/// Returns a client configuration that trusts these roots.
pub fn client_config(roots: RootCertStore) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider supports the default versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

/// Authorities of one file, trusted besides the system's. Equality compares the certificates.
#[derive(Clone)]
pub struct CaFile(Arc<CaCertificates>);

struct CaCertificates {
    certificates: Vec<CertificateDer<'static>>,
    /// Built at the first connection, then shared by all connections with these settings.
    tls: OnceLock<Arc<ClientConfig>>,
}

impl CaFile {
    /// Parses a PEM file.
    ///
    /// # Errors
    /// Describes the fault in words that follow the file name.
    pub fn parse(pem: &[u8]) -> Result<Self, String> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let certificates = certificates.map_err(|error| format!("is not a PEM file: {error}"))?;
        if certificates.is_empty() {
            return Err("has no certificate".to_owned());
        }
        let mut roots = RootCertStore::empty();
        for (i, certificate) in certificates.iter().enumerate() {
            // Strict here: the file has a few certificates, and a broken one is an operator's
            // mistake.
            let added = roots.add(certificate.clone());
            added.map_err(|error| {
                format!(
                    "has a certificate that cannot be used, number {}: {error}",
                    i + 1
                )
            })?;
        }
        Ok(CaFile(Arc::new(CaCertificates {
            certificates,
            tls: OnceLock::new(),
        })))
    }

    /// Returns a client configuration that trusts these authorities and `roots`.
    pub fn tls_config(&self, roots: impl FnOnce() -> RootCertStore) -> Arc<ClientConfig> {
        let config = self.0.tls.get_or_init(|| {
            let mut roots = roots();
            roots.add_parsable_certificates(self.0.certificates.iter().cloned());
            client_config(roots)
        });
        config.clone()
    }
}

impl PartialEq for CaFile {
    fn eq(&self, other: &Self) -> bool {
        self.0.certificates == other.0.certificates
    }
}

impl fmt::Debug for CaFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CaFile of {} certificates", self.0.certificates.len())
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    use super::*;

    fn authority() -> String {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .self_signed(&KeyPair::generate().unwrap())
            .unwrap()
            .pem()
    }

    #[test]
    fn a_file_of_authorities_is_read_and_built_once() {
        let one = authority();
        let text = format!("# ours\n{one}\n{}", authority());
        let both = CaFile::parse(text.as_bytes()).unwrap();
        let built = both.tls_config(RootCertStore::empty);
        let again = both.clone().tls_config(|| panic!("it is built once"));
        assert!(Arc::ptr_eq(&built, &again) && both == CaFile::parse(text.as_bytes()).unwrap());
        assert!(both != CaFile::parse(one.as_bytes()).unwrap());
    }

    #[test]
    fn a_file_without_usable_authorities_is_refused() {
        let problems = [
            "no certificate here",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
        ]
        .map(|text| CaFile::parse(text.as_bytes()).unwrap_err());
        assert_eq!(problems[0], "has no certificate");
        assert!(problems[1].contains("number 1"));
        assert!(problems[2].contains("PEM"));
    }
}
