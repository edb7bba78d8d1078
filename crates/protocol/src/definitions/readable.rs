//! Texts that a client's JSON parser refuses, and with them the whole message.
//!
//! Owns what the parser of the Python SDKs (jiter) refuses and others take: half a surrogate pair,
//! and a number with thousands of digits. Invariant: a text without them is not copied.

/// Digits of a number that every parser reads. The parser of the Python SDKs stops at 4,300.
const DIGITS_MAX: usize = 4000;

/// Replaces escapes of half a surrogate pair by U+FFFD. `None` if there are none. Fails if a number
/// is too long.
pub(super) fn replace_lone_surrogates(json: &[u8]) -> Result<Option<Vec<u8>>, String> {
    if has_long_number(json) {
        return Err(format!(
            "it has a number with more than {DIGITS_MAX} digits"
        ));
    }
    // Most items have no such escape, so they cost only one scan.
    if memchr::memmem::find(json, b"\\ud").is_none()
        && memchr::memmem::find(json, b"\\uD").is_none()
    {
        return Ok(None);
    }
    let mut out: Option<Vec<u8>> = None;
    let mut at = 0;
    let mut copied = 0;
    while let Some(found) = memchr::memchr(b'\\', &json[at..]) {
        let escape = at + found;
        let length = match surrogate(json, escape) {
            // A pair, which starts with the high half.
            Some(0xD800..=0xDBFF)
                if matches!(surrogate(json, escape + 6), Some(0xDC00..=0xDFFF)) =>
            {
                12
            }
            Some(_) => {
                let out = out.get_or_insert_with(|| Vec::with_capacity(json.len()));
                out.extend_from_slice(&json[copied..escape]);
                out.extend_from_slice(b"\\ufffd");
                copied = escape + 6;
                6
            }
            // Any other escape: the byte behind the backslash belongs to it.
            None => 2,
        };
        at = (escape + length).min(json.len());
    }
    Ok(out.map(|mut out| {
        out.extend_from_slice(&json[copied..]);
        out
    }))
}

/// Returns the half of a surrogate pair that is escaped at this position.
fn surrogate(json: &[u8], at: usize) -> Option<u16> {
    let digits = json.get(at..at + 6)?.strip_prefix(b"\\u")?;
    let half = u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    (0xD800..=0xDFFF).contains(&half).then_some(half)
}

/// Returns true if a number outside of texts is too long.
fn has_long_number(json: &[u8]) -> bool {
    if json.len() <= DIGITS_MAX {
        return false;
    }
    let mut is_text = false;
    let mut is_escaped = false;
    let mut digits = 0;
    json.iter().any(|byte| {
        match byte {
            _ if std::mem::take(&mut is_escaped) => {}
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            _ => {}
        }
        digits = if !is_text && byte.is_ascii_digit() {
            digits + 1
        } else {
            0
        };
        digits > DIGITS_MAX
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_halves_of_pairs_are_replaced() {
        let cases = [
            (r#""\ud83d\ude00""#, None),
            (r#""\\ud800""#, None),
            (r#""\u00e9""#, None),
            (r#""\ud800""#, Some(r#""\ufffd""#)),
            (r#""\uDC00a\ud800""#, Some(r#""\ufffda\ufffd""#)),
            (r#""\ud800\ud83d\ude00""#, Some(r#""\ufffd\ud83d\ude00""#)),
            (r#""\\\ud800""#, Some(r#""\\\ufffd""#)),
            (r#""\ud800\u0041""#, Some(r#""\ufffd\u0041""#)),
        ];
        for (json, expected) in cases {
            let mended = replace_lone_surrogates(json.as_bytes()).unwrap();
            assert_eq!(mended.as_deref(), expected.map(str::as_bytes), "{json}");
        }
    }

    #[test]
    fn a_number_of_thousands_of_digits_is_refused_and_a_text_of_them_is_not() {
        let digits = "7".repeat(DIGITS_MAX + 1);
        assert!(replace_lone_surrogates(format!("[{digits}]").as_bytes()).is_err());
        assert!(replace_lone_surrogates(format!("[\"{digits}\"]").as_bytes()).is_ok());
        assert!(replace_lone_surrogates(format!("[{}]", &digits[1..]).as_bytes()).is_ok());
    }
}
