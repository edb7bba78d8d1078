//! What the gateway under test says of itself on its metrics page.

use crate::harness::gateway::BenchGateway;
use crate::harness::http::Connection;
use anyhow::{Context, Result};
use std::net::SocketAddr;

impl BenchGateway {
    /// One series of its metrics.
    pub(crate) async fn metric(&self, series: &str) -> Result<f64> {
        let tail = self.process.tail();
        let at = tail
            .find("metrics and health on http://")
            .context("it does not say where its metrics are")?;
        let address = tail
            .get(at..)
            .and_then(|rest| rest.split("http://").nth(1)?.split_whitespace().next());
        let address: SocketAddr = address.unwrap_or_default().parse()?;
        let mut connection = Connection::open(address).await?;
        connection
            .exchange(format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes())
            .await?;
        let text = String::from_utf8_lossy(&connection.body).into_owned();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
        line.with_context(|| format!("no series {series}"))
    }
}
