//! TLS for tests: private authorities, what they sign, and both sides of a connection.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::within;

/// A private authority.
pub(crate) struct Authority {
    /// Its own certificate.
    pub(crate) certificate: CertificateDer<'static>,
    /// The same, as what is trusted is written.
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key.
pub(crate) struct Pair {
    /// The certificate.
    pub(crate) certificate: CertificateDer<'static>,
    /// The same, as files have it.
    pub(crate) pem: String,
    /// Its key.
    pub(crate) key: KeyPair,
}

impl Authority {
    /// An authority of this name.
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let own = params.self_signed(&key).unwrap();
        Authority {
            certificate: own.der().clone(),
            pem: own.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    /// A certificate of `localhost`.
    pub(crate) fn sign(&self) -> Pair {
        self.sign_for("localhost")
    }

    /// A certificate of a host of this name.
    pub(crate) fn sign_for(&self, host: &str) -> Pair {
        let key = KeyPair::generate().unwrap();
        let signed = CertificateParams::new([host.to_owned()])
            .unwrap()
            .signed_by(&key, &self.issuer)
            .unwrap();
        Pair {
            certificate: signed.der().clone(),
            pem: signed.pem(),
            key,
        }
    }

    /// A client that trusts this authority, offers these protocols by ALPN, and shows `own`.
    pub(crate) fn client(&self, protocols: &[&str], own: Option<&Pair>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = builder.with_root_certificates(roots);
        let mut config = match own {
            Some(pair) => builder
                .with_client_auth_cert(vec![pair.certificate.clone()], pair.private_key())
                .unwrap(),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = named(protocols);
        config
    }
}

impl Pair {
    /// A server that shows this pair and offers these protocols by ALPN.
    pub(crate) fn server(&self, protocols: &[&str]) -> ServerConfig {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap();
        let shown = vec![self.certificate.clone()];
        let mut config = builder
            .with_no_client_auth()
            .with_single_cert(shown, self.private_key())
            .unwrap();
        config.alpn_protocols = named(protocols);
        config
    }

    /// Writes `cert.pem` and `key.pem`.
    pub(crate) fn write(&self, dir: &Path) {
        std::fs::write(dir.join("cert.pem"), &self.pem).unwrap();
        std::fs::write(dir.join("key.pem"), self.key.serialize_pem()).unwrap();
    }

    fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::try_from(self.key.serialize_der()).unwrap()
    }
}

fn named(protocols: &[&str]) -> Vec<Vec<u8>> {
    protocols
        .iter()
        .map(|protocol| protocol.as_bytes().to_vec())
        .collect()
}

/// Connects to `localhost`.
pub(crate) async fn connect(
    address: SocketAddr,
    config: ClientConfig,
) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    within(
        "the handshake",
        TlsConnector::from(Arc::new(config)).connect(name, stream),
    )
    .await
}

/// What a new connection is shown.
pub(crate) async fn shown(address: SocketAddr, authority: &Authority) -> CertificateDer<'static> {
    let stream = connect(address, authority.client(&["h2"], None))
        .await
        .unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0]
        .clone()
        .into_owned()
}
