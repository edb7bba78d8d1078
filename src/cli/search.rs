//! `moongate search`: tools of a running gateway that fit some words. Owns the lines that it
//! prints.
//!
//! Does not rank: the gateway does. Invariant: a model in search mode finds the same tools in the
//! same order.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use moongate_api::ToolSearch;

use crate::cli::admin_client::{GatewayArgs, read_error};
use crate::cli::process::print_message;
use crate::cli::table_format::TableFormat;

/// Flags of `search`.
#[derive(Clone, Debug, clap::Args)]
pub struct SearchArgs {
    /// What the tool should do, in a few words
    #[arg(required = true, value_name = "WORD")]
    words: Vec<String>,
    /// Search only this view or server, as /mcp/NAME
    #[arg(long, value_name = "NAME", default_value_t, hide_default_value = true)]
    endpoint: String,
    /// How many tools to show
    #[arg(long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u8).range(1..=100))]
    limit: u8,
    #[command(flatten)]
    gateway: GatewayArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: TableFormat,
}

/// Searches and prints what fits. Returns exit code 1 if nothing does.
pub async fn run(args: SearchArgs) -> anyhow::Result<ExitCode> {
    let admin = args.gateway.client()?;
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.append_pair("q", &args.words.join(" "));
    query
        .append_pair("endpoint", &args.endpoint)
        .append_pair("limit", &args.limit.to_string());
    let (status, body) = admin
        .get(&format!("/api/v1/search?{}", query.finish()))
        .await?;
    if status != 200 {
        let refused = read_error(&body).message;
        let why = if refused.is_empty() {
            "is it an older version?"
        } else {
            &refused
        };
        anyhow::bail!("the gateway refuses: HTTP status {status}; {why}");
    }
    let answer: ToolSearch =
        serde_json::from_slice(&body).context("the gateway's answer cannot be read")?;
    let mut out = std::io::stdout().lock();
    if args.format == TableFormat::Json {
        out.write_all(&body)?;
        writeln!(out)?;
    } else {
        for tool in &answer.tools {
            let notes: String = tool.notes.iter().map(|note| format!(" [{note}]")).collect();
            writeln!(out, "{}{notes}", tool.signature)?;
            if !tool.description.is_empty() {
                writeln!(out, "  {}", tool.description)?;
            }
        }
        print_message(&match answer.tools.is_empty() {
            true => format!(
                "none of {} tools matches; describe it in other words, or list all with `moongate \
                 tools`",
                answer.total
            ),
            false => format!("{} of {} tools", answer.tools.len(), answer.total),
        });
    }
    Ok(if answer.tools.is_empty() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}
