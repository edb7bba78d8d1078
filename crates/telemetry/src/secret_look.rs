//! Secrets that are known by their look: keys with well-known prefixes, and words that only a
//! machine makes.
//!
//! Owns which parts of a text or of a URL are secret. Does not know names of settings
//! (`moongate_config`) or when a word is random (`random_word.rs`). Invariant: the host of a URL and
//! words that people choose are never secret.

mod random_word;

use std::ops::Range;

pub use random_word::is_uuid;
use random_word::{changes_in, is_commit, looks_random};

/// Prefixes of keys, each with the shortest rest that makes it one.
const PREFIXES: [(&str, usize); 46] = [
    ("sk-", 16),
    ("sk_", 12),
    ("rk_", 12),
    ("pk_live_", 12),
    ("ghp_", 8),
    ("gho_", 8),
    ("ghu_", 8),
    ("ghs_", 8),
    ("ghr_", 8),
    ("github_pat_", 8),
    ("glpat-", 8),
    ("gldt-", 8),
    ("glsa_", 8),
    ("xoxa-", 8),
    ("xoxb-", 8),
    ("xoxe-", 8),
    ("xoxp-", 8),
    ("xoxr-", 8),
    ("xoxs-", 8),
    ("xapp-", 8),
    ("AKIA", 12),
    ("ASIA", 12),
    ("AIza", 16),
    ("ya29.", 8),
    ("npm_", 16),
    ("pypi-", 16),
    ("hf_", 12),
    ("SG.", 16),
    ("shpat_", 8),
    ("lin_api_", 8),
    ("ntn_", 16),
    ("secret_", 16),
    ("figd_", 8),
    ("tvly-", 8),
    ("pplx-", 16),
    ("gsk_", 16),
    ("xai-", 16),
    ("nvapi-", 16),
    ("whsec_", 8),
    ("dop_v1_", 16),
    ("sbp_", 16),
    ("ctx7sk-", 8),
    ("mg_", 16),
    ("dapi", 24),
    ("EAAG", 16),
    ("EAAC", 16),
];
/// Segments of a path behind which an identifier says only what is meant.
const RESOURCES: [&str; 24] = [
    "account",
    "accounts",
    "board",
    "boards",
    "collection",
    "collections",
    "database",
    "databases",
    "document",
    "documents",
    "org",
    "organization",
    "organizations",
    "orgs",
    "project",
    "projects",
    "site",
    "sites",
    "space",
    "spaces",
    "team",
    "teams",
    "workspace",
    "workspaces",
];
/// Segments of a path behind which a hash is that of a commit.
const REVISIONS: [&str; 10] = [
    "archive", "blob", "commit", "commits", "objects", "raw", "rev", "revision", "tags", "tree",
];
/// Marks of a digest, which everybody may know.
const DIGESTS: [&str; 6] = [
    "sha1:", "sha256:", "sha512:", "sha256-", "sha384-", "sha512-",
];

/// Finds the parts of a text that look like secrets, in their order.
pub fn secret_ranges(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut done = 0;
    let mut word = UrlWord::default();
    while let Some(at) = text[done..].find("://").map(|at| done + at) {
        let start = at
            - text[done..at]
                .chars()
                .rev()
                .take_while(|c| c.is_ascii_alphanumeric() || matches!(*c, '+' | '-' | '.'))
                .count();
        let url = at + 3;
        if url > word.end {
            word = UrlWord::starting_at(text, url);
        }
        let end = word.url_end(text, url);
        words(text, done..start, &mut found);
        url_ranges(text, url..end, &mut found);
        done = end;
    }
    words(text, done..text.len(), &mut found);
    merged_ranges(found)
}

/// Sorts ranges, and joins those that touch.
pub fn merged_ranges(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by_key(|range| range.start);
    let mut apart: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match apart.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => apart.push(range),
        }
    }
    apart
}

/// Replaces the parts of a text that look like secrets.
pub fn mask_secrets(text: &str, mask: &str) -> String {
    let mut out = String::new();
    let mut done = 0;
    for range in secret_ranges(text) {
        out += &text[done..range.start];
        out += mask;
        done = range.end;
    }
    out + &text[done..]
}

/// Word that has URLs. All of them share its bounds, which are therefore searched once.
#[derive(Default)]
struct UrlWord {
    /// End of the word.
    end: usize,
    /// Position of its first `?` or `#`, or its end.
    end_of_path: usize,
}

impl UrlWord {
    /// Finds the bounds of the word that a URL is in. `start` is behind the scheme of its first
    /// one.
    fn starting_at(text: &str, start: usize) -> Self {
        let rest = &text[start..];
        let length = rest
            .find(|c: char| c.is_whitespace() || "\"'<>`".contains(c))
            .unwrap_or(rest.len());
        let path = rest[..length].find(['?', '#']).unwrap_or(length);
        UrlWord {
            end: start + length,
            end_of_path: start + path,
        }
    }

