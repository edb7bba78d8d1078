//! State of a view, as its URL has it.
//!
//! Owns how it is parsed, and links to other states. Does not know any view. Invariant: each value
//! in a link is encoded.

use std::fmt::Write as _;

/// Parameters of a view.
#[derive(Clone, Debug, Default)]
pub struct ViewQuery(Vec<(String, String)>);

impl ViewQuery {
    /// Reads the query of a URL. Empty values, which forms send, count as none.
    pub fn parse(query: &str) -> Self {
        let all = url::form_urlencoded::parse(query.as_bytes()).into_owned();
        ViewQuery(all.filter(|(_, value)| !value.is_empty()).collect())
    }

    /// Returns false if the URL asks for another value of a parameter.
    pub(super) fn admits(&self, key: &str, value: &str) -> bool {
        self.get(key).is_none_or(|wanted| wanted == value)
    }

    /// Returns the value of a parameter.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value.as_str())
    }

    /// Returns the query with a parameter set, or without it.
    pub fn with(&self, key: &str, value: Option<&str>) -> Self {
        let mut pairs: Vec<_> = self
            .0
            .iter()
            .filter(|(name, _)| name != key)
            .cloned()
            .collect();
        pairs.extend(value.map(|value| (key.to_owned(), value.to_owned())));
        ViewQuery(pairs)
    }

    /// Keeps these parameters only.
    pub fn only(&self, keys: &[&str]) -> Self {
        ViewQuery(
            self.0
                .iter()
                .filter(|(name, _)| keys.contains(&name.as_str()))
                .cloned()
                .collect(),
        )
    }

    /// Returns all parameters.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Writes the URL of a path with these parameters.
    pub fn link(&self, path: &str) -> String {
        if self.0.is_empty() {
            return path.to_owned();
        }
        let mut query =
            url::form_urlencoded::Serializer::for_suffix(format!("{path}?"), path.len() + 1);
        query.extend_pairs(&self.0);
        query.finish()
    }
}

/// Encodes one segment of a path.
pub fn segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            encoded.push(char::from(byte));
        } else {
            // Fails never: a `String` takes all.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_carry_the_state_of_a_view() {
        let query = ViewQuery::parse("state=ready&q=a%26b&client=");
        assert_eq!(query.get("state"), Some("ready"));
        assert_eq!(query.get("q"), Some("a&b"));
        assert_eq!(query.get("client"), None);
        assert_eq!(query.with("state", None).link("/"), "/?q=a%26b");
        assert_eq!(
            query.with("state", Some("off")).only(&["state"]).link("/"),
            "/?state=off"
        );
        assert_eq!(ViewQuery::default().link("/calls"), "/calls");
        assert_eq!(segment("a/b ü"), "a%2Fb%20%C3%BC");
    }
}
