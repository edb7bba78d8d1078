//! Parser of the `Retry-After` header, in both of its forms.
//!
//! Owns the reading of the header. Does not decide how long to wait (`upstream` does). Invariant:
//! an unreadable value counts as absent.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::{AsHeaderName, DATE, RETRY_AFTER};

/// Returns the seconds to wait. RFC 9110, 10.2.3: "The Retry-After field value can be either an
/// HTTP-date or a number of seconds to delay after receiving the response."
pub(super) fn retry_after(headers: &HeaderMap) -> Option<u64> {
    let text = text(headers, RETRY_AFTER)?;
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that overflows means the longest wait.
        return Some(text.parse().unwrap_or(u64::MAX));
    }
    let until = httpdate::parse_http_date(text).ok()?;
    // Measured by the host's own clock if it sends `Date`: ours may differ.
    let shown = self::text(headers, DATE).and_then(|date| httpdate::parse_http_date(date).ok());
    let left = until
        .duration_since(shown.unwrap_or_else(SystemTime::now))
        .unwrap_or(Duration::ZERO);
    // Rounded up: a retry must not come early.
    Some(left.as_secs() + u64::from(left.subsec_nanos() > 0)).filter(|seconds| *seconds > 0)
}

fn text(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn read(wish: &str, date: Option<&str>) -> Option<u64> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, HeaderValue::from_str(wish).unwrap());
        if let Some(date) = date {
            headers.insert(DATE, HeaderValue::from_str(date).unwrap());
        }
        retry_after(&headers)
    }

    #[test]
    fn seconds_and_dates_are_both_read() {
        assert_eq!(read("120", None), Some(120));
        assert_eq!(read("99999999999999999999999999", None), Some(u64::MAX));
        let date = Some("Sun, 06 Nov 1994 08:49:00 GMT");
        // The current date form and the two obsolete ones.
        for until in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(read(until, date), Some(37), "{until}");
        }
        let later = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(600));
        assert!(
            (590..=600).contains(&read(&later, None).unwrap()),
            "without a date, by our own clock"
        );
    }

    #[test]
    fn past_and_unreadable_values_are_ignored() {
        let date = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        for wish in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:00:00 GMT",
            "soon",
            "-1",
            "1.5",
            "",
            "Nov",
        ] {
            assert_eq!(read(wish, date), None, "{wish}");
        }
    }
}
