//! Timestamps with a zone, as the TypeScript SDKs take them.
//!
//! Owns the form. Does not compute with times. Invariant: it takes what the stricter of their
//! schemas takes (zod 4.6, `z.iso.datetime({ offset: true })`: RFC 3339 with `T`, seconds, and `Z`
//! or an offset).

/// Returns true if `text` is a timestamp.
pub(super) fn is_timestamp(text: &str) -> bool {
    let Some((date, time)) = text.split_once('T') else {
        return false;
    };
    is_date(date) && is_time(time)
}

fn is_date(text: &str) -> bool {
    let [year, month, day] = numbers(text, '-', [4, 2, 2]).unwrap_or_default();
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    };
    (1..=days).contains(&day)
}

fn is_time(text: &str) -> bool {
    let Some(zone) = text.find(['Z', '+', '-']) else {
        return false;
    };
    let (clock, zone) = text.split_at(zone);
    let (seconds, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let is_fraction = !fraction.is_empty() && fraction.bytes().all(|digit| digit.is_ascii_digit());
    let is_clock =
        numbers(seconds, ':', [2, 2, 2]).is_some_and(|[h, m, s]| h < 24 && m < 60 && s < 60);
    let is_zone =
        zone == "Z" || numbers(&zone[1..], ':', [2, 2]).is_some_and(|[h, m]| h < 24 && m < 60);
    is_clock && is_fraction && is_zone
}

/// Splits a text in numbers of these lengths.
fn numbers<const N: usize>(text: &str, separator: char, lengths: [usize; N]) -> Option<[u32; N]> {
    let mut numbers = [0; N];
    let mut parts = text.split(separator);
    for (number, length) in numbers.iter_mut().zip(lengths) {
        let part = parts
            .next()
            .filter(|part| part.len() == length && part.bytes().all(|b| b.is_ascii_digit()))?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_have_a_date_seconds_and_a_zone() {
        for right in [
            "2025-01-12T15:00:58Z",
            "2024-02-29T00:00:00.123456+23:59",
            "0000-02-29T23:59:59Z",
        ] {
            assert!(is_timestamp(right), "{right}");
        }
        let wrong = [
            "2025-01-12",
            "2025-01-12T15:00Z",
            "2025-01-12T15:00:58",
            "2025-02-29T15:00:58Z",
            "2025-1-12T15:00:58Z",
            "2025-01-12 15:00:58Z",
            "2025-01-12T15:00:58.Z",
            "2025-01-12T24:00:00Z",
            "2025-01-12T15:00:58+0100",
            "2025-01-12T15:00:58Zx",
            "",
            "T",
        ];
        for wrong in wrong {
            assert!(!is_timestamp(wrong), "{wrong}");
        }
    }
}
