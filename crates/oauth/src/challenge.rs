//! Bearer challenges of servers.
//!
//! Owns the reading of `WWW-Authenticate`. Does not act on it. Invariant: any text can be read
//! without a panic, and only usable values come out.

use moongate_transport::credential_source::AuthChallenge;
use url::Url;

use crate::scope::ScopeSet;
use crate::untrusted_url;

/// Error code of a request that needs more scope (RFC 6750, section 3.1).
const MORE_SCOPE: &str = "insufficient_scope";
/// Error codes of RFC 6750, section 3.1.
const ERRORS: [&str; 3] = ["invalid_request", "invalid_token", MORE_SCOPE];

/// Challenge of a server that takes bearer tokens: `WWW-Authenticate: Bearer`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BearerChallenge {
    /// Address of the metadata of the protected resource (RFC 9728, section 5.1).
    pub resource_metadata: Option<Url>,
    /// Scopes that the request needs, separated by spaces.
    pub scope: Option<String>,
    /// Error code, if RFC 6750 defines it.
    pub error: Option<String>,
}

impl BearerChallenge {
    /// Reads the challenges of a response. `None`: none of them is for bearer tokens.
    ///
    /// Several challenges are read as one, and the first value of a parameter counts. A value that
    /// cannot be used, such as a URL with credentials, is left out.
    pub fn of(challenge: &AuthChallenge) -> Option<Self> {
        let mut found: Option<BearerParams> = None;
        for value in &challenge.values {
            let mut is_bearer = false;
            for item in (HeaderReader { rest: value }) {
                match item {
                    HeaderItem::Scheme(scheme) => {
                        is_bearer = scheme.eq_ignore_ascii_case("bearer");
                        if is_bearer {
                            found.get_or_insert_default();
                        }
                    }
                    HeaderItem::Param(name, text) if is_bearer => {
                        found.get_or_insert_default().set(name, text);
                    }
                    HeaderItem::Param(..) => {}
                }
            }
        }
        found.map(BearerParams::into_challenge)
    }

    /// Adds the scope that calls needed, as if the server had asked for it now.
    pub(crate) fn with_wanted(challenge: Option<&Self>, scope: &str) -> Self {
        let challenge = challenge.cloned().unwrap_or_default();
        let demanded = challenge.scope.as_deref().map(ScopeSet::parse);
        let mut scopes = demanded.unwrap_or_default();
        scopes.union(&ScopeSet::parse(scope));
        BearerChallenge {
            scope: scopes.into_text(),
            error: Some(MORE_SCOPE.to_owned()),
            ..challenge
        }
    }

    /// Returns the scope that a server asks for beyond the token's, if it names one.
    pub(crate) fn into_wanted_scope(self) -> Option<String> {
        if self.wants_more_scope() {
            self.scope
        } else {
            None
        }
    }

    /// True if the server asks for more scope than the token has.
    pub fn wants_more_scope(&self) -> bool {
        self.error.as_deref() == Some(MORE_SCOPE)
    }
}

/// Parameters of bearer challenges, as text.
#[derive(Default)]
struct BearerParams {
    resource_metadata: Option<String>,
    scope: Option<String>,
    error: Option<String>,
}

impl BearerParams {
    /// Sets a parameter, unless it is already set or is not used here.
    fn set(&mut self, name: &str, text: String) {
        // RFC 9110, section 11.2: names are case-insensitive.
        let param = match name.to_ascii_lowercase().as_str() {
            "resource_metadata" => &mut self.resource_metadata,
            "scope" => &mut self.scope,
            "error" => &mut self.error,
            _ => return,
        };
        param.get_or_insert(text);
    }

    fn into_challenge(self) -> BearerChallenge {
        let metadata = self.resource_metadata.as_deref();
        let scope = self.scope.as_deref().map(ScopeSet::parse);
        let error = self.error.filter(|code| ERRORS.contains(&code.as_str()));
        BearerChallenge {
            resource_metadata: metadata.and_then(untrusted_url::parse),
            scope: scope.and_then(ScopeSet::into_text),
            error,
        }
    }
}

