//! Redaction of credentials in text of others: stderr lines, error reasons, samples of garbage.
//! Owns where the value of a credential ends.
//!
//! Does not know which names sound secret (`secret_names`), or decide what is logged. Invariant:
//! sentences pass, values after `=` and `:` do not. In doubt more is hidden.

use std::borrow::Cow;
use std::sync::OnceLock;

use regex_lite::Regex;

use crate::secret_names::is_secret_word;

/// Replacement of a hidden value.
const HIDDEN: &str = "[redacted]";
/// First words of values that have two words.
const SCHEMES: [&str; 5] = ["bearer", "basic", "token", "digest", "negotiate"];

/// Hides the value of anything that looks like a credential.
pub fn redact(text: &str) -> String {
    // In the common case nothing matches, and no step copies the text.
    let mut out = hide_userinfo(text);
    for hide in [hide_named, hide_flags, hide_schemes, hide_prefixed] {
        if let Cow::Owned(hidden) = hide(&out) {
            out = Cow::Owned(hidden);
        }
    }
    out.into_owned()
}

/// Hides values that look like credentials, whatever their name.
pub fn redact_values(text: &str) -> String {
    hide_prefixed(&hide_schemes(&hide_userinfo(text))).into_owned()
}

fn pattern(cell: &'static OnceLock<Regex>, text: &str) -> &'static Regex {
    cell.get_or_init(|| Regex::new(text).expect("the pattern is a literal of ours"))
}

/// Hides the userinfo in each URL: `https://user:password@host`.
fn hide_userinfo(text: &str) -> Cow<'_, str> {
    static URL: OnceLock<Regex> = OnceLock::new();
    // A password with a slash in it: a colon that no port follows, and a later `@` before any
    // space.
    let url = pattern(
        &URL,
        r#"(://)(?:[^\s/?#"'<>]*@|[^\s/?#"'<>@:]*:[^\s"'<>@0-9][^\s"'<>@]*@)"#,
    );
    url.replace_all(text, "${1}[redacted]@")
}

/// Hides named values: `name=value`, `name: value`, `"name": "value"`.
fn hide_named(text: &str) -> Cow<'_, str> {
    static NAME: OnceLock<Regex> = OnceLock::new();
    let name = pattern(
        &NAME,
        r#"([A-Za-z0-9_.\-]*[A-Za-z0-9_\-])(\\?["'`])?\s*(?::=|=>|=|:)"#,
    );
    let mut out = String::new();
    let mut done = 0;
    while let Some(found) = name.captures_at(text, done) {
        let whole = found.get(0).map_or(0..0, |m| m.range());
        let word = found.get(1).map_or("", |m| m.as_str());
        out.push_str(&text[done..whole.end]);
        done = whole.end;
        // The `://` of a URL isn't a value, and neither is the placeholder of our own advice on
        // `${NAME:-default}`.
        if !is_secret_word(word)
            || text[done..].starts_with("//")
            || text[done..].starts_with("-default}")
        {
            continue;
        }
        let value = value_after(&text[done..], word);
        let refers = is_reference(&text[done + value.start..done + value.end]);
        if value.end > value.start && !refers {
            out.push_str(&text[done..done + value.start]);
            out.push_str(HIDDEN);
            done += value.end;
        }
    }
    // Nothing looked like a name, so the caller can keep its own text.
    if done == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[done..]);
    Cow::Owned(out)
}

/// Returns true for a value that names a variable or a file, as our own advice does: `Bearer
/// ${TOKEN}`.
fn is_reference(value: &str) -> bool {
    const AROUND: [char; 5] = ['"', '\'', '`', ' ', '}'];
    let value = value.trim_start_matches(AROUND);
    let behind = SCHEMES.iter().find_map(|scheme| {
        let start = value
            .get(..scheme.len())
            .filter(|start| start.eq_ignore_ascii_case(scheme));
        start.map(|_| value[scheme.len()..].trim_start())
    });
    let Some((name, after)) = behind
        .unwrap_or(value)
        .strip_prefix("${")
        .and_then(|rest| rest.split_once('}'))
    else {
        return false;
    };
    // What follows the reference is part of the value.
    !name.is_empty() && !name.contains([':', '$', ' ']) && after.trim_matches(AROUND).is_empty()
}

