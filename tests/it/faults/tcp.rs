//! Faults of servers on sockets, with somebody in between who closes, cuts, splits or says nothing:
//! F30, F39.

use moongate_mock::{FaultAction, FaultRule, MockScript};
use serde_json::json;

use super::rig::{self, FaultCarrier, RowSetup};
use crate::harness::relay::{Does, Relay};
use crate::harness::tls::Authority;
use crate::harness::{ERAS, Era, until};

type TcpFaultSeries = (&'static str, &'static [&'static str]);

const DOWN: TcpFaultSeries = (
    "mcp_client_operation_duration_seconds_count",
    &["error_type=\"server_down\""],
);
const GARBAGE: TcpFaultSeries = ("moongate_garbage_total", &[]);

/// Servers on TCP, of both eras, on one connection for all clients and on one for each; in the
/// order of the rig's.
async fn over_tcp(
    mut setting: RowSetup,
    does: Does,
    fault: impl Fn(MockScript) -> MockScript,
    settings: &str,
) -> (RowSetup, Vec<Relay>) {
    let mut relays = Vec::new();
    for (name, era, is_own) in [
        ("old_tcp", Era::Legacy, false),
        ("new_tcp", Era::Modern, false),
        ("old_own_tcp", Era::Legacy, true),
        ("new_own_tcp", Era::Modern, true),
    ] {
        let behind = setting.behind_tcp(fault(rig::script(era, &["odd"]))).await;
        let relay = Relay::plain(behind, does).await;
        setting = setting.tcp(name, era, is_own, &relay.address.to_string(), settings);
        relays.push(relay);
    }
    (setting, relays)
}

#[tokio::test]
async fn f39_a_server_that_accepts_and_closes_is_one_that_crashed() {
    let setting = RowSetup::new(
        "F39",
        "f39_a_server_that_accepts_and_closes_is_one_that_crashed",
    );
    let hang =
        |script: MockScript| script.with_fault(FaultRule::on("tools/call:odd", FaultAction::Hang));
    let (setting, relays) = over_tcp(setting.counts(DOWN.0, DOWN.1), Does::Pass, hang, "").await;
    let rig = setting.start().await;
    let each = rig.bads.iter().zip(&relays).map(async |(bad, relay)| {
        let users = [rig.user(ERAS[0]).await, rig.user(ERAS[1]).await];
        let before = rig.got(bad, "tools/call");
        let calls = users.iter().flat_map(|user| {
            (0..5).map(async |n| {
                let failure = user.call(bad, "odd", json!({"n": n})).await.failure();
                // The default timeout is longer than a test waits for anything.
                assert!(
                    failure.contains(&bad.name) && !failure.contains("timeout"),
                    "{failure}"
                );
            })
        });
        let there =
            || std::future::ready((rig.got(bad, "tools/call") == before + 10).then_some(()));
        tokio::join!(futures_util::future::join_all(calls), async {
            until("the calls are there", there).await;
            relay.turn(Does::Close);
        });
        let accepted = relay.accepted();
        for (user, era) in users.iter().zip(ERAS) {
            for n in 0..2 {
                let failure = user.call(bad, "echo", json!({"n": n})).await.failure();
                assert!(failure.contains(&bad.name), "{failure}");
            }
            rig.record_coverage(bad, era);
        }
        if matches!(bad.carrier, FaultCarrier::Tcp(_)) {
            let attempts = relay.accepted() - accepted;
            assert!(attempts <= 8, "{attempts} attempts at a server that closes");
        }
        assert_eq!(
            rig.got(bad, "tools/call"),
            before + 10,
            "no call is sent twice, and none to nobody"
        );
        relay.turn(Does::Pass);
        for user in users {
            user.leave().await;
        }
    });
    futures_util::future::join_all(each).await;
    rig.end().await;
}

#[tokio::test]
async fn f39_frames_in_pieces_are_put_together() {
    let setting = RowSetup::new("F39", "f39_frames_in_pieces_are_put_together");
    let (setting, _relays) = over_tcp(setting, Does::Pieces, |script| script, "").await;
    let rig = setting.start().await;
    rig.all(async |bad, user| {
        let calls = (0..10).map(async |n| {
            let arguments = json!({"nonce": format!("{} {n} ünï-cödé \u{1f600}", bad.name)});
            assert_eq!(
                user.call(bad, "odd", arguments.clone()).await.text(),
                arguments.to_string()
            );
        });
        futures_util::future::join_all(calls).await;
    })
    .await;
    rig.end().await;
}

#[tokio::test]
async fn f39_frames_that_run_into_each_other_cost_their_own_call() {
    let setting = RowSetup::new(
        "F39",
        "f39_frames_that_run_into_each_other_cost_their_own_call",
    );
    // The half of one, and in it another one: together they are no message.
    let mixed = |script: MockScript| {
        let text = r#"{"jsonrpc":"2.0","id":{id},"resu{"jsonrpc":"2.0","id":{id},"result":{}}lt":{"content":[]}}"#;
        let script = script.with_fault(FaultRule::on(
            "tools/call:odd",
            FaultAction::Bytes {
                text: format!("{text}\n"),
            },
        ));
        script.with_fault(FaultRule::on("tools/call:odd", FaultAction::Hang))
    };
    let (setting, _relays) = over_tcp(
        setting.counts(GARBAGE.0, GARBAGE.1),
        Does::Pass,
        mixed,
        "timeout = \"1s\"",
    )
    .await;
    let rig = setting.start().await;
    rig.all(async |bad, user| {
        let failure = user.call(bad, "odd", json!({})).await.failure();
        assert!(failure.contains(&bad.name), "{failure}");
        assert_eq!(
            user.call(bad, "echo", json!({"n": 1})).await.text(),
            r#"{"n":1}"#
        );
    })
    .await;
    rig.end().await;
}

#[tokio::test]
async fn f30_a_servers_handshake_that_stalls_ends_at_its_limit_and_heals() {
    let authority = Authority::new("trusted");
    let mut setting = RowSetup::new(
        "F30",
        "f30_a_servers_handshake_that_stalls_ends_at_its_limit_and_heals",
    )
    .trusting(&authority);
    let mut relays = Vec::new();
    for (name, era) in [("old_web", Era::Legacy), ("new_web", Era::Modern)] {
        let behind = setting.behind(era, &["odd"]).await;
        let relay = Relay::secure(behind, authority.sign().server(&["http/1.1"])).await;
        setting = setting.url(
            name,
            era,
            &relay.url("https"),
            "connect_timeout = \"500ms\"",
        );
        relays.push(relay);
    }
    let rig = setting.counts(DOWN.0, DOWN.1).start().await;
    for relay in &relays {
        // Those that are pooled are gone, and new ones get no answer to their first byte.
        relay.turn(Does::Stall);
    }
    rig.all(async |bad, user| {
        let failure = user.call(bad, "odd", json!({})).await.failure();
        assert!(failure.contains(&bad.name), "{failure}");
    })
    .await;
    for relay in &relays {
        relay.turn(Does::Pass);
    }
    rig.each(async |bad, user| {
        let heals = async || {
            let reply = user.call(bad, "odd", json!({"n": 0})).await;
            (reply.answer()["result"]["isError"] != true).then_some(())
        };
        until(&format!("{} is reached again", bad.name), heals).await;
        for n in 1..5 {
            assert_eq!(
                user.call(bad, "odd", json!({"n": n})).await.text(),
                format!("{{\"n\":{n}}}")
            );
        }
    })
    .await;
    rig.end().await;
}
