//! `moongate explain`: whether a key may call a tool, and which line of the config decides. Owns
//! the report.
//!
//! Does not decide: the gateway does, or one at rest that was made of the config. Invariant: exit
//! code 0 means that the tool can be called.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use moongate_api::{ApiError, ExplainedRule, ToolExplanation};
use moongate_config::{Plan, SettingLocations};
use moongate_gateway::remedy;
use serde::Serialize;

use crate::app::gateway_at_rest;
use crate::cli::admin_client::GatewayArgs;
use crate::cli::process::{print_message, report_unusable};
use crate::cli::table_format::TableFormat;

/// Time limit of the running gateway's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Flags of `explain`.
#[derive(Clone, Debug, clap::Args)]
pub struct ExplainArgs {
    /// The name of a key, `anybody` if there are no keys, `role:NAME`, or a person
    principal: String,
    /// The tool, as clients see it
    tool: String,
    /// The endpoint: a view or a server, as in `/mcp/NAME`; default: `/mcp`
    #[arg(long, value_name = "NAME", default_value_t, hide_default_value = true)]
    endpoint: String,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: TableFormat,
    #[command(flatten)]
    gateway: GatewayArgs,
}

/// Explanation, and the knowledge behind it.
struct ExplainReport {
    explanation: ToolExplanation,
    /// True if a running gateway answered.
    is_running: bool,
    /// Place and key of each rule, as far as the config has it.
    places: Vec<Option<(String, String)>>,
}

/// Explanation for programs.
#[derive(Serialize)]
struct ReportedExplanation {
    #[serde(flatten)]
    explanation: ToolExplanation<ReportedRule>,
    running: bool,
}

/// Rule for programs, with its place in the config.
#[derive(Serialize)]
struct ReportedRule {
    #[serde(flatten)]
    rule: ExplainedRule,
    place: Option<String>,
}