/// Returns the range of the value in the text after a name.
fn value_after(rest: &str, name: &str) -> std::ops::Range<usize> {
    let start = rest.len() - rest.trim_start_matches([' ', '\t']).len();
    let value = &rest[start..];
    let opening = value.len() - value.trim_start_matches(['\\', '"', '\'', '`']).len();
    if let Some(quote) = value[..opening].chars().next_back() {
        // Up to the closing quote. Without one, to the end.
        let inside = &value[opening..];
        let mut escaped = false;
        // JSON in a JSON string: its quotes are escaped, so a backslash escapes nothing in the
        // value.
        let is_nested = value.starts_with('\\');
        for (at, c) in inside.char_indices() {
            match c {
                '\\' if !is_nested => escaped = !escaped,
                c if c == quote && !escaped => {
                    // The backslashes before the closing quote belong to the quote, not to the
                    // value.
                    let end = if is_nested {
                        inside[..at].trim_end_matches('\\').len()
                    } else {
                        at
                    };
                    return start + opening..start + opening + end;
                }
                _ => escaped = false,
            }
        }
        return start + opening..rest.len();
    }
    let lower = name.to_ascii_lowercase();
    // These values may have spaces in them.
    if ["authorization", "cookie", "passw", "passphrase"]
        .iter()
        .any(|mark| lower.contains(mark))
    {
        let end = value.find(['\n', '\r']).unwrap_or(value.len());
        return start..start + end;
    }
    let mut end = word_end(value, 0);
    // `Bearer abc`: the scheme alone isn't a secret, but the next word is.
    if SCHEMES
        .iter()
        .any(|scheme| value[..end].eq_ignore_ascii_case(scheme))
    {
        let next = end + value[end..].len() - value[end..].trim_start_matches(' ').len();
        end = word_end(value, next);
    }
    start..start + end
}

fn word_end(text: &str, from: usize) -> usize {
    text[from..]
        .find(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | '&'))
        .map_or(text.len(), |at| from + at)
}

/// Hides the values of flags: `--token value`.
fn hide_flags(text: &str) -> Cow<'_, str> {
    static FLAG: OnceLock<Regex> = OnceLock::new();
    let flag = pattern(
        &FLAG,
        r#"(^|\s)(--?)([A-Za-z][A-Za-z0-9_\-]*)(\s+)([^\s\-\[][^\s]*)"#,
    );
    flag.replace_all(
        text,
        |found: &regex_lite::Captures<'_>| match is_secret_word(&found[3]) {
            true => format!(
                "{}{}{}{}{HIDDEN}",
                &found[1], &found[2], &found[3], &found[4]
            ),
            false => found[0].to_owned(),
        },
    )
}

/// Hides `Bearer value`, and a value directly behind such a word in a sentence.
fn hide_schemes(text: &str) -> Cow<'_, str> {
    static SCHEME: OnceLock<Regex> = OnceLock::new();
    let scheme = pattern(
        &SCHEME,
        r#"(?i)\b(bearer|basic|token|secret|password|passphrase|key|credentials?)(\s+(?:is\s+|was\s+)?["'`(\[]?)([A-Za-z0-9_\-./+=~]{6,})"#,
    );
    scheme.replace_all(
        text,
        |found: &regex_lite::Captures<'_>| match looks_random(&found[3]) {
            true => format!("{}{}{HIDDEN}", &found[1], &found[2]),
            false => found[0].to_owned(),
        },
    )
}

/// True for a word of letters and digits, which is neither a word of a sentence nor a date.
fn looks_random(word: &str) -> bool {
    let lower = word.contains(|c: char| c.is_ascii_lowercase());
    let upper = word.contains(|c: char| c.is_ascii_uppercase());
    let digit = word.contains(|c: char| c.is_ascii_digit());
    digit && (lower || upper) || lower && upper && word.len() >= 20 && !word.contains('/')
}

