//! Control of people's logins, which operators list and end on the page or over the API.
//!
//! Owns which logins an id or a name refers to. Does not keep logins (`moongate_broker`).
//! Invariant: an ambiguous name ends no login.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use moongate_admin::{PeopleControl, RevokeRefusal};
use moongate_api::{PeopleList, PersonItem, RevokeReport};
use moongate_broker::{Broker, EndOutcome, LoginId, PersonLogin};

use crate::app::reload::ReloadTargets;

/// Message about an end that a restart would undo.
const IN_MEMORY: &str = "The login ended, but the disk could not be written yet. The gateway goes \
                         on trying. If it restarts before that, revoke the login again.";

/// People's logins at a running gateway.
pub(super) struct GatewayPeople {
    /// `None`: people cannot log in.
    broker: Option<Arc<Broker>>,
}

impl GatewayPeople {
    /// Creates them for a gateway.
    pub(super) fn new(targets: &ReloadTargets) -> Self {
        GatewayPeople {
            broker: targets.broker.clone(),
        }
    }

    async fn end_logins(&self, who: &str) -> Result<RevokeReport, RevokeRefusal> {
        let broker = self.broker.as_ref().ok_or(RevokeRefusal::None)?;
        let mut report = RevokeReport {
            ended: 0,
            on_disk: true,
            message: None,
        };
        let ids = find_logins(&broker.people(), who)?;
        for id in ids {
            match broker.revoke(id).await {
                EndOutcome::Synced => report.ended += 1,
                EndOutcome::InMemory => {
                    report.ended += 1;
                    report.on_disk = false;
                }
                // It has already ended in the meantime.
                EndOutcome::Unknown => {}
            }
        }
        if report.ended == 0 {
            return Err(RevokeRefusal::Unknown);
        }
        report.message = (!report.on_disk).then(|| IN_MEMORY.to_owned());
        Ok(report)
    }
}

impl PeopleControl for GatewayPeople {
    fn people(&self) -> Option<PeopleList> {
        let broker = self.broker.as_ref()?;
        let mut people = broker.people();
        people.sort_by_key(|login| std::cmp::Reverse(login.last_used));
        Some(PeopleList {
            logins: people.iter().map(person_item).collect(),
            findings: broker.findings(),
        })
    }

    fn can_log_in(&self) -> bool {
        self.broker.is_some()
    }

    fn revoke(&self, who: String) -> BoxFuture<'_, Result<RevokeReport, RevokeRefusal>> {
        Box::pin(async move { self.end_logins(&who).await })
    }
}

/// Finds the logins that an id or a name refers to. Ids come first, since nobody can choose one.
fn find_logins(people: &[PersonLogin], who: &str) -> Result<Vec<LoginId>, RevokeRefusal> {
    let id = LoginId::parse(who);
    if let Some(id) = id.filter(|id| people.iter().any(|login| login.id == *id)) {
        return Ok(vec![id]);
    }
    let named = people.iter();
    let named: Vec<&PersonLogin> = named
        .filter(|login| login.name.eq_ignore_ascii_case(who))
        .collect();
    let Some(first) = named.first() else {
        return Err(RevokeRefusal::Unknown);
    };
    if named.iter().any(|login| login.mark != first.mark) {
        let logins = named.into_iter().map(person_item).collect();
        return Err(RevokeRefusal::Several(logins));
    }
    Ok(named.iter().map(|login| login.id).collect())
}

fn person_item(login: &PersonLogin) -> PersonItem {
    PersonItem {
        id: login.id.to_string(),
        name: login.name.clone(),
        roles: login.roles.clone(),
        client: login.client.clone(),
        endpoint: match login.endpoint.as_str() {
            "" => "/mcp".to_owned(),
            name => format!("/mcp/{name}"),
        },
        since: format!("{:.0}", login.since),
        last_used: format!("{:.0}", login.last_used),
        checked: format!("{:.0}", login.checked),
        replays: login.replays,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use jiff::Timestamp;

    use super::*;

    fn id(n: u8) -> String {
        format!("{n:032x}")
    }

    fn login(n: u8, mark: u8, name: &str) -> PersonLogin {
        PersonLogin {
            id: LoginId::parse(&id(n)).unwrap(),
            mark: [mark; 16],
            name: name.to_owned(),
            roles: vec!["staff".to_owned()],
            client: "Claude".to_owned(),
            endpoint: String::new(),
            since: Timestamp::UNIX_EPOCH,
            last_used: Timestamp::UNIX_EPOCH,
            checked: Timestamp::UNIX_EPOCH,
            replays: 0,
        }
    }

    fn found(people: &[PersonLogin], who: &str) -> Vec<String> {
        let ids = find_logins(people, who).unwrap();
        ids.iter().map(LoginId::to_string).collect()
    }

    #[test]
    fn an_id_means_one_login_and_a_name_all_of_its_person() {
        let people = [
            login(1, 1, "ann@example.com"),
            login(2, 2, "bob@example.com"),
            login(3, 1, "ann@example.com"),
        ];
        assert_eq!(found(&people, &id(3)), [id(3)]);
        assert_eq!(found(&people, "ann@example.com"), [id(1), id(3)]);
        assert_eq!(found(&people, "Bob@Example.com"), [id(2)]);
        for who in ["cho@example.com", "", &id(4)] {
            assert_eq!(find_logins(&people, who), Err(RevokeRefusal::Unknown));
        }
    }

    #[test]
    fn a_name_of_several_people_means_none_of_them() {
        let people = [login(1, 1, "ann"), login(2, 2, "ann"), login(3, 3, "bob")];
        let refusal = find_logins(&people, "ann").unwrap_err();
        let RevokeRefusal::Several(logins) = refusal else {
            panic!("{refusal:?}");
        };
        let ids: Vec<&str> = logins.iter().map(|login| login.id.as_str()).collect();
        assert_eq!(ids, [id(1).as_str(), id(2).as_str()]);
        assert_eq!(found(&people, &id(2)), [id(2)]);
    }

    #[test]
    fn somebody_who_is_named_like_an_id_shields_no_login() {
        let people = [login(1, 1, "ann"), login(2, 2, &id(1))];
        assert_eq!(found(&people, &id(1)), [id(1)]);
    }

    #[test]
    fn an_item_has_the_path_of_the_endpoint_and_times_to_the_second() {
        let item = person_item(&login(1, 1, "ann"));
        assert_eq!(item.endpoint, "/mcp");
        assert_eq!(item.since, "1970-01-01T00:00:00Z");
        let at = PersonLogin {
            endpoint: "files".to_owned(),
            ..login(1, 1, "ann")
        };
        assert_eq!(person_item(&at).endpoint, "/mcp/files");
    }
}
