//! Other gateways, started by the user, measured in the same rows.

use crate::harness::target::{LoadTarget, RepeatedRequest};
use crate::harness::wire::ProtocolEra;
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use std::net::SocketAddr;

/// One way to call another gateway.
#[derive(Clone, Debug)]
pub(crate) struct PeerGateway {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    path: String,
    /// What it calls a tool: `{}` stands for the upstream's own name.
    tools: String,
    /// The client's era and the server's, which say in which rows it takes part.
    pub(crate) client: ProtocolEra,
    pub(crate) server: ProtocolEra,
    pid: Option<u32>,
}

/// Reads `NAME=URL[,tools=PATTERN][,client=ERA][,server=ERA][,pid=PID]`.
pub(crate) fn parse(text: &str) -> Result<PeerGateway> {
    let mut parts = text.split(',');
    let (name, url) = parts
        .next()
        .and_then(|first| first.split_once('='))
        .context("expected NAME=URL")?;
    let rest = url
        .strip_prefix("http://")
        .context("the URL must start with http://")?;
    let (address, path) = rest.split_once('/').unwrap_or((rest, "mcp"));
    let address = address.replace("localhost", "127.0.0.1");
    let mut peer = PeerGateway {
        name: name.to_owned(),
        address: address
            .parse()
            .with_context(|| format!("{address:?} is not IP:PORT"))?,
        path: format!("/{path}"),
        tools: "{}".to_owned(),
        client: ProtocolEra::Legacy,
        server: ProtocolEra::Legacy,
        pid: None,
    };
    for part in parts {
        let era = |name: &str| ProtocolEra::from_str(name, false).map_err(anyhow::Error::msg);
        match part.split_once('=') {
            Some(("tools", pattern)) => peer.tools = pattern.to_owned(),
            Some(("client", name)) => peer.client = era(name)?,
            Some(("server", name)) => peer.server = era(name)?,
            Some(("pid", pid)) => peer.pid = Some(pid.parse()?),
            _ => bail!("not understood: {part:?}"),
        }
    }
    Ok(peer)
}

impl PeerGateway {
    pub(crate) fn call(&self, tool: &'static str) -> LoadTarget {
        let op = RepeatedRequest::Call {
            tool,
            exposed: self.tools.replace("{}", tool),
        };
        LoadTarget {
            address: self.address,
            path: self.path.clone(),
            era: self.client,
            op,
            key: None,
            fixed: false,
        }
    }

    /// The process to look at: as given, else whoever listens on its port.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.pid.or_else(|| listener(self.address.port()))
    }
}

/// The process that listens on a TCP port, as far as we may see.
fn listener(port: u16) -> Option<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"]
        .map(|path| std::fs::read_to_string(path).unwrap_or_default());
    let inode = tables
        .iter()
        .flat_map(|table| table.lines())
        .find_map(|line| {
            let mut fields = line.split_whitespace();
            let local = fields.nth(1)?;
            let listens = fields.nth(1)? == "0A";
            let inode = fields.nth(5)?;
            (listens && local.ends_with(&format!(":{port:04X}"))).then(|| inode.to_owned())
        })?;
    let wanted = format!("socket:[{inode}]");
    std::fs::read_dir("/proc")
        .ok()?
        .flatten()
        .find_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let mut files = std::fs::read_dir(entry.path().join("fd")).ok()?.flatten();
            files
                .any(|file| {
                    std::fs::read_link(file.path())
                        .is_ok_and(|link| link.as_os_str() == wanted.as_str())
                })
                .then_some(pid)
        })
}
