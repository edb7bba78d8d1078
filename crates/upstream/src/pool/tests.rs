//! Tests of `mod.rs`.

use super::*;
use crate::testing::memory::{MemoryServer, ServerBehaviour, tool};
use moongate_testing as testing;

/// Caller without a concurrency permit.
struct NoPermit;

impl ReleasePermit for NoPermit {
    fn release(&mut self) {}
}

#[tokio::test(start_paused = true)]
async fn of_two_sessions_that_find_a_pipe_empty_one_stays() {
    let memory = MemoryServer::new(&[ServerBehaviour::Answers(Duration::ZERO)]);
    let upstream = memory.upstream(|settings| settings.share = SharingMode::Auto);
    let running = tokio::spawn(upstream.clone().run());
    let connections = &upstream.pool;
    let shared = connections.wait_connected().await.ok().unwrap();
    connections.interactive_flag.set();
    let can = ClientCapabilities { elicit_form: true, ..ClientCapabilities::default() };
    let [one, other] = ["one", "other"]
        .map(|session| Arc::new(Caller { capabilities: can, ..(*testing::caller(1, Some(session))).clone() }));
    let call = tool("hang");
    let request = |caller| CheckoutRequest::new(caller, Era::Legacy, &call);
    let (mut first, mut second) = (request(&one), request(&other));
    let chosen = connections.checkout(&mut first, &mut NoPermit).await.ok().unwrap();
    let too = connections.checkout(&mut second, &mut NoPermit).await.ok().unwrap();
    assert!(Arc::ptr_eq(&chosen.0, &shared) && Arc::ptr_eq(&too.0, &shared), "each is alone there");
    // Both calls have chosen by now. Only the first one begins.
    let entered = connections.begin_turn(&chosen.0, &chosen.1, &mut first).unwrap();
    let _call = chosen.0.open_call(&one, tool("hang"));
    drop(entered);
    assert!(connections.begin_turn(&too.0, &too.1, &mut second).is_none(), "the first call began there");
    let (spec, checked_out) = connections.checkout(&mut second, &mut NoPermit).await.ok().unwrap();
    assert!(!Arc::ptr_eq(&spec, &shared) && connections.begin_turn(&spec, &checked_out, &mut second).is_some());
    running.abort();
}
