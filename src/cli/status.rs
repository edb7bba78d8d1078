//! `moongate status`: state of each server of a running gateway, with its cause and the next step.
//! Owns the table.
//!
//! Does not collect the status: the admin listener does. Invariant: a server is one line, whatever
//! its reason contains.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;

use crate::cli::admin_client::{GatewayArgs, read_error};
use crate::cli::aligned_table::aligned;
use crate::cli::check_servers::topic_title;
use crate::cli::notes::{self, ServerNotes};
use crate::cli::table_format::TableFormat;
use moongate_api::{GatewayStatus, ServerCondition, ServerCounters, ServerFindings, ServerStatus};
use moongate_gateway::FindingTopic;

/// Maximum length of a target that is shown whole, in characters.
const TARGET_MAX: usize = 40;

/// Flags of `status`.
#[derive(Clone, Debug, clap::Args)]
pub struct StatusArgs {
    #[command(flatten)]
    gateway: GatewayArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: TableFormat,
}

/// Returns the notes about one server below the table.
fn server_notes(server: &ServerStatus) -> [ServerNotes<'_>; 5] {
    let ServerFindings {
        left_out,
        names,
        unmatched_filters,
        schemas,
        mended,
    } = &server.findings;
    let topics = [
        ("left out", left_out),
        (topic_title(FindingTopic::Name), names),
        (topic_title(FindingTopic::Filter), unmatched_filters),
        (topic_title(FindingTopic::Schema), schemas),
        (topic_title(FindingTopic::Mended), mended),
    ];
    topics.map(|(what, texts)| ServerNotes {
        server: Some(server.name()),
        what,
        texts: texts.iter().map(String::as_str).collect(),
    })
}

/// Returns the number of tools, and how many of them clients get if some are off.
fn tools_cell(counters: &ServerCounters) -> String {
    let ServerCounters {
        tools, tools_on, ..
    } = counters;
    if tools_on == tools {
        tools.to_string()
    } else {
        format!("{tools_on} of {tools}")
    }
}

/// Returns the revisions in use. There are two where clients of both eras call.
fn revisions_cell(condition: &ServerCondition) -> String {
    let shared: Vec<&str> = condition
        .shared
        .iter()
        .map(|shared| shared.revision.as_str())
        .collect();
    if shared.is_empty() {
        condition.revision.clone().unwrap_or_default()
    } else {
        shared.join("+")
    }
}

/// Requests `/api/v1/status` and prints it. Returns exit code 1 if no gateway answers.
pub async fn run(args: StatusArgs) -> anyhow::Result<ExitCode> {
    let admin = args.gateway.client()?;
    let (status, body) = admin.get("/api/v1/status").await?;
    if status != 200 {
        // Whatever listens there may not be a gateway, and its body then is anything.
        let refused = read_error(&body).message;
        let why = if refused.is_empty() {
            "is --admin one of its addresses?"
        } else {
            &refused
        };
        anyhow::bail!("the gateway refuses: HTTP status {status}; {why}");
    }
    let mut out = std::io::stdout().lock();
    if args.format == TableFormat::Json {
        // The body as it came: a newer gateway may send members that this version does not know.
        out.write_all(&body)?;
        writeln!(out)?;
        return Ok(ExitCode::SUCCESS);
    }
    let status: GatewayStatus =
        serde_json::from_slice(&body).context("the gateway's answer cannot be read")?;
    write!(out, "{}", table(&status.servers))?;
    write!(out, "{}", notes_text(&status))?;
    Ok(ExitCode::SUCCESS)
}

/// Formats a time in one unit.
fn short_time(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Cuts a target to the width of its column.
fn cut(target: &str) -> String {
    let text = moongate_telemetry::logs::one_line(target);
    // A cut in the middle of a character would panic.
    match text.char_indices().nth(TARGET_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// Returns the notes below the table.
fn notes_text(status: &GatewayStatus) -> String {
    let notes = status.servers.iter().flat_map(server_notes);
    let of_none = ServerNotes {
        server: None,
        what: topic_title(FindingTopic::Filter),
        texts: status
            .unmatched_filters
            .iter()
            .map(String::as_str)
            .collect(),
    };
    notes::lines(notes.chain([of_none]))
}

fn or_dash(text: &str) -> String {
    let shown = if text.is_empty() { "-" } else { text };
    shown.to_owned()
}

fn table(servers: &[ServerStatus]) -> String {
    let head = [
        "SERVER", "STATE", "SINCE", "TOOLS", "TOKENS", "REVISION", "TARGET", "NEXT", "REASON",
    ]
    .map(str::to_owned);
    let rows = servers.iter().map(|server| {
        let condition = &server.condition;
        let next = condition
            .next_attempt_seconds
            .map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.0}s"));
        [
            server.name().to_owned(),
            condition.state.name().to_owned(),
            condition
                .since_seconds
                .map_or_else(|| "-".to_owned(), short_time),
            tools_cell(&server.counters),
            server.counters.tokens.to_string(),
            or_dash(&revisions_cell(condition)),
            or_dash(&cut(server.identity.target.as_deref().unwrap_or_default())),
            next,
            // One line each, whatever a server put into its reason.
            or_dash(&moongate_telemetry::logs::one_line(&condition.reason)),
        ]
    });
    let rows: Vec<[String; 9]> = std::iter::once(head).chain(rows).collect();
    aligned(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_api::SharedConnection;
    use moongate_model::UpstreamState;

    fn server(name: &str, state: UpstreamState, reason: &str, next: Option<f64>) -> ServerStatus {
        let mut server = ServerStatus::default();
        server.identity.name = name.to_owned();
        server.identity.target = next.is_none().then(|| "npx server".to_owned());
        server.condition = ServerCondition {
            state,
            reason: reason.to_owned(),
            next_attempt_seconds: next,
            revision: next.is_none().then(|| "a date".to_owned()),
            since_seconds: Some(if next.is_none() { 7300 } else { 5 }),
            ..ServerCondition::default()
        };
        let tools_on = if next.is_none() { 5 } else { 7 };
        server.counters = ServerCounters {
            tools: 7,
            tools_on,
            tokens: 610,
            ..ServerCounters::default()
        };
        server
    }

    #[test]
    fn a_line_for_each_server() {
        let shared = ["new", "old"].map(|revision| SharedConnection {
            revision: revision.to_owned(),
            ..SharedConnection::default()
        });
        let both = ServerCondition {
            shared: shared.into(),
            ..ServerCondition::default()
        };
        assert_eq!(revisions_cell(&both), "new+old");
        let text = table(&[
            server("files", UpstreamState::Ready, "", None),
            server("b", UpstreamState::BackingOff, "refused\nhere", Some(3.4)),
        ]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "SERVER  STATE        SINCE  TOOLS   TOKENS  REVISION  TARGET      NEXT  REASON"
        );
        assert_eq!(
            lines[1],
            "files   ready        2h     5 of 7  610     a date    npx server  -     -"
        );
        assert!(
            lines[2].starts_with(
                "b       backing_off  5s     7       610     -         -           3s    refused"
            ),
            "{text}"
        );
        assert_eq!(lines.len(), 3);
        assert_eq!(
            [119, 121, 7200, 172_800].map(short_time),
            ["119s", "2m", "2h", "2d"]
        );
        assert_eq!(cut(&"a".repeat(41)), format!("{}…", "a".repeat(40)));
    }
}
