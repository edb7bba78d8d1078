//! `moongate popular`: servers that need no more than their name to be added. Owns the table that
//! is printed.
//!
//! Does not own the servers (`moongate_config`). Invariant: nothing is fetched.

use std::io::Write;
use std::process::ExitCode;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use moongate_api::PopularRow;
use serde::Serialize;

use crate::cli::client::table::columns;
use crate::cli::process::print_message;
use crate::cli::table_format::TableFormat;
use moongate_config::{PROBE_DAYS_MAX, PopularServer, popular_servers};

/// Flags of `popular`.
#[derive(Clone, Debug, clap::Args)]
pub struct PopularArgs {
    /// Only servers with this word in their name, title or purpose
    #[arg(value_name = "WORD")]
    word: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: TableFormat,
}

/// Prints the servers. Returns exit code 1 if none fits.
pub fn run(args: &PopularArgs) -> anyhow::Result<ExitCode> {
    let word = args.word.as_deref().unwrap_or_default().to_lowercase();
    let found: Vec<&PopularServer> = popular_servers()
        .iter()
        .filter(|server| has_word(server, &word))
        .collect();
    let today = jiff::Timestamp::now().to_zoned(TimeZone::UTC).date();
    let text = match args.format {
        TableFormat::Table if found.is_empty() => String::new(),
        TableFormat::Table => table(&found, today),
        TableFormat::Json => serde_json::to_string_pretty(&rows(&found, today))? + "\n",
    };
    std::io::stdout().write_all(text.as_bytes())?;
    if found.is_empty() {
        print_message(&format!(
            "no popular server matches {word:?}; `moongate popular` lists all"
        ));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn has_word(server: &PopularServer, word: &str) -> bool {
    [&server.name, &server.title, &server.purpose]
        .into_iter()
        .any(|text| text.to_lowercase().contains(word))
}

fn table(servers: &[&PopularServer], today: Date) -> String {
    let rows: Vec<Vec<String>> = servers
        .iter()
        .map(|server| {
            vec![
                server.usage(),
                server.purpose.clone(),
                key(server),
                probe(server, today),
                server.target(),
            ]
        })
        .collect();
    columns(&["NAME", "FOR", "KEY", "PROBED", "SERVER"], &rows)
}

fn key(server: &PopularServer) -> String {
    match &server.key {
        None => "none".to_owned(),
        Some(key) if key.required => key.variable.clone(),
        Some(_) => "optional".to_owned(),
    }
}

/// Says how far the entry can be trusted: a server may have moved since somebody checked.
fn probe(server: &PopularServer, today: Date) -> String {
    match server.probed() {
        // A program has a version that is pinned, and no host that could be gone.
        None if server.command.is_some() => "pinned".to_owned(),
        None => "never".to_owned(),
        Some(day) if server.is_stale(today) => format!("{day}, over {PROBE_DAYS_MAX} days ago"),
        Some(day) => day.to_string(),
    }
}

/// Servers for programs.
#[derive(Serialize)]
struct PopularRows {
    servers: Vec<PopularRow>,
}

fn rows(servers: &[&PopularServer], today: Date) -> PopularRows {
    PopularRows {
        servers: servers.iter().map(|server| server.row(today)).collect(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_table_tells_what_is_needed_and_how_old_a_probe_is() {
        let mdn: Vec<&PopularServer> = popular_servers()
            .iter()
            .filter(|server| has_word(server, "platform"))
            .collect();
        let text = table(&mdn, "2027-06-01".parse().unwrap());
        assert!(
            text.contains("over 120 days ago") && text.contains("https://mcp.mdn.mozilla.net"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 2, "{text}");
        let all: Vec<&PopularServer> = popular_servers().iter().collect();
        let text = table(&all, "2026-11-23".parse().unwrap());
        assert!(
            !text.contains("days ago") && !text.contains('…'),
            "no cell is cut: {text}"
        );
        for part in ["files DIR...", "optional", "pinned", "never"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