/// Explains a decision. Returns exit code 0 if the tool can be called, 1 if not, 2 if there is no
/// such key, role, person or endpoint, or more than one such person.
pub async fn run(args: ExplainArgs) -> anyhow::Result<ExitCode> {
    let options = args.gateway.load_options();
    let running = ask_gateway(&args).await;
    let is_running = !matches!(running, Ok(None));
    let answer = match running? {
        Some(answer) => answer,
        None => match moongate_config::load(&options) {
            Ok(loaded) => explain_plan(&args, &loaded.plan),
            Err(problems) => return Ok(report_unusable(&problems)),
        },
    };
    let explanation = match answer {
        Ok(explanation) => explanation,
        Err(message) => {
            print_message(&format!("error: {message}"));
            return Ok(ExitCode::from(2));
        }
    };
    // The decision is right without places, too.
    let places = SettingLocations::read(&options).ok();
    let places = explanation
        .rules
        .iter()
        .map(|rule| rule_location(places.as_ref()?, rule))
        .collect();
    let report = ExplainReport {
        explanation,
        is_running,
        places,
    };
    let text = match args.format {
        TableFormat::Table => report.text(),
        TableFormat::Json => report.json(),
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(if report.explanation.callable {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Explanation, or the message that the principal or endpoint is unknown.
type Answer = Result<ToolExplanation, String>;

impl ExplainArgs {
    fn endpoint(&self) -> &str {
        let endpoint = self.endpoint.trim_matches('/');
        if endpoint == "mcp" {
            ""
        } else {
            endpoint.strip_prefix("mcp/").unwrap_or(endpoint)
        }
    }
}

/// Requests the explanation of the running gateway. `None`: none is running.
async fn ask_gateway(args: &ExplainArgs) -> anyhow::Result<Option<Answer>> {
    let is_named = args.gateway.names_gateway();
    let client = match args.gateway.client() {
        Ok(client) => client,
        // A gateway that was named must answer: the config here may belong to another one.
        Err(error) if is_named => return Err(error),
        Err(_) => return Ok(None),
    };
    let query = url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs([
            ("principal", &*args.principal),
            ("tool", &args.tool),
            ("endpoint", args.endpoint()),
        ])
        .finish();
    let response = match client
        .send_request("GET", &format!("/api/v1/explain?{query}"), ANSWER_TIMEOUT)
        .await
    {
        Ok(response) => response,
        Err(error) if is_named => return Err(error),
        Err(_) => return Ok(None),
    };
    if response.status == 200 {
        return Ok(Some(Ok(response
            .read()
            .context("this gateway explains in another format")?)));
    }
    let ApiError { error, message } = response.read()?;
    let message = if message.is_empty() {
        "this gateway does not support this command".to_owned()
    } else {
        message
    };
    match error.as_str() {
        "unknown_principal" | "ambiguous_principal" | "unknown_endpoint" => Ok(Some(Err(message))),
        // Not answered by the config here: the running gateway may have other rules.
        _ => anyhow::bail!(message),
    }
}

/// Explains by the config alone.
fn explain_plan(args: &ExplainArgs, plan: &Plan) -> Answer {
    let (gateway, auth) = gateway_at_rest(plan);
    let answer = gateway.explain_tool(&auth, &args.principal, args.endpoint(), &args.tool);
    answer.map_err(|unclear| format!("there is {unclear}"))
}

/// Returns the key of a rule as the config has it, and its location.
fn rule_location(places: &SettingLocations, rule: &ExplainedRule) -> Option<(String, String)> {
    let found = places.find(&rule.key)?;
    let place = found.origin.location()?;
    Some((found.key, place))
}

impl ExplainReport {
    fn json(&self) -> String {
        let mut places = self.places.iter();
        let explanation = self.explanation.clone().map_rules(|rule| {
            let place = places
                .next()
                .and_then(|place| place.as_ref())
                .map(|(_, place)| place.clone());
            ReportedRule { rule, place }
        });
        let report = ReportedExplanation {
            explanation,
            running: self.is_running,
        };
        serde_json::to_string_pretty(&report).unwrap_or_default() + "\n"
    }

    fn text(&self) -> String {
        let ToolExplanation {
            principal,
            tool,
            endpoint,
            server,
            state,
            local_name,
            ..
        } = &self.explanation;
        let is_assumed = self.explanation.callable && self.explanation.listed.is_none();
        let mut out = match (self.explanation.callable, is_assumed) {
            (true, false) => format!("yes: {principal} may call {tool} at {endpoint}\n"),
            (true, true) => {
                format!("yes: {principal} may call {tool} at {endpoint}, if the server offers it\n")
            }
            (false, _) => {
                format!(
                    "no: {principal} may not call {tool} at {endpoint} (it looks unknown to \
                     {principal})\n"
                )
            }
        };
        if let (Some(server), Some(state)) = (server, state) {
            let state = if self.is_running {
                state
            } else {
                "not checked, since no gateway is running"
            };
            out += &format!("  server {server}  {state}\n");
        }
        for (rule, place) in self.explanation.rules.iter().zip(&self.places) {
            out += &rule_line(rule, place.as_ref());
        }
        match &self.explanation.other_endpoints[..] {
            [] if self.explanation.callable => {}
            [] => out += "  not at any other endpoint either\n",
            others => {
                let _ = writeln!(out, "  also at {}", others.join(", "));
            }
        }
        let deciding = self
            .explanation
            .rules
            .iter()
            .zip(&self.places)
            .find(|(rule, _)| rule.decides);
        if let Some((rule, place)) = deciding {
            let place = place
                .as_ref()
                .map(|(key, place)| format!("{key} ({place})"));
            let place = place.unwrap_or_else(|| rule.key.join("."));
            let _ = writeln!(
                out,
                "to change: {}",
                remedy(rule, local_name.as_deref().unwrap_or(tool), &place)
            );
        }
        out
    }
}

fn rule_line(rule: &ExplainedRule, place: Option<&(String, String)>) -> String {
    let mut line = String::from(" ");
    if !rule.key.is_empty() {
        let key = place.map_or_else(|| rule.key.join("."), |(key, _)| key.clone());
        let name = rule
            .key
            .get(2)
            .filter(|_| rule.key[0] == "auth")
            .map(|name| format!(" {name:?}"));
        line += &format!(" {key}{}", name.unwrap_or_default());
    }
    if !rule.value.is_empty() {
        line += &format!(" = {:?}", rule.value);
    }
    if let Some((_, place)) = place {
        line += &format!("  {place}");
    }
    let verdict = match (rule.allows, rule.decides) {
        (true, _) => "allows",
        (false, true) => "<- decides",
        (false, false) => "refuses, too",
    };
    format!("{line}  {verdict}: {}\n", rule.reason)
}