/// Part of a challenge header.
enum HeaderItem<'a> {
    /// Start of a challenge.
    Scheme(&'a str),
    /// Parameter of the challenge before it.
    Param(&'a str, String),
}

/// Reader of a challenge header (RFC 9110, section 11.6.1). Stops at the first mistake.
struct HeaderReader<'a> {
    rest: &'a str,
}

/// Characters between parts of a header.
const BLANKS: [char; 2] = [' ', '\t'];

impl<'a> Iterator for HeaderReader<'a> {
    type Item = HeaderItem<'a>;

    fn next(&mut self) -> Option<HeaderItem<'a>> {
        // A comma separates challenges as well as parameters; what follows shows which.
        self.rest = self.rest.trim_start_matches([' ', '\t', ',']);
        let name = self.take_part(is_token_char);
        if name.is_empty() {
            return None;
        }
        let after = self.rest.trim_start_matches(BLANKS);
        if let Some(value) = after.strip_prefix('=') {
            self.rest = value.trim_start_matches(BLANKS);
            return Some(HeaderItem::Param(name, self.take_value()?));
        }
        self.rest = after;
        self.skip_token68();
        Some(HeaderItem::Scheme(name))
    }
}

impl<'a> HeaderReader<'a> {
    fn take_part(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let end = self
            .rest
            .find(|c: char| !is_part(c))
            .unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    /// Takes the value of a parameter. `None`: its closing quote is missing.
    fn take_value(&mut self) -> Option<String> {
        let Some(quoted) = self.rest.strip_prefix('"') else {
            // Servers also send URLs without quotes, which RFC 9110 does not allow.
            let text = self.take_part(|c| c != ',' && !BLANKS.contains(&c));
            return Some(text.to_owned());
        };
        let mut text = String::new();
        let mut chars = quoted.chars();
        loop {
            match chars.next()? {
                '"' => break,
                '\\' => text.push(chars.next()?),
                other => text.push(other),
            }
        }
        self.rest = chars.as_str();
        Some(text)
    }

    /// Skips what some schemes send instead of parameters, such as `Negotiate oYGs/w==`.
    fn skip_token68(&mut self) {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "-._~+/".contains(c);
        let after = self.rest.trim_start_matches(is_part);
        let after = after.trim_start_matches('=').trim_start_matches(BLANKS);
        if after.is_empty() || after.starts_with(',') {
            self.rest = after;
        }
    }
}

/// True for characters of a token (RFC 9110, section 5.6.2).
fn is_token_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[&str]) -> Option<BearerChallenge> {
        BearerChallenge::of(&AuthChallenge {
            status: 401,
            values: values.iter().map(|&value| value.to_owned()).collect(),
        })
    }

    fn challenge(
        metadata: Option<&str>,
        scope: Option<&str>,
        error: Option<&str>,
    ) -> BearerChallenge {
        BearerChallenge {
            resource_metadata: metadata.map(|text| Url::parse(text).unwrap()),
            scope: scope.map(str::to_owned),
            error: error.map(str::to_owned),
        }
    }

    const METADATA: &str = "https://mcp.example.com/.well-known/oauth-protected-resource";

    #[test]
    fn parameters_are_found_among_other_challenges() {
        let whole = challenge(Some(METADATA), Some("files:read files:write"), None);
        let only_metadata = challenge(Some(METADATA), None, None);
        for (value, expected) in [
            (
                // The specification's example, split over two lines.
                format!(
                    "Bearer resource_metadata=\"{METADATA}\",\t scope=\"files:read files:write\""
                ),
                whole.clone(),
            ),
            (
                format!(
                    "bEARER Scope = \"files:read  files:write\" , RESOURCE_METADATA=\"{METADATA}\""
                ),
                whole.clone(),
            ),
            (
                format!(
                    "Newauth realm=\"apps\", type=1, \
                     title=\"Login to \\\"apps\\\", Bearer scope=x\", \
                     Bearer scope=\"files:read files:write\", resource_metadata=\"{METADATA}\", \
                     Basic realm=\"simple\", scope=\"other\""
                ),
                whole,
            ),
            (
                format!("Negotiate oYGs/w==, Bearer resource_metadata={METADATA}"),
                only_metadata.clone(),
            ),
            (
                format!("Negotiate, ,,Bearer ,resource_metadata=\"{METADATA}\""),
                only_metadata.clone(),
            ),
            (
                format!(
                    "Bearer resource_metadata=\"https:\\/\\/{}\"",
                    &METADATA[8..]
                ),
                only_metadata.clone(),
            ),
            (
                format!("Bearer resource_metadata=\"{METADATA}\", error=\"<script>\", scope=\"\""),
                only_metadata,
            ),
            ("Bearer".to_owned(), BearerChallenge::default()),
            (
                "Bearer realm=\"x\", Bearer error=\"invalid_token\"".to_owned(),
                challenge(None, None, Some("invalid_token")),
            ),
        ] {
            assert_eq!(read(&[&value]), Some(expected), "{value}");
        }
    }

    #[test]
    fn the_first_value_of_a_parameter_wins_across_challenges() {
        let found = read(&[
            "Basic realm=\"x\", scope=\"basic\"",
            "Bearer error=\"insufficient_scope\", scope=\"a\", scope=\"b\"",
            &format!("Bearer scope=\"c\", resource_metadata=\"{METADATA}\""),
            "Bearer resource_metadata=\"https://evil.example.com/\"",
        ]);
        let expected = challenge(Some(METADATA), Some("a"), Some("insufficient_scope"));
        assert!(expected.wants_more_scope());
        assert_eq!(found, Some(expected));
    }

    #[test]
    fn other_schemes_and_broken_values_are_not_bearer_challenges() {
        for value in [
            "",
            ",",
            "=",
            "\"Bearer scope=x\"",
            "Basic realm=\"Bearer scope=x\"",
            "DPoP algs=\"ES256\"",
            "Bearer=x",
            "Bearerx scope=a",
            "Basic realm=\"unfinished, Bearer scope=x",
            "Negotiate B\u{e9}arer",
        ] {
            assert_eq!(read(&[value]), None, "{value}");
        }
        assert_eq!(read(&[]), None);
    }

    #[test]
    fn values_that_cannot_be_used_are_left_out() {
        for value in [
            "Bearer resource_metadata=\"javascript:alert(1)\"",
            "Bearer resource_metadata=\"https://u:p@mcp.example.com/\"",
            "Bearer resource_metadata=\"/relative\"",
            "Bearer resource_metadata=\"\"",
            "Bearer resource_metadata=\"https://unfinished",
            "Bearer error=\"access_denied\"",
            "Bearer scope=\"\u{1}\"",
            "Bearer scope=\"ends with a quoted pair\\",
        ] {
            let found = read(&[value]).unwrap();
            assert_eq!(found, BearerChallenge::default(), "{value}");
            assert!(!found.wants_more_scope());
        }
    }

    #[test]
    fn every_part_of_a_hostile_value_is_read_to_its_end() {
        let text = "Bearer a=\"\\\"\u{1f511}\\\u{e9}\", b = c=,=d, Negotiate ==, \
                    \u{0}Bearer scope=\"x\" \\ \"";
        for (start, _) in text.char_indices() {
            for (end, _) in text.char_indices().filter(|(end, _)| *end >= start) {
                let _ = read(&[&text[start..end]]);
            }
        }
        let _ = read(&[
            &"Bearer ".repeat(1000),
            &"a=,".repeat(1000),
            &"\"".repeat(4096),
        ]);
    }
}