    /// Returns the end of a URL that starts at `start`, behind its scheme. In a list, the next one
    /// follows in what would be its path.
    fn url_end(&self, text: &str, start: usize) -> usize {
        let path = &text[start..self.end_of_path];
        match path.find("://") {
            Some(next) => {
                start + next
                    - path[..next]
                        .bytes()
                        .rev()
                        .take_while(u8::is_ascii_alphanumeric)
                        .count()
            }
            None => self.end,
        }
    }
}

/// Finds the user of a URL behind its scheme: the bytes before its `@`.
fn user_length(rest: &str) -> Option<usize> {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    if let Some(at) = rest[..end].rfind('@') {
        return Some(at);
    }
    // A password with one of these in it: no port is behind the colon, and an `@` follows later.
    let colon = rest[..end].find(':').filter(|_| !rest.starts_with('['))?;
    let port = &rest[colon + 1..end];
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit()) || port.starts_with("${");
    rest[end..]
        .find('@')
        .filter(|_| !is_port)
        .map(|at| end + at)
}

/// Finds the secret parts of a URL behind its scheme: user, tokens in the path, values of the
/// query, and the fragment.
fn url_ranges(text: &str, mut url: Range<usize>, found: &mut Vec<Range<usize>>) {
    // What is left may look like a user and a host, too.
    while let Some(at) = user_length(&text[url.clone()]) {
        push_value(text, url.start..url.start + at, found);
        url.start += at + 1;
    }
    let rest = &text[url.clone()];
    let end_of_path = rest.find(['?', '#']).unwrap_or(rest.len());
    let end_of_host = rest[..end_of_path].find('/').unwrap_or(end_of_path);
    base64_in(
        text,
        url.start + end_of_host..url.start + end_of_path,
        found,
    );
    // On such a host, a path may have the hash of a commit anywhere.
    let has_commits = rest[..end_of_host].contains("git");
    let mut before = "";
    let mut at = url.start + end_of_host;
    for segment in rest[end_of_host..end_of_path].split('/') {
        let range = at..at + segment.len();
        if is_secret_segment(segment, before, has_commits) {
            push_value(text, range, found);
        } else {
            tokens_in(text, range, found);
        }
        (at, before) = (at + segment.len() + 1, segment);
    }
    let (query, fragment) = match rest[end_of_path..].find('#') {
        Some(mark) => (
            end_of_path..end_of_path + mark,
            end_of_path + mark + 1..rest.len(),
        ),
        None => (end_of_path..rest.len(), rest.len()..rest.len()),
    };
    let mut at = url.start + query.start;
    for pair in rest[query].split(['?', '&', ';']) {
        let name = pair.find('=').map_or(0, |mark| mark + 1);
        push_value(text, at + name..at + pair.len(), found);
        at += pair.len() + 1;
    }
    push_value(
        text,
        url.start + fragment.start..url.start + fragment.end,
        found,
    );
}

/// Adds a value, unless it is empty or only refers to a variable.
fn push_value(text: &str, range: Range<usize>, found: &mut Vec<Range<usize>>) {
    let value = &text[range.clone()];
    let is_reference = value.starts_with("${")
        && value.find('}') == Some(value.len() - 1)
        && !value.contains(":-");
    if !value.is_empty() && !is_reference {
        found.push(range);
    }
}

/// Returns true for a segment of a path that stands for a login, as those of Zapier, Make and
/// Pipedream do.
fn is_secret_segment(segment: &str, before: &str, has_commits: bool) -> bool {
    let before = before.to_ascii_lowercase();
    if is_commit(segment) {
        return !has_commits && !REVISIONS.contains(&before.as_str());
    }
    is_uuid(segment) && !RESOURCES.contains(&before.as_str())
}

/// Looks at the words of a text without a URL.
fn words(text: &str, range: Range<usize>, found: &mut Vec<Range<usize>>) {
    let mut at = range.start;
    for word in text[range].split(|c: char| c.is_whitespace() || "\"'`<>()[]|;".contains(c)) {
        base64_in(text, at..at + word.len(), found);
        tokens_in(text, at..at + word.len(), found);
        at += word.len()
            + text[at + word.len()..]
                .chars()
                .next()
                .map_or(0, char::len_utf8);
    }
}

