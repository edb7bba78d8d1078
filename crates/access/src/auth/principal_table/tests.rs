//! Tests of the table of principals: ids, expiry, and the room for people.

use std::time::Duration;

use futures_util::FutureExt;

use super::*;

#[test]
fn a_mark_is_one_principal_until_it_is_removed() {
    let table = PrincipalTable::default();
    let first = table.intern("test", [1; 16], "a", None);
    let other = table.intern("test", [2; 16], "b", None);
    assert!(Arc::ptr_eq(&first, &table.intern("test", [1; 16], "a", None)) && first != other);
    let renamed = table.intern("test", [1; 16], "c", None);
    assert!(table.admits(&renamed) && !table.admits(&first));
    table.retain("test", &HashSet::from([other.id]));
    assert!(!table.admits(&renamed) && table.find(&[1; 16]).is_none());
    assert_eq!(table.all(), std::slice::from_ref(&other));
    // The same key comes back: nothing of the removed principal is its own.
    assert!(
        ![first.id, renamed.id, other.id].contains(&table.intern("test", [1; 16], "a", None).id)
    );
}

#[test]
fn a_principal_is_admitted_until_its_credentials_expire() {
    let table = PrincipalTable::default();
    let known = table.intern("test", [1; 16], "a", None);
    table.set_expiry(&known.key, Some(jiff::Timestamp::UNIX_EPOCH));
    assert!(!table.admits(&known) && !table.ids().contains(&known.id));
    table.set_expiry(&known.key, Some(jiff::Timestamp::MAX));
    assert!(table.admits(&known) && Arc::ptr_eq(&known, &table.intern("test", [1; 16], "a", None)));
}

fn person(n: u8) -> Person<'static> {
    let secret = PrincipalSecret::new([n; 32]);
    Person {
        key: [n; 16],
        name: "ann",
        secret,
        role: RoleId::of_set(0),
        expires: None,
    }
}

#[test]
fn a_person_stays_one_principal_with_another_name_and_gets_new_roles_everywhere() {
    let table = PrincipalTable::default();
    let ann = table.meet("test", person(1)).unwrap();
    let moved = Person {
        name: "ann lee",
        role: RoleId::of_set(1),
        ..person(1)
    };
    assert!(Arc::ptr_eq(&ann, &table.meet("test", moved).unwrap()));
    assert_eq!(ann.role(), RoleId::of_set(1));
    table.remove(&ann.key);
    assert!(!table.admits(&ann) && table.meet("test", person(1)).unwrap().id != ann.id);
}

#[test]
fn the_person_who_was_unused_for_longest_makes_room_and_nobody_in_use_does() {
    let table = PrincipalTable::with_people_max(3);
    let key = table.intern("test", [9; 16], "ci", None);
    let in_use = table.meet("test", person(1)).unwrap();
    let ids = [2, 3].map(|n| table.meet("test", person(n)).unwrap().id);
    // The second one comes again, so that the third is unused for longest.
    assert_eq!(table.meet("test", person(2)).unwrap().id, ids[0]);
    table.meet("test", person(4)).unwrap();
    assert!(table.find(&[3; 16]).is_none() && table.find(&[2; 16]).is_some());
    assert!(table.admits(&in_use) && table.admits(&key));
    // An expired one goes first.
    let expired = Person {
        expires: Some(jiff::Timestamp::UNIX_EPOCH),
        ..person(4)
    };
    table.meet("test", expired).unwrap();
    table.meet("test", person(5)).unwrap();
    assert!(table.find(&[4; 16]).is_none());
    let _others = [2, 5].map(|n| table.meet("test", person(n)).unwrap());
    let full = table.meet("test", person(6)).unwrap_err();
    assert_eq!(full, AuthError::Unavailable("too many principals at once"));
    assert_eq!(table.meet("test", person(1)), Ok(in_use));
}

#[test]
fn a_lower_limit_holds_when_somebody_comes_and_takes_nothing_in_use() {
    let table = PrincipalTable::with_people_max(4);
    let in_use = table.meet("test", person(1)).unwrap();
    for n in [2, 3, 4] {
        table.meet("test", person(n)).unwrap();
    }
    table.set_people_max(2);
    assert_eq!(table.count(), 4);
    table.meet("test", person(5)).unwrap();
    assert_eq!(table.count(), 2);
    assert!(table.admits(&in_use) && table.find(&[5; 16]).is_some());
    // A copy has the same limit. While it exists, everybody counts as in use.
    assert!(table.fork().meet("test", person(6)).is_err());
    table.set_people_max(1);
    assert!(table.meet("test", person(6)).is_err() && table.admits(&in_use));
}

