//! Checks of the clients on this machine.
//!
//! Owns which files are read. Does not know their forms (`moongate-clients`). Invariant: no
//! client's file is written.

use std::path::Path;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use moongate_clients::import::{
    ImportError, ImportState, ImportedServers, KnownServer, is_off, plan_import, read_file,
};
use moongate_clients::{
    ClientProfile, ConnectMethod, ExistingEntry, KEY_VARIABLE, UserDirectories, entry_target,
    existing_entry, lacks_key, shape_problem,
};
use moongate_config::ConfigProblems;
use moongate_config::edit::raw_entry;
use moongate_platform::{Platform, foreign_file};

use crate::app::configured_servers::known_servers;
use crate::app::doctor::{DoctorCode, DoctorFinding, ExaminedGateway};
use crate::cli::text_input::TEXT_MAX;

/// Name of our entry, unless the user chose another.
const ENTRY: &str = "moongate";

/// Days after which a row of the table is old. Clients change their formats every few months.
const AGE_MAX: i32 = 180;

/// Looks for problems of clients.
pub(super) fn check(gateway: &ExaminedGateway) -> Vec<DoctorFinding> {
    let directories = UserDirectories {
        env: &gateway.options.env,
        platform: Platform::CURRENT,
    };
    let today = jiff::Timestamp::now().to_zoned(TimeZone::UTC).date();
    let with_files =
        moongate_clients::clients().filter(|profile| profile.method == ConnectMethod::File);
    let known = known_servers(&gateway.options).unwrap_or_default();
    let mut found = Vec::new();
    for profile in with_files {
        let Some(path) = directories.file(profile).filter(|path| path.is_file()) else {
            continue;
        };
        // A new file may be empty, and one that cannot be read is its owner's.
        let text = foreign_file::read_text(&path, TEXT_MAX)
            .ok()
            .filter(|text| !text.trim().is_empty());
        let Some(text) = text else { continue };
        let place = Some(path.display().to_string());
        match read_file(&path, &text) {
            Err(ImportError::Unreadable(problems)) => found.extend(unreadable(profile, &problems)),
            Err(_) => {}
            Ok(read) => {
                let of_client = [
                    check_entry(gateway, profile, (&path, &text), today),
                    repeated(gateway, profile, read, &known),
                ];
                // A client's file may be our config itself.
                let is_own = gateway
                    .options
                    .paths
                    .iter()
                    .any(|own| own.canonicalize().ok() == path.canonicalize().ok());
                let shown = of_client
                    .into_iter()
                    .flatten()
                    .filter(|finding| !is_own || finding.code != DoctorCode::ClientRepeats);
                found.extend(shown.map(|finding| DoctorFinding {
                    place: place.clone(),
                    ..finding
                }));
            }
        }
    }
    found
}

/// Returns the first problem of a file that does not parse.
fn unreadable(profile: &ClientProfile, problems: &ConfigProblems) -> Option<DoctorFinding> {
    let problem = problems.errors.first()?;
    let message = format!("{}: {}", profile.title, problem.message);
    let finding = DoctorFinding::new(DoctorCode::ClientUnreadable, message, &problem.fix);
    Some(DoctorFinding {
        place: problem.origin.location(),
        ..finding
    })
}

/// Finds the client's servers that our config has, too.
fn repeated(
    gateway: &ExaminedGateway,
    profile: &ClientProfile,
    read: ImportedServers,
    known: &[KnownServer],
) -> Option<DoctorFinding> {
    let of_projects = read
        .projects
        .into_iter()
        .flat_map(|project| project.servers);
    let entries = read.servers.into_iter().chain(of_projects);
    // The client does not start what is off.
    let on = entries.filter(|server| !is_off(&server.settings));
    let entries = on.map(|server| (String::new(), server));
    let rows = plan_import(entries, known, &gateway.own, &gateway.options.env);
    let same = rows.iter().filter_map(|row| match &row.state {
        ImportState::Same { name } => Some(name.as_str()),
        _ => None,
    });
    let names: Vec<&str> = same
        .filter(|name| known.iter().any(|server| server.name == **name))
        .collect();
    let message = format!(
        "{}: it also has servers of this gateway: {}",
        profile.title,
        names.join(", ")
    );
    let fix = format!("moongate import {} --take-over", profile.id);
    (!names.is_empty()).then(|| DoctorFinding::new(DoctorCode::ClientRepeats, message, fix))
}

/// Returns what the client cannot read of our entry.
fn entry_problem(profile: &ClientProfile, path: &Path) -> Option<String> {
    shape_problem(profile, &raw_entry(path, ENTRY)?)
}