/// Hides keys with a well-known prefix.
fn hide_prefixed(text: &str) -> Cow<'_, str> {
    static PREFIX: OnceLock<Regex> = OnceLock::new();
    let prefix = pattern(
        &PREFIX,
        r"\b(?:sk-|sk_live_|sk_test_|rk_live_|ghp_|gho_|ghs_|ghu_|ghr_|github_pat_|glpat-|xox[abeprs]-|xapp-|AKIA|ASIA|AIza|eyJ[A-Za-z0-9_\-]+\.|npm_|hf_|mg_)[A-Za-z0-9_\-.+/=]{8,}",
    );
    prefix.replace_all(text, HIDDEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_hidden_wherever_they_stand() {
        let cases = [
            "X-Api-Key: s3cr3tvalue",
            "request to /v1?key=s3cr3tvalue&lang=en failed",
            "AWS_ACCESS_KEY_ID=s3cr3tvalue",
            "AWS_SECRET_ACCESS_KEY = s3cr3tvalue",
            "from https://example.com to https://me:s3cr3tvalue@example.com/x",
            "https://s3cr3tvalue@example.com/x",
            "postgres://me:a/s3cr3tvalue@db/x",
            "Authorization: Bearer s3cr3tvalue",
            "authorization: Custom a s3cr3tvalue",
            "{'X-Api-Key': 's3cr3tvalue', 'a': 1}",
            r#"{"apiKey":"abc\"s3cr3tvalue"}"#,
            r#"body {\"access_token\":\"s3cr3tvalue\",\"a\":1}"#,
            "token: Some(\"s3cr3tvalue\")",
            "password: correct horse s3cr3tvalue",
            "started with --api-key s3cr3tvalue",
            "started with --token=s3cr3tvalue",
            "the token 's3cr3tvalue' is not known",
            "Bearer s3cr3tvalue was refused",
            "key => s3cr3tvalue",
            "sk-ant-s3cr3tvalue is no key",
            "Cookie: a=b; session=s3cr3tvalue",
            "client_secret=s3cr3tvalue",
            "Token: Bearer s3cr3tvalue",
            "token:s3cr3tvalue",
            "a: b, pat: s3cr3tvalue, c: d",
            "token=${A}s3cr3tvalue",
            "token=${A}-${s3cr3tvalue}",
            "password=${s3cr3t",
            "Authorization: Bearer ${A}s3cr3tvalue",
        ];
        for case in cases {
            let hidden = redact(case);
            assert!(
                !hidden.contains("s3cr3t") && hidden.contains(HIDDEN),
                "{case} -> {hidden}"
            );
        }
        assert_eq!(
            redact("?key=s3cr3tvalue&lang=en"),
            "?key=[redacted]&lang=en"
        );
        assert_eq!(
            redact("{'X-Api-Key': 's3cr3tvalue', 'a': 1}"),
            "{'X-Api-Key': '[redacted]', 'a': 1}"
        );
        assert_eq!(
            redact(r#"{\"token\":\"s3cr3t\",\"a\":1}"#),
            r#"{\"token\":\"[redacted]\",\"a\":1}"#
        );
        let urls = redact("https://a:s3cr3t@x.example/1 https://b:s3cr3t@y.example/2");
        assert_eq!(
            urls,
            "https://[redacted]@x.example/1 https://[redacted]@y.example/2"
        );
    }

    #[test]
    fn sentences_pass() {
        let sentences = [
            "Please set SLACK_BOT_TOKEN and SLACK_TEAM_ID environment variables",
            "npm error code EUNSUPPORTEDPROTOCOL",
            "401: the token has expired, and the password with it",
            "no bearer token was found in the request",
            "GET https://npm.example.com/@modelcontextprotocol/server-x - Not found",
            "listening on http://127.0.0.1:8080/mcp",
            "the key must not be empty",
            "set PERPLEXITY_KEY, or give a default: `${PERPLEXITY_KEY:-default}`",
            "add a header: `headers = { Authorization = \"Bearer ${TOKEN}\" }`",
            "write Authorization = \"${TOKEN}\", and set TOKEN",
            "write `token = ${TOKEN}`",
            "monkey: banana, keyboard: us",
            "Basic authentication is needed",
            "2026-01-01T00:00:00Z INFO started: 3 tools",
            "",
        ];
        for sentence in sentences {
            assert_eq!(redact(sentence), sentence);
        }
    }
}
