//! Parameters of a query or a form.
//!
//! Owns their order and their encoding. Does not send them. Invariant: a name occurs once, unless a
//! test repeats it on purpose.

use url::form_urlencoded;

/// Parameters, in the order in which they are sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Parameters(Vec<(String, String)>);

impl Parameters {
    pub(super) fn of(pairs: &[(&str, &str)]) -> Self {
        let pairs = pairs.iter();
        Parameters(pairs.map(|(n, v)| ((*n).into(), (*v).into())).collect())
    }

    /// Reads a query or a form. `None`: a name occurs twice.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut read = Parameters::default();
        for (name, value) in form_urlencoded::parse(text.as_bytes()).into_owned() {
            if read.get(&name).is_some() {
                return None;
            }
            read.0.push((name, value));
        }
        Some(read)
    }

    /// Reads the query of an address.
    pub(super) fn of_address(address: &str) -> Self {
        let query = address.split_once('?').map_or("", |(_, query)| query);
        Parameters::parse(query).unwrap_or_else(|| panic!("a name is twice in {address}"))
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Replaces a value, or adds it.
    #[must_use]
    pub(super) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        let value = value.into();
        match self.0.iter_mut().find(|(other, _)| other == name) {
            Some(pair) => pair.1 = value,
            None => self.0.push((name.to_owned(), value)),
        }
        self
    }

    #[must_use]
    pub(super) fn without(mut self, name: &str) -> Self {
        self.0.retain(|(other, _)| other != name);
        self
    }

    /// Adds a parameter that may be there already.
    #[must_use]
    pub(super) fn and_again(mut self, name: &str, value: &str) -> Self {
        self.0.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(super) fn encode(&self) -> String {
        form_urlencoded::Serializer::new(String::new())
            .extend_pairs(&self.0)
            .finish()
    }
}
