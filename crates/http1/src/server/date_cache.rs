//! Cached Date header of responses. Owns the formatted date. Does not read the wall clock for each
//! response.
//!
//! RFC 9110, section 6.6.1: "An origin server with a clock MUST generate a Date header field in all
//! 2xx (Successful), 3xx (Redirection), and 4xx (Client Error) responses". Invariant: a cached date
//! is used for at most 900 ms.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// Time for which a formatted date is current.
const REFRESH_INTERVAL: Duration = Duration::from_millis(900);

/// Date header, formatted at most about once a second.
#[derive(Default)]
pub(super) struct DateCache {
    formatted_at: Option<Instant>,
    value: String,
}

impl DateCache {
    /// Returns the date as of `now`.
    pub(super) fn now(&mut self, now: Instant) -> &str {
        if self.formatted_at.is_none_or(|formatted_at| {
            now.saturating_duration_since(formatted_at) > REFRESH_INTERVAL
        }) {
            (self.formatted_at, self.value) =
                (Some(now), httpdate::fmt_http_date(SystemTime::now()));
        }
        &self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_date_is_of_the_form_that_is_preferred() {
        let mut dates = DateCache::default();
        let now = Instant::now();
        let first = dates.now(now).to_owned();
        assert!(
            first.len() == 29 && first.ends_with(" GMT") && &first[3..5] == ", ",
            "{first}"
        );
        assert_eq!(dates.now(now), first);
        assert!(httpdate::parse_http_date(&first).is_ok(), "{first}");
    }
}