#[test]
fn a_person_of_an_earlier_process_is_awaited_until_the_login_ends() {
    let table = PrincipalTable::default();
    let soon = jiff::Timestamp::now() + Duration::from_secs(60);
    let later = jiff::Timestamp::now() + Duration::from_secs(90);
    table.await_person(&[1; 16], later);
    table.await_person(&[1; 16], soon);
    table.await_person(&[2; 16], soon);
    table.await_person(&[3; 16], jiff::Timestamp::UNIX_EPOCH);
    let awaited = [1, 2, 3, 4].map(|n| table.awaits(&[n; 16]));
    assert_eq!(awaited, [true, true, false, false]);
    // They are nobody until they come, and nobody else is them.
    assert!(table.find(&[1; 16]).is_none() && has_expiry_changed(&table));
    assert_eq!(table.expiry_after(soon), Some(later));
    let login = Person {
        expires: Some(later),
        ..person(1)
    };
    let ann = table.meet("test", login).unwrap();
    assert!(!table.awaits(&[1; 16]) && table.awaits(&[2; 16]));
    assert_eq!(ann.login_end(), u64::try_from(later.as_second()).ok());
    // Who is there already has newer credentials, and who was removed has none.
    table.await_person(&[1; 16], later);
    table.remove(&[2; 16]);
    assert!(!table.awaits(&[1; 16]) && !table.awaits(&[2; 16]));
}

#[test]
fn a_person_who_made_room_is_awaited_until_the_login_ends() {
    let table = PrincipalTable::with_people_max(2);
    let later = jiff::Timestamp::now() + Duration::from_secs(90);
    let with_end = |n, expires| Person {
        expires: Some(expires),
        ..person(n)
    };
    table.meet("test", with_end(1, later)).unwrap();
    table
        .meet("test", with_end(2, jiff::Timestamp::UNIX_EPOCH))
        .unwrap();
    for n in [3, 4] {
        table.meet("test", with_end(n, later)).unwrap();
    }
    assert!(table.find(&[1; 16]).is_none() && table.find(&[2; 16]).is_none());
    assert!(table.awaits(&[1; 16]) && !table.awaits(&[2; 16]));
    // However many make room, only as many are waited for.
    for n in 5..100 {
        table.meet("test", with_end(n, later)).unwrap();
    }
    let awaited = (0..100).filter(|n| table.awaits(&[*n; 16])).count();
    assert_eq!(awaited, 2);
    let back = table.meet("test", with_end(1, later)).unwrap();
    assert!(!table.awaits(&[1; 16]) && table.admits(&back));
}

fn has_expiry_changed(table: &PrincipalTable) -> bool {
    table.expiry_changed().now_or_never().is_some()
}

fn at(second: i64) -> Option<jiff::Timestamp> {
    Some(jiff::Timestamp::from_second(second).unwrap())
}

#[test]
fn the_next_expiry_and_each_change_of_it_are_told() {
    let table = PrincipalTable::default();
    table.meet("test", person(1)).unwrap();
    assert!(
        !has_expiry_changed(&table) && table.expiry_after(jiff::Timestamp::UNIX_EPOCH).is_none()
    );
    for (n, expires) in [(1, 20), (2, 10)] {
        table
            .meet(
                "test",
                Person {
                    expires: at(expires),
                    ..person(n)
                },
            )
            .unwrap();
        assert!(has_expiry_changed(&table));
    }
    table
        .meet(
            "test",
            Person {
                expires: at(10),
                ..person(2)
            },
        )
        .unwrap();
    assert!(!has_expiry_changed(&table));
    let times = [0, 10, 20].map(|second| table.expiry_after(at(second).unwrap()));
    assert_eq!(times, [at(10), at(20), None]);
    table.remove(&[1; 16]);
    assert!(table.removed().now_or_never().is_some() && !has_expiry_changed(&table));
}

#[test]
fn nobody_is_alone_where_people_may_come() {
    let table = PrincipalTable::default();
    table.intern("test", [1; 16], "a", None);
    assert!(table.is_single());
    table.set_people(true);
    assert!(!table.is_single());
}

#[test]
fn callers_without_credentials_have_the_same_mark_in_every_process() {
    let table = PrincipalTable::default();
    let next = PrincipalTable::default();
    next.intern("test", [1; 16], "a", None);
    assert_eq!(table.intern_anonymous().key, next.intern_anonymous().key);
    assert!(Arc::ptr_eq(
        &next.intern_anonymous(),
        &next.intern_anonymous()
    ));
}
