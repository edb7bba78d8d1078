//! Expiry date of a certificate. Owns the parser for that one field, since nothing else here reads
//! certificates.
//!
//! Does not verify anything. Invariant: unknown input yields `None`, and no byte beyond the
//! certificate is read.

/// Returns the end of a certificate's validity, in seconds since 1970 (RFC 5280, section 4.1).
pub(super) fn not_after(certificate: &[u8]) -> Option<i64> {
    let (tbs, _) =
        take_value(certificate, SEQUENCE).and_then(|(inside, _)| take_value(inside, SEQUENCE))?;
    // `[0] version` may be missing. Then come serialNumber, signature, issuer and validity.
    let rest = take_value(tbs, VERSION).map_or(tbs, |(_, rest)| rest);
    let (_, rest) = take_value(rest, INTEGER)?;
    let (_, rest) = take_value(rest, SEQUENCE)?;
    let (_, rest) = take_value(rest, SEQUENCE)?;
    let (validity, _) = take_value(rest, SEQUENCE)?;
    let (_, rest) =
        take_value(validity, UTC_TIME).or_else(|| take_value(validity, GENERALIZED_TIME))?;
    let text = match (
        take_value(rest, UTC_TIME),
        take_value(rest, GENERALIZED_TIME),
    ) {
        // "Where YY is greater than or equal to 50, the year SHALL be interpreted as 19YY".
        (Some((text, _)), _) => {
            let text = std::str::from_utf8(text).ok()?;
            format!("{}{text}", if text.get(..2)? >= "50" { "19" } else { "20" })
        }
        (None, Some((text, _))) => std::str::from_utf8(text).ok()?.to_owned(),
        (None, None) => return None,
    };
    let not_after = jiff::civil::DateTime::strptime("%Y%m%d%H%M%SZ", &text).ok()?;
    Some(
        not_after
            .to_zoned(jiff::tz::TimeZone::UTC)
            .ok()?
            .timestamp()
            .as_second(),
    )
}

// DER tags (ITU-T X.690): the class, then the number of the type.
const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const VERSION: u8 = 0xA0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Returns the contents of the first value if it has this tag, and the bytes behind it.
fn take_value(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let [first, length, rest @ ..] = der else {
        return None;
    };
    if *first != tag {
        return None;
    }
    let (length, rest) = match usize::from(*length) {
        short if short < 0x80 => (short, rest),
        // X.690, 8.1.3.5: the low bits are the number of bytes of the length, which follow.
        long => {
            let (digits, rest) = rest.split_at_checked(long - 0x80)?;
            let length = digits.iter().try_fold(0_usize, |sum, byte| {
                sum.checked_mul(256)?.checked_add((*byte).into())
            })?;
            (length, rest)
        }
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    #[test]
    fn the_end_is_read_in_both_spellings() {
        for (year, expected) in [(2049, 2_508_364_800), (2051, 2_571_436_800)] {
            let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
            params.not_after = date_time_ymd(year, 6, 27);
            let der = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            assert_eq!(not_after(der.der()), Some(expected), "{year}");
            for cut in 0..der.der().len() / 2 {
                let _ = not_after(&der.der()[..cut]);
            }
        }
        assert_eq!(not_after(b"\x30\x84\xff\xff\xff\xff"), None);
    }
}