/// Judges our entry in a client's file.
fn check_entry(
    gateway: &ExaminedGateway,
    profile: &ClientProfile,
    (path, text): (&Path, &str),
    today: Date,
) -> Option<DoctorFinding> {
    let title = profile.title;
    let id = profile.id;
    // The shape first: an entry that cannot be read may look foreign, and the shape is the cause.
    if let Some(problem) = entry_problem(profile, path) {
        let fix = format!("moongate connect {id} --write --force");
        return Some(DoctorFinding::new(
            DoctorCode::ClientShape,
            format!("{title}: {problem}"),
            fix,
        ));
    }
    match existing_entry(path, text, ENTRY, &gateway.own) {
        // Without addresses of ours, each entry would look foreign.
        ExistingEntry::Foreign(entry) if gateway.addresses.is_some() => {
            let target = entry_target(&entry).unwrap_or("something else");
            let message = format!("{title}: the entry `{ENTRY}` points to {target}");
            let fix = format!("moongate connect {id} --write --force");
            Some(DoctorFinding::new(
                DoctorCode::ClientElsewhere,
                message,
                fix,
            ))
        }
        ExistingEntry::Ours => missing_key(gateway, profile, (path, text))
            .or_else(|| {
                many_tools(
                    profile,
                    gateway
                        .states
                        .iter()
                        .map(|server| server.counters.tools_on as usize)
                        .sum(),
                )
            })
            .or_else(|| age_problem(profile, today)),
        ExistingEntry::Foreign(_) | ExistingEntry::None => None,
    }
}

/// Returns a finding if the gateway needs a key, and the entry has none.
fn missing_key(
    gateway: &ExaminedGateway,
    profile: &ClientProfile,
    (path, text): (&Path, &str),
) -> Option<DoctorFinding> {
    let auth = gateway.loaded.as_ref().map(|loaded| &loaded.plan.auth).ok();
    let has_keys = auth.is_some_and(|auth| !auth.is_open());
    // Where people log in, only our bridge needs a key.
    let can_log_in = profile.http.is_some() && auth.is_some_and(|auth| auth.broker.is_some());
    // The client may pass its variables on to the program that it starts.
    let is_inherited = gateway.options.env.contains_key(KEY_VARIABLE);
    if !has_keys || can_log_in || !lacks_key(path, text, ENTRY, is_inherited) {
        return None;
    }
    let message = format!(
        "{}: the entry `{ENTRY}` has no key, but the gateway needs one",
        profile.title
    );
    let fix = format!("moongate connect {} --write --key NAME", profile.id);
    Some(DoctorFinding::new(
        DoctorCode::ClientWithoutKey,
        message,
        fix,
    ))
}

/// Returns a finding if the client accepts fewer tools than the gateway lists.
fn many_tools(profile: &ClientProfile, tools: usize) -> Option<DoctorFinding> {
    let most = profile.limits.tools.filter(|most| tools > *most)?;
    let message = format!(
        "{}: it accepts at most {most} tools, but there are {tools}",
        profile.title
    );
    let fix = "a view with fewer tools (`[views.NAME]`), `moongate disable SERVER TOOL`, or \
               `discovery = \"search\"`";
    Some(DoctorFinding::new(DoctorCode::ManyTools, message, fix))
}

/// Returns a finding if the client's row was checked long ago.
fn age_problem(profile: &ClientProfile, today: Date) -> Option<DoctorFinding> {
    let checked: Date = profile.checked.parse().ok()?;
    let days = checked.until(today).ok()?.get_days();
    let message = format!(
        "{}: its facts were checked on {}, {days} days ago",
        profile.title, profile.checked
    );
    let fix = "update Moongate: newer versions know newer clients";
    (days > AGE_MAX).then(|| DoctorFinding::new(DoctorCode::ClientFactsOld, message, fix))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_client_that_takes_fewer_tools_is_named() {
        let cursor = moongate_clients::client("cursor").unwrap();
        assert_eq!(many_tools(cursor, 40), None);
        let finding = many_tools(cursor, 41).unwrap();
        assert_eq!(finding.code.info().id, "MG-K09");
        assert_eq!(
            finding.message,
            "Cursor: it accepts at most 40 tools, but there are 41"
        );
        let unlimited = moongate_clients::clients()
            .find(|profile| profile.limits.tools.is_none())
            .unwrap();
        assert_eq!(many_tools(unlimited, 10_000), None);
    }

    #[test]
    fn a_row_is_old_after_half_a_year() {
        for profile in moongate_clients::clients() {
            let checked: Date = profile.checked.parse().unwrap();
            let [last_day, next_day] = [AGE_MAX, AGE_MAX + 1]
                .map(|days| checked.checked_add(jiff::Span::new().days(days)).unwrap());
            assert_eq!(age_problem(profile, checked), None);
            assert_eq!(age_problem(profile, last_day), None, "{}", profile.id);
            let finding = age_problem(profile, next_day).unwrap();
            assert_eq!(finding.code.info().id, "MG-K07");
            assert!(
                finding.message.contains("181 days ago") && !finding.fix.is_empty(),
                "{finding:?}"
            );
        }
    }
}
