//! Checks of the clients on this machine.
//!
//! Owns which files are read. Does not know their forms (`moongate-clients`). Invariant: no client's file is written.

use std::path::Path;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use moongate_clients::{ClientProfile, ConnectMethod, ExistingEntry, UserDirectories, existing_entry, shape_problem};
use moongate_config::edit::raw_entry;
use moongate_platform::Platform;

use crate::app::doctor::{DoctorCode, DoctorFinding, ExaminedGateway};

/// Name of our entry, unless the user chose another.
const ENTRY: &str = "moongate";

/// Days after which a row of the table is old. Clients change their formats every few months.
const AGE_MAX: i32 = 180;

/// Looks for problems of clients.
pub(super) fn check(gateway: &ExaminedGateway) -> Vec<DoctorFinding> {
    let directories = UserDirectories { env: &gateway.options.env, platform: Platform::CURRENT };
    let today = jiff::Timestamp::now().to_zoned(TimeZone::UTC).date();
    let with_files = moongate_clients::clients().filter(|profile| profile.method == ConnectMethod::File);
    with_files.filter_map(|profile| check_client(gateway, profile, &directories, today)).collect()
}

/// Returns what the client cannot read of our entry.
fn entry_problem(profile: &ClientProfile, path: &Path) -> Option<String> {
    shape_problem(profile, &raw_entry(path, ENTRY)?)
}

fn check_client(
    gateway: &ExaminedGateway,
    profile: &ClientProfile,
    directories: &UserDirectories<'_>,
    today: Date,
) -> Option<DoctorFinding> {
    let path = directories.file(profile).filter(|path| path.is_file())?;
    let text = std::fs::read_to_string(&path).ok()?;
    let (title, id) = (profile.title, profile.id);
    // The shape first: an entry that cannot be read may look foreign, and the shape is the cause.
    let finding = if let Some(problem) = entry_problem(profile, &path) {
        let fix = format!("moongate connect {id} --write --force");
        DoctorFinding::new(DoctorCode::ClientShape, format!("{title}: {problem}"), fix)
    } else {
        match existing_entry(&path, &text, ENTRY, &gateway.own) {
            ExistingEntry::Foreign(entry) => {
                let target = entry["url"].as_str().or(entry["command"].as_str()).unwrap_or("something else");
                let message = format!("{title}: the entry `{ENTRY}` leads to {target}");
                let fix = format!("moongate connect {id} --write --force");
                DoctorFinding::new(DoctorCode::ClientElsewhere, message, fix)
            }
            ExistingEntry::Ours => age_problem(profile, today)?,
            ExistingEntry::None => return None,
        }
    };
    Some(DoctorFinding { place: Some(path.display().to_string()), ..finding })
}

/// Returns a finding if the client's row was checked long ago.
fn age_problem(profile: &ClientProfile, today: Date) -> Option<DoctorFinding> {
    let checked: Date = profile.checked.parse().ok()?;
    let days = checked.until(today).ok()?.get_days();
    let message = format!("{}: its row was checked on {}, {days} days ago", profile.title, profile.checked);
    let fix = "update Moongate: newer versions know newer clients";
    (days > AGE_MAX).then(|| DoctorFinding::new(DoctorCode::ClientFactsOld, message, fix))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_row_is_old_after_half_a_year() {
        for profile in moongate_clients::clients() {
            let checked: Date = profile.checked.parse().unwrap();
            let after = |days: i32| checked.checked_add(jiff::Span::new().days(days)).unwrap();
            assert_eq!(age_problem(profile, checked), None);
            assert_eq!(age_problem(profile, after(AGE_MAX)), None, "{}", profile.id);
            let finding = age_problem(profile, after(AGE_MAX + 1)).unwrap();
            assert_eq!(finding.code.info().id, "MG-K07");
            assert!(finding.message.contains("181 days ago") && !finding.fix.is_empty(), "{finding:?}");
        }
    }
}
