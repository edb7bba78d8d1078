//! Labels of ours: one enum for each, with the words that metrics show.
//!
//! Does not know the metrics. Invariant: a word never changes, since dashboards and alerts name it.

use super::family::MetricLabel;

/// Declares a label and its words.
macro_rules! labels {
    ($($(#[$doc:meta])* $name:ident($key:literal) {
        $($(#[$of:meta])* $variant:ident = $word:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)] // the words say it, and docs/reference/metrics.md explains them
        pub enum $name { $($(#[$of])* $variant,)* }

        impl MetricLabel for $name {
            const KEY: &'static str = $key;

            fn value(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }
        }
    )*};
}

/// Declares a label whose words another type knows.
macro_rules! names {
    ($($(#[$doc:meta])* $name:ident($key:literal);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name(pub &'static str);

        impl MetricLabel for $name {
            const KEY: &'static str = $key;

            fn value(self) -> &'static str {
                self.0
            }
        }
    )*};
}

labels! {
    /// Limit that refused a request.
    Limit("limit") {
        Body = "body",
        Breaker = "breaker",
        Calls = "calls",
        CallsPerKey = "calls_per_key",
        FirstLine = "first_line",
        Head = "head",
        MaxBacklog = "max_backlog",
        MaxConnections = "max_connections",
        MaxSubscriptions = "max_subscriptions",
        Memory = "memory",
        Parked = "parked",
        Principals = "principals",
        Queue = "queue",
        Rate = "rate",
        ReadTimeout = "read_timeout",
        SessionCalls = "session_calls",
        Sessions = "sessions",
        Streams = "streams",
        Tasks = "tasks",
        TlsHandshake = "tls_handshake",
    }

    /// Kind of a message or connection that was given up.
    DroppedItem("what") {
        CallNotification = "call_notification",
        ClientResponse = "client_answer",
        Extension = "extension",
        IdleConnection = "idle_connection",
        LargeNotification = "large_notice",
        LogMessage = "log",
        MessageToServer = "message_to_server",
        Outbox = "outbox",
        ServerMessage = "server_message",
        ServerRequest = "server_request",
        ServerResponse = "server_answer",
        UnreadResponse = "unread",
        UriLookup = "uri_lookup",
    }

    /// Kind of holder that messages are reserved for.
    MemoryHolderKind("holder") {
        Clients = "clients",
        Servers = "servers",
    }

    /// Outcome of a call that could be retried.
    RetryOutcome("outcome") {
        Sent = "sent",
        OverBudget = "over_budget",
    }

    /// Outcome of a server's request that the gateway answers itself.
    ReplyOutcome("outcome") {
        Answered = "answered",
        Delayed = "delayed",
        Dropped = "dropped",
    }

    /// Outcome of a client's return for the rest of a stream.
    ResumeOutcome("outcome") {
        Resumed = "resumed",
        PreviousProcess = "former",
        Unknown = "unknown",
    }

    /// Outcome of a server's request to a client.
    InputOutcome("outcome") {
        Asked = "asked",
        NotDeclared = "not_declared",
        NotReadable = "no_stream",
        Refused = "refused",
        TooMany = "too_many",
        Unattributed = "unattributed",
    }

    /// State that a task is kept for.
    TaskRetention("kept") {
        InputRequired = "asked",
        Finished = "finished",
    }

    /// Outcome of a request's credentials.
    AuthOutcome("outcome") {
        Accepted = "accepted",
        Missing = "missing",
        Wrong = "wrong",
    }

    /// Outcome of a reload of the certificate.
    CertificateReload("outcome") {
        Loaded = "loaded",
        Refused = "refused",
    }

    /// Outcome of a reload of the config.
    ConfigReload("outcome") {
        Applied = "applied",
        Refused = "refused",
        Unchanged = "unchanged",
    }
}

names! {
    /// Rule that denied a request: `host`, `origin`, `endpoint`, `admin_key`, or a kind of item.
    DeniedRule("rule");
    /// Kind of input that a server asked for: the client's capability, or `any`.
    InputKindName("kind");
    /// Kind of items in a list.
    ItemKindName("kind");
    /// State of a server.
    ServerStateName("state");
    /// Revision of the client.
    ClientRevision("from");
    /// Revision of the server.
    ServerRevision("to");
    /// Cause of a refused `requestState`.
    StateRefusal("reason");
    /// Limit of people's logins that refused something.
    BrokerLimit("limit");
    /// Cause of a login's end.
    LoginEnd("cause");
    /// Outcome of a request to the company's login.
    ProviderOutcome("outcome");
}
