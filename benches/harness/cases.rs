//! What is measured: the rows of the tables.

use super::wire::{ECHO_TOOLS, ProtocolEra};

/// How the gateway reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerWire {
    Http,
    Stdio,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AskedFor {
    Call(&'static str),
    List(usize),
}

/// One row: measured on each target in turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BenchCase {
    pub(crate) client: ProtocolEra,
    pub(crate) server: ProtocolEra,
    pub(crate) wire: ServerWire,
    pub(crate) ask: AskedFor,
    pub(crate) connections: usize,
}

impl BenchCase {
    pub(crate) fn label(&self) -> String {
        let (client, server) = (self.client.name(), self.server.name());
        let stdio = if self.wire == ServerWire::Stdio {
            " stdio"
        } else {
            ""
        };
        match self.ask {
            AskedFor::List(tools) => format!("{client}, {tools} tools"),
            AskedFor::Call(tool) => {
                let size = if tool.starts_with("echo10k") {
                    "10 KiB"
                } else {
                    "64 B"
                };
                let kind = if tool.ends_with("_sse") {
                    "SSE"
                } else {
                    "JSON"
                };
                format!("{client} → {server}{stdio}, {size} {kind}")
            }
        }
    }

    /// The name of the server in the gateway's configuration.
    pub(crate) fn server_name(&self) -> &'static str {
        match (self.wire, self.ask, self.server) {
            (ServerWire::Stdio, ..) => "stdio",
            (_, AskedFor::List(1000), _) => "many",
            (_, _, ProtocolEra::Legacy) => "legacy",
            (_, _, ProtocolEra::Modern) => "modern",
        }
    }
}

/// Rows of calls.
pub(crate) fn calls(quick: bool) -> Vec<BenchCase> {
    use ProtocolEra::{Legacy, Modern};
    let mut cases = Vec::new();
    for connections in [16, 1] {
        for (client, server) in [(Legacy, Legacy), (Modern, Modern), (Modern, Legacy)] {
            for tool in ECHO_TOOLS {
                if connections == 16 || !quick || tool == "echo64" {
                    cases.push(BenchCase {
                        client,
                        server,
                        wire: ServerWire::Http,
                        ask: AskedFor::Call(tool),
                        connections,
                    });
                }
            }
        }
        let ask = AskedFor::Call("echo64");
        cases.push(BenchCase {
            client: Legacy,
            server: Modern,
            wire: ServerWire::Http,
            ask,
            connections,
        });
        cases.push(BenchCase {
            client: Legacy,
            server: Legacy,
            wire: ServerWire::Stdio,
            ask,
            connections,
        });
    }
    cases
}

/// Rows of lists: the server is a legacy one, which makes no difference, for the gateway answers
/// from memory.
pub(crate) fn lists() -> Vec<BenchCase> {
    let row = |(client, tools)| BenchCase {
        client,
        server: ProtocolEra::Legacy,
        wire: ServerWire::Http,
        ask: AskedFor::List(tools),
        connections: 16,
    };
    [
        (ProtocolEra::Legacy, 10),
        (ProtocolEra::Legacy, 1000),
        (ProtocolEra::Modern, 10),
        (ProtocolEra::Modern, 1000),
    ]
    .map(row)
    .to_vec()
}
