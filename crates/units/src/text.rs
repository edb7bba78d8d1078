//! Text of durations, sizes and rates, in both directions. Invariant: a duration without a unit is
//! an error, never a guess.

use std::time::Duration;

use moongate_access::policy::RequestRate;

const DURATION_UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

const SIZE_UNITS: [(&str, u64); 7] = [
    ("b", 1),
    ("kb", 1000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
];

/// Limit of a duration: ten years in milliseconds. Longer ones mean "never", and timers overflow.
const DURATION_MAX: u64 = 10 * 365 * 86_400_000;

/// Reads `30s`, `1m30s` or `500ms`: numbers with `d`, `h`, `m`, `s` or `ms`, larger units first,
/// each at most once.
///
/// Fails with the end of a sentence about the value.
pub fn duration(text: &str) -> Result<Duration, &'static str> {
    let text = text.trim();
    // The most frequent mistake gets its own message.
    if !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
    {
        return Err("has no unit");
    }
    let mut rest = text;
    let mut total = 0_u64;
    let mut units = DURATION_UNITS.as_slice();
    while !rest.is_empty() {
        let (number, after) = rest.split_at(
            rest.find(|c: char| !c.is_ascii_digit())
                .unwrap_or(rest.len()),
        );
        let (unit, next) = after.split_at(
            after
                .find(|c: char| !c.is_ascii_alphabetic())
                .unwrap_or(after.len()),
        );
        let position = units
            .iter()
            .position(|(name, _)| *name == unit)
            .ok_or("is not a duration")?;
        let number: u64 = number.parse().map_err(|_| "is not a duration")?;
        total = number
            .checked_mul(units[position].1)
            .and_then(|ms| total.checked_add(ms))
            .ok_or("is too long")?;
        // Only smaller units may follow, so no unit comes twice.
        (rest, units) = (next, &units[position + 1..]);
    }
    match total {
        _ if text.is_empty() => Err("is not a duration"),
        total if total > DURATION_MAX => Err("is too long"),
        total => Ok(Duration::from_millis(total)),
    }
}

/// Reads `4MiB`, `16KB` or `512`: a number of bytes, or of `B`, `KB`, `MB`, `GB`, `KiB`, `MiB`,
/// `GiB`.
///
/// Fails with the end of a sentence about the value.
pub fn size(text: &str) -> Result<usize, &'static str> {
    let text = text.trim();
    let (number, unit) = text.split_at(
        text.find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len()),
    );
    // People write both `MB` and `mb`, and no unit differs from another by case alone.
    let unit = unit.trim().to_ascii_lowercase();
    // A size without a unit is a number of bytes: unlike a duration, it has one obvious reading.
    let factor = match unit.as_str() {
        "" => 1,
        unit => {
            SIZE_UNITS
                .iter()
                .find(|(name, _)| *name == unit)
                .ok_or("is not a size")?
                .1
        }
    };
    if number.is_empty() {
        return Err("is not a size");
    }
    let bytes = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(factor))
        .ok_or("is too large")?;
    usize::try_from(bytes).map_err(|_| "is too large")
}

/// Reads `100/min`: a whole number for each `s`, `min`, `h` or `d`. `0` means no limit.
///
/// Fails with the end of a sentence about the value.
pub fn rate(text: &str) -> Result<Option<RequestRate>, &'static str> {
    let (number, unit) = text.split_once('/').unwrap_or((text, ""));
    let count: u32 = number.trim().parse().map_err(|_| "is not a rate")?;
    let per = match unit.trim() {
        "" if count == 0 && !text.contains('/') => return Ok(None),
        "" => return Err("has no unit of time"),
        "s" | "sec" => 1,
        "min" => 60,
        "h" | "hour" => 3600,
        "d" | "day" => 86_400,
        _ => return Err("is not a rate"),
    };
    Ok((count > 0).then_some(RequestRate {
        count,
        per: Duration::from_secs(per),
    }))
}

/// Writes a duration in its largest whole unit. Up to a minute it has seconds.
pub(crate) fn duration_text(duration: Duration) -> String {
    let total = duration.as_millis();
    let named = match total {
        // The usual timeout of a minute is shown as `60s`, next to others such as `30s` and `90s`.
        60_000 => Some(&("s", 1000)),
        _ => DURATION_UNITS
            .iter()
            .find(|(_, unit)| total > 0 && total.is_multiple_of(u128::from(*unit))),
    };
    let (name, unit) = named.unwrap_or(&("ms", 1));
    format!("{}{name}", total / u128::from(*unit))
}

