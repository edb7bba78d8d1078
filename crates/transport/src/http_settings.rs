//! Settings of a connection to one HTTP server.
//!
//! Owns the settings that both HTTP transports share. Does not check them. Invariant: the settings
//! of a link never change.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::credential_source::CredentialSource;
use crate::metadata_address::MetadataAccess;
use moongate_telemetry::MemoryShare;

use crate::proxy::ProxyAddress;
use crate::rpc_pipe::OnGarbage;
use crate::{HeaderList, PipeDialer};

/// Called for each stream that is resumed.
pub type OnResume = Arc<dyn Fn() + Send + Sync>;

/// Called for each message whose text had to be mended.
pub type OnMended = Arc<dyn Fn() + Send + Sync>;

/// Settings of a connection to one HTTP server.
pub struct HttpSettings {
    /// MCP endpoint.
    pub url: url::Url,
    /// Unix socket of the server. It replaces the host of the URL.
    pub socket: Option<PathBuf>,
    /// Proxy, used only without a Unix socket.
    pub proxy: Option<ProxyAddress>,
    /// Right to be where clouds keep credentials.
    pub metadata: MetadataAccess,
    /// Headers of every request.
    pub headers: HeaderList,
    /// Source of the credential that each request carries, instead of one of the config.
    pub credentials: Option<Arc<dyn CredentialSource>>,
    /// True if requests carry credentials of the gateway's clients.
    pub forwards_credentials: bool,
    /// Limit of TCP, TLS and the proxy together.
    pub connect_timeout: Duration,
    /// Limit of one answer or event, in bytes.
    pub max_message: usize,
    /// Share of the gateway's memory that the server's messages take.
    pub memory: MemoryShare,
    /// Called for events that aren't messages.
    pub on_garbage: OnGarbage,
    /// Called for each message whose text had to be mended.
    pub on_mended: OnMended,
    /// True if the server was reached by this URL before.
    pub was_reached: bool,
    /// Called for each stream that is resumed.
    pub on_resume: OnResume,
    /// Opens connections in memory instead of the network.
    pub dial: Option<PipeDialer>,
}
