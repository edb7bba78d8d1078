//! TLS of a listener: certificate and key from files, replaced at run time. Owns the identity in
//! use and its reload.
//!
//! Does not accept connections. Invariant: there is always a working identity. A broken one changes
//! nothing and is logged once.

use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::certificate_expiry::not_after;
use moongate_platform::foreign_file;
use moongate_telemetry::{CertificateReload, Limit, Metrics};

/// Time between two checks of the files.
// Certificates are renewed days before they end, so nobody notices ten seconds.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Largest file of certificates or of a key.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Paths of the TLS files.
#[derive(Clone, Debug, PartialEq)]
pub struct TlsSettings {
    /// Certificate with its chain, PEM.
    pub cert: PathBuf,
    /// Private key of the certificate, PEM.
    pub key: PathBuf,
    /// Authorities for client certificates, PEM. With them, a client without a certificate of
    /// theirs is refused.
    pub client_ca: Option<PathBuf>,
}

/// Problem with the TLS files.
#[derive(Debug)]
pub struct TlsProblem {
    /// Setting at fault: `cert`, `key` or `client_ca`.
    pub setting: &'static str,
    /// Description of the problem.
    pub message: String,
}

impl TlsProblem {
    fn of_file(setting: &'static str, path: &Path, what: &str) -> Self {
        TlsProblem {
            setting,
            message: format!("{} {what}", path.display()),
        }
    }
}

/// TLS identity in use, with its reload.
pub struct ListenerTls {
    settings: TlsSettings,
    current: ArcSwap<TlsIdentity>,
    /// Problem of the last check, so that it is logged once.
    last_problem: Mutex<Option<String>>,
    metrics: Arc<Metrics>,
}

struct TlsIdentity {
    acceptor: TlsAcceptor,
    /// Contents of the files it was made from.
    files: TlsFiles,
    not_after: Option<i64>,
}

#[derive(PartialEq)]
struct TlsFiles {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

impl TlsSettings {
    /// Checks that the files can be used.
    pub fn check(&self) -> Result<(), TlsProblem> {
        TlsFiles::read(self)?.pair(self).map(|_| ())
    }
}

impl TlsFiles {
    fn read(settings: &TlsSettings) -> Result<Self, TlsProblem> {
        let client_ca = settings
            .client_ca
            .as_ref()
            .map(|path| read_file("client_ca", path))
            .transpose()?;
        Ok(TlsFiles {
            cert: read_file("cert", &settings.cert)?,
            key: read_file("key", &settings.key)?,
            client_ca,
        })
    }

    fn pair(self, settings: &TlsSettings) -> Result<TlsIdentity, TlsProblem> {
        let chain = certificates(&self.cert).ok_or_else(|| {
            TlsProblem::of_file("cert", &settings.cert, "contains no PEM certificate")
        })?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| {
            TlsProblem::of_file("key", &settings.key, "contains no usable PEM private key")
        })?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions();
        let builder = builder.map_err(|e| {
            TlsProblem::of_file("cert", &settings.cert, &format!("cannot be used: {e}"))
        })?;
        let builder = match (&self.client_ca, &settings.client_ca) {
            (Some(pem), Some(path)) => {
                let mut roots = RootCertStore::empty();
                // One broken certificate in a bundle must not lock out the clients of all other
                // authorities.
                roots.add_parsable_certificates(certificates(pem).unwrap_or_default());
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                let verifier = verifier.map_err(|e| {
                    TlsProblem::of_file(
                        "client_ca",
                        path,
                        &format!("contains no PEM CA certificate: {e}"),
                    )
                })?;
                builder.with_client_cert_verifier(verifier)
            }
            _ => builder.with_no_client_auth(),
        };
        let not_after = chain.first().and_then(|certificate| not_after(certificate));
        let mut config = builder.with_single_cert(chain, key).map_err(|e| match e {
            // During a renewal the two files are replaced one after the other, so this may hold for
            // a moment.
            rustls::Error::InconsistentKeys(_) => TlsProblem::of_file(
                "key",
                &settings.key,
                &format!(
                    "is not the key of the certificate in {}",
                    settings.cert.display()
                ),
            ),
            e => TlsProblem::of_file("cert", &settings.cert, &format!("cannot be used: {e}")),
        })?;
        // In the order of preference: the server chooses (RFC 7301, section 3.2).
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsIdentity {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            files: self,
            not_after,
        })
    }
}

fn read_file(setting: &'static str, path: &Path) -> Result<Vec<u8>, TlsProblem> {
    foreign_file::read(path, FILE_BYTES_MAX)
        .map_err(|e| TlsProblem::of_file(setting, path, &format!("cannot be read: {e}")))
}

fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .ok()?;
    (!all.is_empty()).then_some(all)
}

impl ListenerTls {
    /// Reads the files and builds the first identity.
    pub fn load(settings: TlsSettings, metrics: Arc<Metrics>) -> Result<Arc<Self>, TlsProblem> {
        let pair = TlsFiles::read(&settings)?.pair(&settings)?;
        let tls = ListenerTls {
            settings,
            current: ArcSwap::from_pointee(pair),
            last_problem: Mutex::default(),
            metrics,
        };
        tls.measure();
        Ok(Arc::new(tls))
    }

    /// Reads the files again, and adopts them if they can be used. Blocks on file I/O.
    pub fn reload(&self) {
        let reloads = &self.metrics.access.tls_reloads;
        let taken = TlsFiles::read(&self.settings).and_then(|files| {
            // Contents are compared: modification times are unreliable on mounted volumes.
            if files == self.current.load().files {
                Ok(None)
            } else {
                files.pair(&self.settings).map(Some)
            }
        });
        let mut last_problem = self.last_problem.lock();
        match taken {
            Ok(None) => *last_problem = None,
            Ok(Some(pair)) => {
                *last_problem = None;
                self.current.store(Arc::new(pair));
                self.measure();
                reloads.inc(CertificateReload::Loaded);
                tracing::info!("certificate reloaded: {}", self.settings.cert.display());
            }
            Err(TlsProblem { setting, message }) => {
                // The check runs every ten seconds: without the comparison one problem would fill
                // the log.
                if last_problem.as_ref() != Some(&message) {
                    reloads.inc(CertificateReload::Refused);
                    tracing::error!(
                        "certificate not reloaded, the previous one stays in use: \
                         gateway.tls.{setting}: {message}"
                    );
                    *last_problem = Some(message);
                }
            }
        }
    }

    /// Checks the files at an interval, until dropped.
    pub async fn watch(self: Arc<Self>) {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let tls = self.clone();
            // A panic ends this check alone. The identity in use stays.
            let _ = tokio::task::spawn_blocking(move || tls.reload()).await;
        }
    }

    /// Performs the TLS handshake within `limit`.
    pub(super) async fn accept<S>(&self, stream: S, limit: Duration) -> Option<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        // A connection keeps the identity that it started with. A reload concerns later ones.
        let acceptor = self.current.load().acceptor.clone();
        let outcome = match tokio::time::timeout(limit, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => return Some(stream),
            Ok(Err(e)) => format!("{e}"),
            Err(_) => format!("longer than {limit:?} (limits.read_timeout)"),
        };
        // At `debug` only: port scanners fail here all day, and the counter shows that they do.
        self.metrics.calls.refused.inc(Limit::TlsHandshake);
        tracing::debug!("TLS handshake failed: {outcome}");
        None
    }

    fn measure(&self) {
        if let Some(not_after) = self.current.load().not_after {
            self.metrics.access.tls_not_after.set(not_after);
        }
    }
}