/// Writes a size in its largest whole unit.
pub(crate) fn size_text(bytes: usize) -> String {
    let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units
        .iter()
        .find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit))
    {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None => format!("{bytes}B"),
    }
}

/// Writes a rate.
pub(crate) fn rate_text(rate: Option<RequestRate>) -> String {
    let Some(RequestRate { count, per }) = rate else {
        return "0".to_owned();
    };
    let unit = match per.as_secs() {
        60 => "min",
        3600 => "h",
        86_400 => "d",
        _ => "s",
    };
    format!("{count}/{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations() {
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        for (text, wrong) in [
            ("30", "has no unit"),
            ("1.5", "has no unit"),
            ("", "is not a duration"),
            ("s", "is not a duration"),
            ("30 s", "is not a duration"),
            ("1s1m", "is not a duration"),
            ("1s1s", "is not a duration"),
            ("-1s", "is not a duration"),
            ("99999999999999999999s", "is not a duration"),
            ("999999d", "is too long"),
        ] {
            assert_eq!(duration(text), Err(wrong), "{text}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(size("4MiB"), Ok(4 << 20));
        assert_eq!(size("16KB"), Ok(16_000));
        assert_eq!(size("512"), Ok(512));
        assert_eq!(size("1 GiB"), Ok(1 << 30));
        for (text, wrong) in [
            ("", "is not a size"),
            ("MiB", "is not a size"),
            ("4Mi", "is not a size"),
            ("99999999999GiB", "is too large"),
        ] {
            assert_eq!(size(text), Err(wrong), "{text}");
        }
    }

    #[test]
    fn values_are_written_in_their_largest_unit() {
        for text in ["0ms", "500ms", "30s", "60s", "90s", "10m", "1h", "7d"] {
            assert_eq!(duration(text).map(duration_text).as_deref(), Ok(text));
        }
        for text in ["0B", "1000B", "64KiB", "16MiB", "1GiB"] {
            assert_eq!(size(text).map(size_text).as_deref(), Ok(text));
        }
    }

    fn rate_per(count: u32, seconds: u64) -> RequestRate {
        RequestRate {
            count,
            per: Duration::from_secs(seconds),
        }
    }

    #[test]
    fn rates() {
        assert_eq!(rate("100/min"), Ok(Some(rate_per(100, 60))));
        assert_eq!(rate("10 / s"), Ok(Some(rate_per(10, 1))));
        assert_eq!(rate("5/hour"), Ok(Some(rate_per(5, 3600))));
        assert_eq!(rate("0"), Ok(None));
        assert_eq!(rate("0/s"), Ok(None));
        for (text, wrong) in [
            ("100", "has no unit of time"),
            ("", "is not a rate"),
            ("x/s", "is not a rate"),
            ("1/fortnight", "is not a rate"),
            ("-1/s", "is not a rate"),
            ("99999999999/s", "is not a rate"),
            ("0/", "has no unit of time"),
        ] {
            assert_eq!(rate(text), Err(wrong), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_duration_is_the_sum_of_its_parts(d in 0..300_u64, h in 0..100_u64, m in 0..100_u64,
            s in 0..100_u64, ms in 0..5000_u64) {
            let expected = Duration::from_millis(d * 86_400_000 + h * 3_600_000 + m * 60_000 + s * 1000 + ms);
            prop_assert_eq!(duration(&format!("{d}d{h}h{m}m{s}s{ms}ms")), Ok(expected));
        }

        #[test]
        fn any_size_is_its_number_times_its_unit(n in 0..100_000_usize,
            unit in 0..SIZE_UNITS.len()) {
            let (name, factor) = SIZE_UNITS[unit];
            prop_assert_eq!(size(&format!("{n}{}", name.to_uppercase())),
                Ok(n * usize::try_from(factor).unwrap()));
        }

        #[test]
        fn what_is_written_is_read_again(ms in 0..DURATION_MAX, bytes: u32, count in 1..u32::MAX,
            per in 0..4_usize) {
            let time = Duration::from_millis(ms);
            prop_assert_eq!(duration(&duration_text(time)), Ok(time));
            let bytes = usize::try_from(bytes).unwrap();
            prop_assert_eq!(size(&size_text(bytes)), Ok(bytes));
            let limit = Some(RequestRate { count,
                per: Duration::from_secs([1, 60, 3600, 86_400][per]) });
            prop_assert_eq!(rate(&rate_text(limit)), Ok(limit));
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = (duration(&text), size(&text), rate(&text));
        }
    }
}
