//! Settings of one server, as the config resolved them. Owns the defaults and which settings can
//! change on a live connection. Does not read the config (`config`). Invariant: equal settings mean
//! that a reload leaves the server alone.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

use crate::options::{ConnectionOptions, LiveOptions};
use moongate_access::policy::ItemRules;
use moongate_oauth::ServerAuth;
use moongate_protocol::Era;
use moongate_transport::metadata_address::MetadataAccess;
use moongate_transport::proxy::ProxyChoice;
use moongate_transport::socket::SocketAddress;
use moongate_transport::trust::CaFile;

/// Settings of one configured server. Equal settings mean that nothing needs to be done. See also
/// [`ServerSettings::same_connection`].
#[derive(Clone, Debug, PartialEq)]
pub struct ServerSettings {
    /// Name in the config: letters, digits, `-` and `_`, no `__`.
    pub name: String,
    /// Server as clients see it.
    pub presentation: ServerPresentation,
    /// Options that change on a live connection.
    pub live: LiveOptions,
    /// Longest time for a user to answer an input request. The call's own time stops meanwhile.
    pub input_timeout: Duration,
    /// Options that a connection keeps.
    pub options: ConnectionOptions,
    /// Target of the connection.
    pub connect: ConnectTarget,
    /// Right to be where clouds keep credentials.
    pub metadata: MetadataAccess,
    /// Revision to speak without a probe. Its name is checked by `protocol`.
    pub protocol: Option<String>,
    /// True if each client meets the server in its own era, if the server speaks both and no
    /// revision is set.
    pub as_client: bool,
    /// True if the server is another gateway, which knows names that its lists from memory do not
    /// have yet.
    pub is_gateway: bool,
    /// Era to try first where none is known. A server that refuses it is opened in the other one.
    pub first_era: Option<Era>,
}

/// Server as clients see it: its names, texts and items. It changes on a live connection.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerPresentation {
    /// Prefix of the names of its items. Empty for none.
    pub prefix: String,
    /// Title that replaces the server's own.
    pub title: Option<String>,
    /// Icon for users: an `https:` or `data:` URL.
    pub icon: Option<String>,
    /// Instructions for models that replace the server's own.
    pub description: Option<String>,
    /// Rules for tools: which exist and how they look.
    pub tools: ItemRules,
    /// Rules for resources and templates (patterns over URIs).
    pub resources: ItemRules,
    /// Rules for prompts.
    pub prompts: ItemRules,
}

/// Target of a connection.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::large_enum_variant,
    reason = "a server has one, and most servers have a URL"
)]
pub enum ConnectTarget {
    /// Child process that speaks over its standard streams.
    Stdio {
        /// Program.
        command: String,
        /// Arguments.
        args: Vec<String>,
        /// Variables added to the inherited ones on the allow list. Values may be secret.
        env: Vec<(String, String)>,
        /// Working directory.
        cwd: Option<PathBuf>,
    },
    /// Entry in the config that cannot be used. It fails until the config is corrected.
    Misconfigured {
        /// Problem of the entry.
        reason: String,
    },
    /// Socket that carries newline-delimited messages.
    Socket(SocketAddress),
    /// HTTP, or a protocol that starts as HTTP.
    Http {
        /// MCP endpoint.
        url: url::Url,
        /// Unix socket that replaces the host of the URL.
        socket: Option<PathBuf>,
        /// Protocol at the URL.
        transport: HttpTransport,
        /// Headers of every request. Values may be secret (and are marked sensitive).
        headers: Vec<(HeaderName, HeaderValue)>,
        /// Headers to forward from the client's request: the client's name, then the server's.
        forward_headers: Vec<(HeaderName, HeaderName)>,
        /// Way to get the credential, where `headers` has none.
        auth: ServerAuth,
        /// Proxy and trust on the path.
        network: NetworkSettings,
    },
}

/// Network between the gateway and a server with a URL.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NetworkSettings {
    /// Proxy.
    pub proxy: ProxyChoice,
    /// Certificate authorities trusted in addition to the system's.
    pub ca: Option<CaFile>,
}

/// Protocol at a URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpTransport {
    /// Streamable HTTP, with HTTP+SSE as the fallback.
    #[default]
    Auto,
    /// Streamable HTTP.
    Streamable,
    /// HTTP+SSE.
    Sse,
    /// WebSocket.
    WebSocket,
}

impl HttpTransport {
    /// Returns true if the URL's scheme must be `ws` or `wss`.
    pub fn is_websocket(self) -> bool {
        match self {
            HttpTransport::WebSocket => true,
            HttpTransport::Auto | HttpTransport::Streamable | HttpTransport::Sse => false,
        }
    }
}

impl ServerSettings {
    /// Returns true if these settings can replace `other` on its live connection. Such settings
    /// concern the look of items, times and sizes. Any setting not named here needs another
    /// connection.
    pub fn same_connection(&self, other: &ServerSettings) -> bool {
        other.with_live_settings(self) == *self
    }

    /// Returns these settings, with those of `other` that can change on a live connection.
    pub(crate) fn with_live_settings(&self, other: &ServerSettings) -> ServerSettings {
        ServerSettings {
            presentation: other.presentation.clone(),
            live: other.live.clone(),
            input_timeout: other.input_timeout,
            ..self.clone()
        }
    }

    /// Creates the settings of a server with all defaults.
    pub fn new(name: impl Into<String>, connect: ConnectTarget) -> Self {
        let name = name.into();
        ServerSettings {
            presentation: ServerPresentation {
                prefix: name.clone(),
                title: None,
                icon: None,
                description: None,
                tools: ItemRules::allow_all(),
                resources: ItemRules::allow_all(),
                prompts: ItemRules::allow_all(),
            },
            name,
            live: LiveOptions::default(),
            input_timeout: Duration::from_secs(600),
            options: ConnectionOptions::default(),
            connect,
            metadata: MetadataAccess::Refused,
            protocol: None,
            as_client: true,
            is_gateway: false,
            first_era: None,
        }
    }
}