/// Looks at the parts of a word that other characters part.
fn tokens_in(text: &str, range: Range<usize>, found: &mut Vec<Range<usize>>) {
    let word = &text[range.clone()];
    if let Some(at) = json_web_token(word) {
        found.push(range.start + at..range.end);
        return;
    }
    let mut start = 0;
    while let Some(begin) = word[start..].find(is_token_char).map(|at| start + at) {
        let mut end = word[begin..]
            .find(|c: char| !is_token_char(c))
            .map_or(word.len(), |at| begin + at);
        let known = prefix_in(&word[begin..end]);
        if let Some(at) = known {
            // Such keys have dots and the signs of base64, too.
            end = word[begin..]
                .find(|c: char| !is_token_char(c) && !matches!(c, '.' | '+' | '/' | '=' | '%'))
                .map_or(word.len(), |at| begin + at);
            found.push(range.start + begin + at..range.start + end);
        } else if looks_random(&word[begin..end])
            && !is_digest(&word[..begin])
            && !is_digest(&word[begin..])
        {
            // The padding belongs to it.
            end += word[end..].len() - word[end..].trim_start_matches('=').len();
            found.push(range.start + begin..range.start + end);
        }
        start = end;
    }
}

fn is_token_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

/// Looks at the parts of a word that base64 with `+` or `=` may be. Its slashes part it into words
/// that are too short to be judged.
fn base64_in(text: &str, range: Range<usize>, found: &mut Vec<Range<usize>>) {
    let mut at = range.start;
    for run in text[range].split_inclusive(|c: char| !is_base64_char(c)) {
        let body = run.trim_end_matches(|c: char| !is_base64_char(c));
        if body.is_empty() {
            // Counted here, the padding of a long one would be counted again from each of its
            // signs.
            at += run.len();
            continue;
        }
        let padding = text[at + body.len()..]
            .bytes()
            .take_while(|byte| *byte == b'=')
            .count();
        let mut segments: Vec<(usize, &str)> = Vec::new();
        let mut start = at;
        for segment in body.split('/') {
            if !segment
                .bytes()
                .any(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase() || byte == b'+')
            {
                // A plain word belongs to the path around it.
                push_base64(std::mem::take(&mut segments), 0, found);
            } else {
                segments.push((start, segment));
            }
            start += segment.len() + 1;
        }
        push_base64(segments, padding, found);
        at += run.len();
    }
}

fn is_base64_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '/')
}

/// Adds neighbouring segments if they are random together.
fn push_base64(segments: Vec<(usize, &str)>, padding: usize, found: &mut Vec<Range<usize>>) {
    let (Some((start, _)), Some((last, end))) = (segments.first(), segments.last()) else {
        return;
    };
    let whole: String = segments
        .iter()
        .flat_map(|(_, segment)| segment.chars())
        .filter(|c| *c != '+')
        .collect();
    let has_all = whole.contains(|c: char| c.is_ascii_digit())
        && whole.contains(|c: char| c.is_ascii_lowercase())
        && whole.contains(|c: char| c.is_ascii_uppercase());
    let is_marked = padding > 0 || segments.iter().any(|(_, segment)| segment.contains('+'));
    // Names in a path change less often.
    if is_marked && whole.len() >= 24 && has_all && changes_in(&whole) * 5 >= whole.len() {
        found.push(*start..last + end.len() + padding);
    }
}

/// Finds a JSON Web Token: two parts that start as JSON does in base64, and a signature.
fn json_web_token(word: &str) -> Option<usize> {
    let mut start = 0;
    let mut parts = word.split('.').peekable();
    while let Some(head) = parts.next() {
        // The first start leaves the longest head.
        let token = head.find("eyJ").filter(|at| head.len() - at >= 12);
        if let Some(at) = token.filter(|_| parts.peek().is_some_and(|body| body.len() >= 8)) {
            return Some(start + at);
        }
        start += head.len() + 1;
    }
    None
}

/// Finds the start of a key with a well-known prefix.
fn prefix_in(word: &str) -> Option<usize> {
    // A name of words, such as `sk-learn-contrib`, has none of these.
    let last_made = word.rfind(|c: char| c.is_ascii_digit() || c.is_ascii_uppercase())?;
    PREFIXES.iter().find_map(|(prefix, rest)| {
        let prefix = prefix.trim_end_matches('.');
        let mut positions = word.match_indices(prefix).map(|(at, _)| at);
        positions.find(|at| {
            let is_start = *at == 0 || !word.as_bytes()[*at - 1].is_ascii_alphanumeric();
            let key = *at + prefix.len();
            is_start && word.len() - key >= *rest && key <= last_made
        })
    })
}

fn is_digest(text: &str) -> bool {
    DIGESTS
        .iter()
        .any(|mark| text.ends_with(mark) || text.starts_with(mark))
}

#[cfg(test)]
mod tests;
