//! `moongate status`: how each server of a running gateway is, why, and what comes next.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use serde::Deserialize;

use crate::cli::admin::GatewayArgs;

/// Flags of `status`.
#[derive(Clone, Debug, clap::Args)]
pub struct StatusArgs {
    #[command(flatten)]
    gateway: GatewayArgs,
    /// How it is printed
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

/// How the status is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people: a line for each server
    Table,
    /// As the gateway answers it
    Json,
}

/// Body of a refusal.
#[derive(Default, Deserialize)]
struct Refused {
    message: Option<String>,
}

#[derive(Deserialize)]
struct Status {
    servers: Vec<Server>,
}

#[derive(Deserialize)]
struct Server {
    name: String,
    state: String,
    reason: String,
    next_attempt_seconds: Option<f64>,
    revision: Option<String>,
    #[serde(default)]
    shared: Vec<SharedConnection>,
    tools: u64,
}

/// A connection that all clients of an era share.
#[derive(Deserialize)]
struct SharedConnection {
    revision: String,
}

impl Server {
    /// What is spoken with it: more than one revision where clients of both eras call.
    fn revisions(&self) -> String {
        let shared: Vec<&str> = self.shared.iter().map(|shared| shared.revision.as_str()).collect();
        if shared.is_empty() { self.revision.clone().unwrap_or_default() } else { shared.join("+") }
    }
}

/// Asks `/api/v1/status`. Exit code 1: nobody answers.
pub async fn run(args: StatusArgs) -> anyhow::Result<ExitCode> {
    let admin = args.gateway.client()?;
    let (status, body) = admin.get("/api/v1/status").await?;
    if status != 200 {
        let refused: Refused = serde_json::from_slice(&body).unwrap_or_default();
        let why = refused.message.unwrap_or_else(|| "is --admin one of its addresses?".to_owned());
        anyhow::bail!("the gateway refuses: HTTP status {status}; {why}");
    }
    let mut out = std::io::stdout().lock();
    if args.format == Format::Json {
        out.write_all(&body)?;
        writeln!(out)?;
        return Ok(ExitCode::SUCCESS);
    }
    let status: Status = serde_json::from_slice(&body).context("the gateway's answer cannot be read")?;
    write!(out, "{}", table(&status.servers))?;
    Ok(ExitCode::SUCCESS)
}

fn table(servers: &[Server]) -> String {
    let head = ["SERVER", "STATE", "TOOLS", "REVISION", "NEXT", "REASON"].map(str::to_owned);
    let rows = servers.iter().map(|server| {
        let next = server.next_attempt_seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.0}s"));
        let or_none = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        [
            server.name.clone(),
            server.state.clone(),
            server.tools.to_string(),
            or_none(&server.revisions()),
            next,
            // One line each, whatever a server put into its reason.
            or_none(&crate::telemetry::logs::one_line(&server.reason)),
        ]
    });
    let rows: Vec<[String; 6]> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; 6] = std::array::from_fn(width);
    let line = |row: &[String; 6]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect::<Vec<_>>();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_each_server() {
        let server = |name: &str, state: &str, reason: &str, next| Server {
            name: name.to_owned(),
            state: state.to_owned(),
            reason: reason.to_owned(),
            next_attempt_seconds: next,
            revision: next.is_none().then(|| "a date".to_owned()),
            shared: Vec::new(),
            tools: 7,
        };
        let both = ["new", "old"].map(|revision| SharedConnection { revision: revision.to_owned() });
        assert_eq!(Server { shared: both.into(), ..server("a", "ready", "", None) }.revisions(), "new+old");
        let text = table(&[server("files", "ready", "", None), server("b", "backing_off", "refused\nhere", Some(3.4))]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "SERVER  STATE        TOOLS  REVISION  NEXT  REASON");
        assert_eq!(lines[1], "files   ready        7      a date    -     -");
        assert!(
            lines[2].starts_with("b       backing_off  7      -         3s    refused") && lines.len() == 3,
            "{text}"
        );
    }
}
