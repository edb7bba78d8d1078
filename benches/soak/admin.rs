//! The gateway's listener for operators: metrics, status, orders.

use crate::http::Connection;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::timeout;

/// The longest time for an answer; a restart of a server takes a moment.
const PATIENCE: Duration = Duration::from_secs(60);

/// One look at all metrics.
pub(crate) struct MetricsSample(BTreeMap<String, f64>);

pub(crate) async fn metrics(address: SocketAddr) -> Result<MetricsSample> {
    let text = page(address, "GET", "/metrics").await?;
    let series = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
    Ok(MetricsSample(series.collect()))
}

/// The status of all servers.
pub(crate) async fn status(address: SocketAddr) -> Result<Vec<Value>> {
    let status: Value = serde_json::from_str(&page(address, "GET", "/api/v1/status").await?)?;
    Ok(status["servers"].as_array().context("no servers")?.clone())
}

/// Has something done.
pub(crate) async fn order(address: SocketAddr, path: &str) -> Result<String> {
    page(address, "POST", path).await
}

/// On a connection of its own, so that nothing of the looking is left in what is looked at.
async fn page(address: SocketAddr, verb: &str, path: &str) -> Result<String> {
    let request = format!("{verb} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\n\r\n");
    let asked = async {
        let mut connection = Connection::open(address).await?;
        let head = connection.exchange(request.as_bytes()).await?;
        let text = String::from_utf8_lossy(&connection.body).into_owned();
        ensure!(
            matches!(head.status, 200 | 422),
            "{verb} {path}: HTTP {}: {text}",
            head.status
        );
        Ok(text)
    };
    timeout(PATIENCE, asked)
        .await
        .with_context(|| format!("{verb} {path}: no answer"))?
}

impl MetricsSample {
    /// The sum of a metric's series that have all of these labels.
    pub(crate) fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let fits = |series: &str| {
            let (metric, tags) = series.split_once('{').unwrap_or((series, ""));
            metric == name && labels.iter().all(|label| tags.contains(label))
        };
        self.0
            .iter()
            .filter(|(series, _)| fits(series))
            .map(|(_, value)| value)
            .sum()
    }

    /// One series, if it is there.
    pub(crate) fn get(&self, series: &str) -> Option<f64> {
        self.0.get(series).copied()
    }

    /// How many series there are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The series of these metrics, with their values.
    pub(crate) fn of(&self, names: &[&str]) -> BTreeMap<String, f64> {
        let fits = |series: &&String| names.contains(&series.split('{').next().unwrap_or_default());
        self.0
            .iter()
            .filter(|(series, _)| fits(series))
            .map(|(series, value)| (series.clone(), *value))
            .collect()
    }

    /// All values of labels, but for the bounds of histograms.
    pub(crate) fn labels(&self) -> BTreeSet<String> {
        let tags = self
            .0
            .keys()
            .filter_map(|series| series.split_once('{')?.1.strip_suffix('}'));
        let pairs = tags
            .flat_map(|tags| tags.split("\","))
            .filter_map(|pair| pair.split_once("=\""));
        pairs
            .filter(|(name, _)| *name != "le")
            .map(|(_, value)| value.trim_end_matches('"').to_owned())
            .collect()
    }
}
