//! The soak's own judgement (`benches/soak`): what it takes for a broken promise, and for a leak.

#[allow(dead_code, reason = "a part of it is used here")]
#[path = "../../benches/soak/client.rs"]
mod client;
#[allow(dead_code, reason = "a part of it is used here")]
#[path = "../../benches/harness/http.rs"]
mod http;
#[allow(dead_code, reason = "a part of it is used here")]
#[path = "../../benches/soak/judge.rs"]
mod judge;
#[path = "../../benches/soak/slope.rs"]
mod slope;

use std::time::Duration;

use client::Answer;
use judge::{GRACE, Outcome, Tally, judge};
use serde_json::{Value, json};
use slope::theil_sen;
use tokio::time::{Instant, advance};

fn verdict(status: u16, messages: &[Value]) -> Outcome {
    let answer = Answer {
        status,
        messages: messages.to_vec(),
        ..Answer::default()
    };
    judge(&answer, 7, "mine", |result| result["text"] == "mine")
}

#[test]
fn only_the_calls_own_answer_is_right() {
    let mine = json!({"jsonrpc": "2.0", "id": 7, "result": {"text": "mine"}});
    let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}});
    assert_eq!(
        verdict(200, &[progress.clone(), mine.clone()]),
        Outcome::Right
    );
    assert!(matches!(
        verdict(200, &[mine.clone(), mine.clone()]),
        Outcome::Doubled(_)
    ));
    assert!(matches!(verdict(200, &[progress]), Outcome::Lost(_)));
    assert!(matches!(verdict(202, &[]), Outcome::Lost(_)));
    assert!(matches!(verdict(500, &[mine]), Outcome::Wrong(_)));
    for other in [
        json!({"jsonrpc": "2.0", "id": 8, "result": {"text": "mine"}}),
        json!({"jsonrpc": "2.0", "id": "7", "result": {"text": "mine"}}),
        json!({"jsonrpc": "2.0", "id": 7, "result": {"text": "yours"}}),
        json!({"jsonrpc": "2.0", "id": 7}),
        json!({"no JSON": "<html>"}),
    ] {
        assert!(matches!(verdict(200, &[other]), Outcome::Wrong(_)));
    }
    let error = json!({"jsonrpc": "2.0", "id": 7, "error": {"code": -32603, "message": "no"}});
    assert_eq!(
        verdict(200, std::slice::from_ref(&error)),
        Outcome::Failed("no".to_owned())
    );
    assert_eq!(
        verdict(503, &[error]),
        Outcome::Failed("HTTP 503: no".to_owned())
    );
    let failed = json!({"jsonrpc": "2.0", "id": 7,
        "result": {"isError": true, "content": [{"text": "no"}]}});
    assert_eq!(verdict(200, &[failed]), Outcome::Failed("no".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn only_a_server_that_was_killed_a_moment_ago_may_fail_and_must_be_named() {
    let failed = |server: &str| Outcome::Failed(format!("Server \"{server}\" is not available"));
    let broken = |tally: &mut Tally, server: &'static str, outcome: Outcome| {
        let before = tally.count("broken promises");
        tally.called("calls of a kind", server, Instant::now(), outcome);
        tally.count("broken promises") > before
    };
    let mut tally = Tally::default();
    assert!(broken(&mut tally, "a", failed("a")), "nobody killed it");
    tally.ends.ended("a");
    assert!(!broken(&mut tally, "a", failed("a")));
    assert!(broken(&mut tally, "b", failed("b")), "another was killed");
    assert!(
        broken(&mut tally, "a", failed("b")),
        "the error names another server"
    );
    assert!(
        broken(&mut tally, "a", Outcome::Failed("it failed".to_owned())),
        "the error names nobody"
    );
    for never in [
        Outcome::Wrong("x".into()),
        Outcome::Lost("x".into()),
        Outcome::Doubled("x".into()),
    ] {
        assert!(broken(&mut tally, "a", never), "whoever was killed");
    }
    advance(Duration::from_millis(300)).await;
    assert!(!broken(&mut tally, "a", Outcome::Right));
    assert!(!broken(&mut tally, "a", Outcome::Right));
    assert_eq!(
        tally.recoveries.len(),
        1,
        "only the first success after an end is its recovery"
    );
    advance(GRACE).await;
    assert!(broken(&mut tally, "a", failed("a")), "that was long ago");
    tally.ends.stopped("a");
    advance(2 * GRACE).await;
    assert!(!broken(&mut tally, "a", failed("a")), "it is still down");
    tally.ends.returns("a");
    advance(2 * GRACE).await;
    assert!(broken(&mut tally, "a", failed("a")), "it is back for long");
    assert_eq!(tally.count("calls"), 13);
    assert_eq!(tally.count("allowed failures"), 2);
}

/// Numbers that look like noise and are the same each time.
fn noise(n: u32) -> f64 {
    f64::from((n.wrapping_mul(2_654_435_761) >> 8) % 1000) - 500.0
}

#[test]
fn a_leak_shows_through_noise_and_noise_is_no_leak() {
    let samples = |slope: f64| -> Vec<(f64, f64)> {
        let value = |n: u32| {
            20_000.0
                + slope * f64::from(n)
                + noise(n)
                + if n.is_multiple_of(97) { 1e6 } else { 0.0 }
        };
        (0..240).map(|n| (f64::from(n), value(n))).collect()
    };
    let flat = theil_sen(&samples(0.0)).unwrap();
    assert!(
        flat.low <= 0.0 && flat.high >= 0.0 && flat.median.abs() < 0.3,
        "{flat:?}"
    );
    for leak in [3.0, 30.0] {
        let found = theil_sen(&samples(leak)).unwrap();
        assert!(
            (found.median - leak).abs() < 0.5 && found.low > 0.0,
            "{leak}: {found:?}"
        );
        assert!(found.low <= leak && leak <= found.high, "{leak}: {found:?}");
    }
    assert_eq!(theil_sen(&samples(0.0)[..5]), None);
}
