//! `moongate logins`: lists and ends people's logins at a running gateway. Owns the table and the
//! exit codes.
//!
//! Does not keep or end logins, which the gateway does. Invariant: an ambiguous name ends no login.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use moongate_api::{PeopleList, PersonItem, RevokeReport, SeveralPeople};
use moongate_telemetry::logs;
use url::Url;

use crate::cli::admin_client::{AdminClient, GatewayArgs, read_error};
use crate::cli::aligned_table::aligned;
use crate::cli::process::print_message;
use crate::cli::table_format::TableFormat;

/// Time limit for ending a person's logins, each of which is written to disk.
const REVOKE_TIMEOUT: Duration = Duration::from_secs(60);

/// Flags of `logins`.
#[derive(Clone, Debug, clap::Args)]
pub struct LoginsArgs {
    /// `revoke` ends a login by its id, or all logins of a person by name; default: list all
    #[arg(value_enum, requires = "who")]
    action: Option<LoginsAction>,
    /// The id of a login, or the name of a person
    #[arg(value_name = "ID|NAME")]
    who: Option<String>,
    #[command(flatten)]
    gateway: GatewayArgs,
    /// Output format of the list
    #[arg(long, value_enum, default_value_t)]
    format: TableFormat,
}

/// Actions on logins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LoginsAction {
    /// End logins
    Revoke,
}

/// Lists logins, or ends some. Returns exit code 1 if no gateway answers or the revocation is not
/// on disk, and 2 if there is no such login or the name is ambiguous.
pub async fn run(args: LoginsArgs) -> anyhow::Result<ExitCode> {
    let admin = args.gateway.client()?;
    match (args.action, &args.who) {
        (Some(LoginsAction::Revoke), Some(who)) => revoke(&admin, who).await,
        _ => list(&admin, args.format).await,
    }
}

