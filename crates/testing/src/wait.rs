//! Bounded waits.
//!
//! Fails a test that hangs. Measures nothing. Invariant: no wait here lasts longer than [`LONG`].

use std::time::Duration;

/// Longer than anything a test waits for takes on a busy machine.
pub const LONG: Duration = Duration::from_secs(30);

/// Waits for a future and fails the test if it does not end.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let Ok(value) = tokio::time::timeout(LONG, future).await else {
        panic!("{what}: not within {LONG:?}")
    };
    value
}

/// Checks again and again until there is something to see.
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    within(what, async {
        loop {
            if let Some(seen) = look().await {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

/// Checks again and again until a condition holds.
pub async fn holds(what: &str, mut check: impl FnMut() -> bool) {
    until(what, || std::future::ready(check().then_some(()))).await;
}
