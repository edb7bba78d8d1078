//! Children that close one end of their pipe, stop reading, or leave processes behind. F15–F17.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::{RESTARTED, TIMED_OUT, odd};
use crate::faults::rig::{FaultRig, RowSetup};
use crate::harness::{ERAS, until};

#[tokio::test]
async fn f15_a_server_that_closes_its_output_is_restarted() {
    let setting = RowSetup::new("F15", "f15_a_server_that_closes_its_output_is_restarted");
    // After the answer that has the word in it, the output is closed and the process stays.
    let line = "exec 3<&0; MOCK <&3 | sed -u '/close-now/q' & exec 1>&- 3<&-; wait; exec sleep 600";
    half_alive(
        setting
            .counts(RESTARTED.0, RESTARTED.1)
            .shell(line, &[], LOST)
            .start()
            .await,
    )
    .await;
}

/// A call that was written in the moment before the input closed is lost, and has only its own
/// time.
const LOST: &str = "timeout = \"5s\"";

#[tokio::test]
async fn f15_a_server_that_closes_its_input_is_restarted() {
    let setting = RowSetup::new("F15", "f15_a_server_that_closes_its_input_is_restarted");
    let line =
        "exec 3<&0; sed -u '/close-now/q' <&3 | MOCK 3<&- & exec 3<&- 0<&-; wait; exec sleep 600";
    half_alive(
        setting
            .counts(RESTARTED.0, RESTARTED.1)
            .shell(line, &[], LOST)
            .start()
            .await,
    )
    .await;
}

async fn half_alive(mut rig: FaultRig) {
    rig.recount_processes().await;
    rig.each(async |bad, user| {
        user.call(bad, "echo", json!({"t": "before"})).await.text();
        let before = rig.pids(bad);
        // It may end before its answer has left.
        user.call(bad, "echo", json!({"t": "close-now"})).await;
        let again = async || {
            let reply = user.call(bad, "echo", json!({"t": "again"})).await;
            (reply.answer()["result"]["isError"] != true).then_some(())
        };
        until(&format!("{} works again", bad.name), again).await;
        let gone = async || {
            let now = rig.pids(bad);
            before.iter().any(|pid| !now.contains(pid)).then_some(())
        };
        until("the half of it that stayed is gone", gone).await;
    })
    .await;
    rig.end().await;
}

#[tokio::test]
async fn f16_a_server_that_stops_reading_fails_only_its_own_calls() {
    let setting = RowSetup::new(
        "F16",
        "f16_a_server_that_stops_reading_fails_only_its_own_calls",
    );
    let setting = setting.counts(TIMED_OUT.0, TIMED_OUT.1);
    let rig = setting
        .children(&["odd"], odd(vec![]), "timeout = \"3s\"")
        .start()
        .await;
    let mut users = Vec::new();
    for (bad, era) in rig.bads.iter().flat_map(|bad| ERAS.map(|era| (bad, era))) {
        let user = rig.user(era).await;
        // It has its connection.
        user.call(bad, "echo", json!({})).await.text();
        users.push((bad, era, user));
    }
    let signal = |signal| {
        for pid in rig.bads.iter().flat_map(|bad| rig.pids(bad)) {
            // One that was given up meanwhile may be gone.
            let _ = kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal);
        }
    };
    signal(Signal::STOP);
    // More than a pipe holds.
    let filler = "x".repeat(40_000);
    let calls = users.iter().flat_map(|(bad, era, user)| {
        rig.record_coverage(bad, *era);
        (0..10).map(|_| async {
            let failure = user
                .call(bad, "odd", json!({"filler": filler}))
                .await
                .failure();
            assert!(failure.contains(&bad.name), "{failure}");
        })
    });
    futures_util::future::join_all(calls).await;
    signal(Signal::CONT);
    for (_, _, user) in users {
        user.leave().await;
    }
    rig.end().await;
}

#[tokio::test]
async fn f17_processes_that_a_server_left_behind_are_killed_with_it() {
    // One that ignores SIGTERM and holds the output, one in a session of its own, one whose parent
    // is gone.
    let line = "trap '' TERM; sleep 600 & setsid sleep 600 >/dev/null 2>&1 & (setsid sh -c 'sleep \
                600 & sleep 600' >/dev/null 2>&1 &) ; MOCK";
    let setting = RowSetup::new(
        "F17",
        "f17_processes_that_a_server_left_behind_are_killed_with_it",
    );
    let setting = setting.counts(RESTARTED.0, RESTARTED.1);
    let rig = setting.shell(line, &["crash"], "").start().await;
    rig.each(async |bad, user| {
        user.call(bad, "crash", json!({})).await.failure();
        let again = async || {
            let reply = user.call(bad, "echo", json!({})).await;
            (reply.answer()["result"]["isError"] != true).then_some(())
        };
        until(&format!("{} works again", bad.name), again).await;
    })
    .await;
    // That all of it is gone is U4: there are as many marked processes as before.
    rig.end().await;
}