async fn list(admin: &AdminClient, format: TableFormat) -> anyhow::Result<ExitCode> {
    let (status, body) = admin.get("/api/v1/people").await?;
    if status != 200 {
        return Err(refused(status, &body));
    }
    let mut out = std::io::stdout().lock();
    if format == TableFormat::Json {
        // The body verbatim, because a newer gateway may send members that this version does not
        // know.
        out.write_all(&body)?;
        writeln!(out)?;
        return Ok(ExitCode::SUCCESS);
    }
    let people: PeopleList =
        serde_json::from_slice(&body).context("the gateway's answer cannot be read")?;
    for finding in &people.findings {
        print_message(&format!("warning: {}", logs::one_line(finding)));
    }
    if people.logins.is_empty() {
        print_message("nobody is logged in");
    } else {
        out.write_all(table(&people.logins).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn revoke(admin: &AdminClient, who: &str) -> anyhow::Result<ExitCode> {
    let path = person_path(who);
    let answer = admin.send_request("DELETE", &path, REVOKE_TIMEOUT).await?;
    if answer.status == 200 {
        let report: RevokeReport = answer.read()?;
        print_message(&describe_report(&report));
        return Ok(match report.on_disk {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        });
    }
    let error = answer.error();
    match error.error.as_str() {
        "ambiguous_person" => {
            let several: SeveralPeople = answer.read()?;
            print_message(&format!(
                "error: several people are called {who:?}, so nothing was revoked; use an id:\n{}",
                table(&several.logins).trim_end()
            ));
            Ok(ExitCode::from(2))
        }
        "not_found" if error.message.contains("login") => {
            print_message(&format!(
                "error: there is no login with the id or name {who:?}; `moongate logins` lists all"
            ));
            Ok(ExitCode::from(2))
        }
        _ => Err(refusal(answer.status, &error.message)),
    }
}

fn refused(status: u16, body: &[u8]) -> anyhow::Error {
    refusal(status, &read_error(body).message)
}

/// Explains why the gateway did nothing. An older one lacks the route.
fn refusal(status: u16, message: &str) -> anyhow::Error {
    let why = match message {
        "" => "is it an older version, and --admin one of its addresses?",
        message => message,
    };
    anyhow::anyhow!("the gateway refuses: HTTP status {status}; {why}")
}

/// Returns the path of a login or a person, in percent encoding.
fn person_path(who: &str) -> String {
    let Ok(mut url) = Url::parse("http://localhost/api/v1/people") else {
        return String::new();
    };
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.push(who);
    }
    url.path().to_owned()
}

fn describe_report(report: &RevokeReport) -> String {
    let logins = match report.ended {
        1 => "1 login".to_owned(),
        number => format!("{number} logins"),
    };
    match &report.message {
        Some(message) => format!("revoked {logins}. warning: {}", logs::one_line(message)),
        None => format!("revoked {logins}"),
    }
}

fn table(logins: &[PersonItem]) -> String {
    let head = [
        "ID",
        "NAME",
        "ROLES",
        "CLIENT",
        "ENDPOINT",
        "SINCE",
        "LAST USED",
        "REPLAYS",
    ]
    .map(str::to_owned);
    let rows = logins.iter().map(|login| {
        [
            login.id.clone(),
            // One line each, whatever name a company's login or a client supplies.
            logs::one_line(&login.name),
            match login.roles.as_slice() {
                [] => "-".to_owned(),
                roles => logs::one_line(&roles.join(",")),
            },
            logs::one_line(&login.client),
            login.endpoint.clone(),
            minute(&login.since),
            minute(&login.last_used),
            login.replays.to_string(),
        ]
    });
    let rows: Vec<[String; 8]> = std::iter::once(head).chain(rows).collect();
    aligned(&rows)
}

/// Writes a time in UTC to the minute.
fn minute(time: &str) -> String {
    time.get(..16).unwrap_or(time).replace('T', " ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        logins: LoginsArgs,
    }

    fn parsed(words: &[&str]) -> Option<LoginsArgs> {
        let line = Line::try_parse_from(["logins"].iter().chain(words)).ok()?;
        Some(line.logins)
    }

    #[test]
    fn an_action_names_a_login_or_a_person() {
        let listed = parsed(&[]).unwrap();
        assert!(listed.action.is_none() && listed.who.is_none());
        let ended = parsed(&["revoke", "ann@example.com"]).unwrap();
        assert_eq!(ended.action, Some(LoginsAction::Revoke));
        assert_eq!(ended.who.as_deref(), Some("ann@example.com"));
        assert!(parsed(&["revoke"]).is_none());
        assert!(parsed(&["ann@example.com"]).is_none());
    }

    #[test]
    fn a_name_stays_one_segment_of_the_path() {
        for (who, path) in [
            ("ann@example.com", "/api/v1/people/ann@example.com"),
            ("a/b", "/api/v1/people/a%2Fb"),
            ("a b?c#d%", "/api/v1/people/a%20b%3Fc%23d%25"),
        ] {
            assert_eq!(person_path(who), path);
        }
    }

    #[test]
    fn a_login_is_one_line_whatever_its_name_contains() {
        let login = PersonItem {
            id: "0a".to_owned(),
            name: "ann\nroot".to_owned(),
            roles: vec!["staff".to_owned(), "admins".to_owned()],
            client: "Claude".to_owned(),
            endpoint: "/mcp".to_owned(),
            since: "2026-07-01T10:20:30Z".to_owned(),
            last_used: "2026-07-02T10:20:30Z".to_owned(),
            checked: "2026-07-02T10:20:30Z".to_owned(),
            replays: 1,
        };
        let text = table(&[login]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        for part in ["0a", "staff,admins", "Claude", "/mcp", "2026-07-01 10:20"] {
            assert!(lines[1].contains(part), "{part}: {text}");
        }
        assert!(lines[0].starts_with("ID  NAME"), "{text}");
    }

    #[test]
    fn an_end_that_is_only_in_memory_is_said() {
        let mut report = RevokeReport {
            ended: 1,
            on_disk: true,
            message: None,
        };
        assert_eq!(describe_report(&report), "revoked 1 login");
        report.ended = 2;
        assert_eq!(describe_report(&report), "revoked 2 logins");
        report.message = Some("not on disk".to_owned());
        let said = describe_report(&report);
        assert_eq!(said, "revoked 2 logins. warning: not on disk");
    }
}
