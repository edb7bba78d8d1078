//! What is measured: the rows of the tables.

use crate::wire::{ECHO_TOOLS, Era};

/// How the gateway reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Http,
    Stdio,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Call(&'static str),
    List(usize),
}

/// One row: measured on each target in turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) client: Era,
    pub(crate) server: Era,
    pub(crate) wire: Wire,
    pub(crate) ask: Ask,
    pub(crate) connections: usize,
}

impl Case {
    pub(crate) fn label(&self) -> String {
        let (client, server) = (self.client.name(), self.server.name());
        let stdio = if self.wire == Wire::Stdio { " stdio" } else { "" };
        match self.ask {
            Ask::List(tools) => format!("{client}, {tools} tools"),
            Ask::Call(tool) => {
                let size = if tool.starts_with("echo10k") { "10 KiB" } else { "64 B" };
                let kind = if tool.ends_with("_sse") { "SSE" } else { "JSON" };
                format!("{client} → {server}{stdio}, {size} {kind}")
            }
        }
    }

    /// The name of the server in the gateway's configuration.
    pub(crate) fn server_name(&self) -> &'static str {
        match (self.wire, self.ask, self.server) {
            (Wire::Stdio, ..) => "stdio",
            (_, Ask::List(1000), _) => "many",
            (_, _, Era::Legacy) => "legacy",
            (_, _, Era::Modern) => "modern",
        }
    }
}

/// Rows of calls.
pub(crate) fn calls(quick: bool) -> Vec<Case> {
    use Era::{Legacy, Modern};
    let mut cases = Vec::new();
    for connections in [16, 1] {
        for (client, server) in [(Legacy, Legacy), (Modern, Modern), (Modern, Legacy)] {
            for tool in ECHO_TOOLS {
                if connections == 16 || !quick || tool == "echo64" {
                    cases.push(Case { client, server, wire: Wire::Http, ask: Ask::Call(tool), connections });
                }
            }
        }
        let ask = Ask::Call("echo64");
        cases.push(Case { client: Legacy, server: Modern, wire: Wire::Http, ask, connections });
        cases.push(Case { client: Legacy, server: Legacy, wire: Wire::Stdio, ask, connections });
    }
    cases
}

/// Rows of lists: the server is a legacy one, which makes no difference, for the gateway answers from memory.
pub(crate) fn lists() -> Vec<Case> {
    let row = |(client, tools)| Case {
        client,
        server: Era::Legacy,
        wire: Wire::Http,
        ask: Ask::List(tools),
        connections: 16,
    };
    [(Era::Legacy, 10), (Era::Legacy, 1000), (Era::Modern, 10), (Era::Modern, 1000)].map(row).to_vec()
}
