//! Faults of the disk: F57.

use moongate_mock::MockScript;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;

use super::rig::{FaultRig, RowSetup};
use crate::harness::{ERAS, until};

const ERRORS: &str = "moongate_store_errors_total";

/// The longest file that the gateway may write, as a full disk would have it.
fn allow(rig: &FaultRig, bytes: Option<u64>) {
    let pid = Pid::from_raw(rig.gateway.pid().cast_signed()).unwrap();
    let before = prlimit(
        Some(pid),
        Resource::Fsize,
        Rlimit {
            current: bytes,
            maximum: None,
        },
    )
    .unwrap();
    assert_eq!(before.maximum, None, "it can be taken back");
}

#[tokio::test]
async fn f57_a_full_disk_fails_only_persistence_until_there_is_room() {
    let test = "f57_a_full_disk_fails_only_persistence_until_there_is_room";
    let plain = |script: MockScript| script;
    let setting = RowSetup::new("F57", test)
        .counts(ERRORS, &[])
        .keeping_state();
    let rig = setting
        .children(&["odd"], plain, "")
        .http_servers(&["odd"], plain, "")
        .await
        .start()
        .await;
    assert_eq!(rig.metric("moongate_store_open", &[]).await, 1.0);
    allow(&rig, Some(4096));
    // A session is what is kept; opening one cannot be written.
    let kept = rig.user(ERAS[0]).await;
    until("writes fail", async || {
        (rig.metric(ERRORS, &[]).await >= 2.0).then_some(())
    })
    .await;
    rig.each(async |bad, user| {
        for n in 0..3 {
            assert_eq!(
                user.call(bad, "odd", json!({"n": n})).await.text(),
                format!("{{\"n\":{n}}}")
            );
        }
    })
    .await;
    assert_eq!(rig.page("/readyz").await.status, 200, "it serves");
    assert!(
        rig.metric("moongate_store_waiting", &[]).await > 0.0,
        "what is to be kept waits"
    );
    let told = rig
        .gateway
        .log()
        .matches("state could not be written")
        .count();
    assert_eq!(told, 1, "told once a minute: {}", rig.gateway.log());
    allow(&rig, None);
    until("there is room, and it is written", async || {
        (rig.metric("moongate_store_waiting", &[]).await == 0.0).then_some(())
    })
    .await;
    assert_eq!(kept.client.request("ping", json!({})).await.status, 200);
    kept.leave().await;
    rig.end().await;
}
