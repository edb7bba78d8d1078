//! URI templates, found by their literal prefix.
//!
//! Owns how templates are parsed, indexed and tried, and the budget of one request. Does not know
//! the owners of URIs (`resolve_uri.rs`). Invariant: the cost of a lookup is bounded, whatever
//! templates servers list and URIs clients send.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use memchr::memmem;

use crate::catalog_route::CatalogRoute;
use crate::running_server::RunningServer;

/// Number of expressions at which a template is refused.
const EXPRESSIONS_MAX: usize = 32;
/// Maximum number of a server's templates that start with an expression. Every URI has to be tried
/// with each of them.
pub(super) const OPEN_TEMPLATES_MAX: usize = 16;
/// Maximum bytes that one request may compare with templates.
const REQUEST_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Maximum bytes that one lookup may compare with the templates of one server. Leaves room for the
/// others.
const SERVER_BYTES_MAX: usize = 1024 * 1024;
/// Cost of an attempt in addition to its bytes.
// Without it, attempts on an empty text would be free, and their number unbounded.
const ATTEMPT_COST: usize = 64;

/// Index of every template of a catalogue.
#[derive(Default)]
pub(super) struct TemplateIndex {
    /// Prefixes, sorted by their text.
    prefixes: Vec<TemplatePrefix>,
}

/// Templates with the same literal prefix.
struct TemplatePrefix {
    literal: String,
    /// Longest other prefix that this one starts with.
    parent: Option<usize>,
    templates: Vec<(UriTemplate, Arc<CatalogRoute>)>,
}

/// Remaining cost that the lookups of one request may have.
pub(super) struct LookupBudget(Cell<usize>);

impl LookupBudget {
    /// Creates the budget of one request.
    pub(super) fn new() -> Self {
        LookupBudget(Cell::new(REQUEST_BYTES_MAX))
    }

    /// Returns true if the budget is used up. Later results may be incomplete.
    pub(super) fn is_spent(&self) -> bool {
        self.0.get() == 0
    }

    fn spend(&self, cost: usize) -> bool {
        let left = self.0.get().checked_sub(cost);
        self.0.set(left.unwrap_or(0));
        left.is_some()
    }
}

impl TemplateIndex {
    /// Indexes templates. Of several with one prefix, the first that matches is found.
    pub(super) fn new<'a>(routes: impl Iterator<Item = &'a Arc<CatalogRoute>>) -> Self {
        let mut by_literal: BTreeMap<String, Vec<(UriTemplate, Arc<CatalogRoute>)>> =
            BTreeMap::new();
        // A wrapped template matches no URI: a wrapped URI names its server itself.
        for route in routes.filter(|route| route.exposed == route.local) {
            if let Some((literal, template)) = UriTemplate::parse(&route.local) {
                by_literal
                    .entry(literal.to_owned())
                    .or_default()
                    .push((template, route.clone()));
            }
        }
        let mut prefixes: Vec<TemplatePrefix> = Vec::with_capacity(by_literal.len());
        let mut open: Vec<usize> = Vec::new();
        for (literal, templates) in by_literal {
            // Prefixes are sorted: one that this text does not start with cannot start a later one.
            while open
                .last()
                .is_some_and(|last| !literal.starts_with(prefixes[*last].literal.as_str()))
            {
                open.pop();
            }
            let parent = open.last().copied();
            open.push(prefixes.len());
            prefixes.push(TemplatePrefix {
                literal,
                parent,
                templates,
            });
        }
        TemplateIndex { prefixes }
    }

    /// Finds the template that a URI can come from. The longest prefix wins, then the first of
    /// several.
    pub(super) fn find(&self, uri: &str, budget: &LookupBudget) -> Option<&Arc<CatalogRoute>> {
        let mut index = self.longest_prefix(uri);
        let mut spent: HashMap<*const RunningServer, usize> = HashMap::new();
        while let Some(prefix) = index.map(|index| &self.prefixes[index]) {
            let rest = &uri[prefix.literal.len()..];
            for (template, route) in &prefix.templates {
                let cost = rest.len() + ATTEMPT_COST;
                let of_server = spent.entry(Arc::as_ptr(&route.upstream)).or_default();
                *of_server += cost;
                if *of_server > SERVER_BYTES_MAX {
                    continue;
                }
                if !budget.spend(cost) {
                    return None;
                }
                if template.matches_rest(rest) {
                    return Some(route);
                }
            }
            index = prefix.parent;
        }
        None
    }

    /// Finds the longest prefix that a URI starts with.
    fn longest_prefix(&self, uri: &str) -> Option<usize> {
        // The last prefix that sorts before the URI shares the longest beginning with it.
        let behind = self
            .prefixes
            .partition_point(|prefix| prefix.literal.as_str() <= uri);
        let mut index = behind.checked_sub(1)?;
        let last = self.prefixes[index].literal.as_bytes();
        let common = last
            .iter()
            .zip(uri.as_bytes())
            .take_while(|(a, b)| a == b)
            .count();
        // Any prefix of both the URI and this text is among this one's parents.
        while self.prefixes[index].literal.len() > common {
            index = self.prefixes[index].parent?;
        }
        Some(index)
    }
}

/// URI template (RFC 6570) behind its literal prefix, as far as the text around expressions decides
/// about a URI. `{x}` matches anything without a slash. `{+x}`, `{/x*}` and the like match
/// anything.
pub(super) struct UriTemplate {
    steps: Vec<TemplateStep>,
}

/// Expression, or several side by side, with the text behind it.
struct TemplateStep {
    takes_slashes: bool,
    text: String,
    is_last: bool,
}

impl TemplateStep {
    /// Returns true if the expression can have this value.
    fn takes(&self, value: &str) -> bool {
        self.takes_slashes || (!value.is_empty() && !value.contains('/'))
    }
}

impl UriTemplate {
    /// Parses a template into its literal prefix and the rest. Returns `None` if it is malformed or
    /// has too many expressions.
    pub(super) fn parse(template: &str) -> Option<(&str, Self)> {
        let (literal, mut rest) = template.split_at(template.find('{').unwrap_or(template.len()));
        let mut steps: Vec<TemplateStep> = Vec::new();
        let mut expressions = 0;
        while let Some(expression) = rest.strip_prefix('{') {
            let (expression, behind) = expression.split_once('}')?;
            let (text, next) = behind.split_at(behind.find('{').unwrap_or(behind.len()));
            let takes_slashes = !is_simple(expression);
            expressions += 1;
            match steps.last_mut() {
                // Adjacent expressions have no boundary in a URI, so they are merged.
                Some(last) if last.text.is_empty() => {
                    last.takes_slashes |= takes_slashes;
                    last.text.push_str(text);
                }
                _ => steps.push(TemplateStep {
                    takes_slashes,
                    text: text.to_owned(),
                    is_last: false,
                }),
            }
            rest = next;
        }
        if expressions >= EXPRESSIONS_MAX {
            return None;
        }
        if let Some(last) = steps.last_mut() {
            last.is_last = true;
        }
        Some((literal, UriTemplate { steps }))
    }

    /// Returns true if the rest of a URI behind the literal prefix matches. Each step takes the
    /// shortest fit, so the cost grows with the length of the URI alone.
    pub(super) fn matches_rest(&self, mut rest: &str) -> bool {
        for step in &self.steps {
            if step.is_last {
                return rest
                    .strip_suffix(step.text.as_str())
                    .is_some_and(|value| step.takes(value));
            }
            match memmem::find(rest.as_bytes(), step.text.as_bytes()) {
                Some(index) if step.takes(&rest[..index]) => {
                    rest = &rest[index + step.text.len()..]
                }
                _ => return false,
            }
        }
        rest.is_empty()
    }
}

/// Returns true if a URI can come from a URI template.
pub fn matches(template: &str, uri: &str) -> bool {
    let read = UriTemplate::parse(template);
    read.is_some_and(|(literal, rest)| {
        uri.strip_prefix(literal)
            .is_some_and(|uri| rest.matches_rest(uri))
    })
}

fn is_simple(expression: &str) -> bool {
    !expression.starts_with(['+', '#', '/', '?', '&', ';', '.']) && !expression.contains('*')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::NameRules;
    use crate::testing::{running_server, snapshot};
    use moongate_jsonrpc::json::{JsonObject, RawJson};
    use moongate_model::ItemKind;

    /// Returns the server of the template that a URI is found by, and the rest of the budget.
    fn found(servers: &[(&str, Vec<String>)], uri: &str) -> (Option<String>, usize) {
        let members: Vec<_> = servers
            .iter()
            .map(|(n, all)| {
                let templates = all.iter().map(|uri| {
                    JsonObject::new()
                        .with("uriTemplate", RawJson::string(uri))
                        .with("name", RawJson::string("t"))
                });
                running_server(n, ItemKind::Templates, templates)
            })
            .collect();
        let snapshot = snapshot(
            &members,
            &NameRules {
                separator: "__".to_owned(),
                max_length: 45,
            },
        );
        let budget = LookupBudget::new();
        let found = snapshot
            .find_template(uri, &budget)
            .map(|route| route.upstream.settings.name.clone());
        (found, REQUEST_BYTES_MAX - budget.0.get())
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn the_longest_prefix_is_tried_first_and_shorter_ones_after_it() {
        let servers = [
            ("a", texts(&["{+any}", "x:{id}", "x:aa{b}/c", "y:{+rest}"])),
            ("b", texts(&["x:a{+rest}", "x:ab{+rest}/end", "x:{+rest}"])),
            ("c", texts(&["x:abc"])),
        ];
        let cases = [
            ("x:abc", Some("c")),
            ("x:abd", Some("b")),
            ("x:ab/end", Some("b")),
            ("x:aab/c", Some("a")),
            ("x:aab/d", Some("b")),
            ("x:1", Some("b")),
            ("x:1/2", Some("b")),
            ("z", Some("a")),
            ("", Some("a")),
        ];
        for (uri, server) in cases {
            assert_eq!(found(&servers, uri).0.as_deref(), server, "{uri}");
        }
    }

    #[test]
    fn a_lookup_has_a_bound_that_leaves_room_for_other_servers() {
        let hostile: Vec<String> = (0..9000).map(|n| format!("x:{{+a}}aab{n}{{+b}}")).collect();
        let chained: Vec<String> = (1..4000)
            .map(|n| format!("{}{{+b}}!", "x".repeat(n)))
            .collect();
        let servers = [
            ("a", [hostile, chained].concat()),
            ("b", vec!["x:{+rest}".to_owned()]),
        ];
        let (server, spent) = found(&servers, &format!("x:{}", "a".repeat(8000)));
        assert_eq!(server.as_deref(), Some("b"));
        assert!(spent <= SERVER_BYTES_MAX + 2 * 8100, "{spent}");
        let (server, spent) = found(&servers, &"x".repeat(8000));
        assert_eq!(server, None);
        assert!(spent <= SERVER_BYTES_MAX, "{spent}");
    }

    #[test]
    fn a_budget_is_for_all_lookups_of_a_request() {
        let budget = LookupBudget::new();
        assert!(budget.spend(REQUEST_BYTES_MAX - 1) && !budget.is_spent());
        assert!(!budget.spend(2) && budget.is_spent() && !budget.spend(1));
    }

    #[test]
    fn templates_match_what_they_can_make() {
        let yes = [
            ("test://template/{id}/data", "test://template/123/data"),
            ("file:///{+path}", "file:///a/b/c"),
            ("a://x{?q,r}", "a://x?q=1"),
            ("a://x{?q}", "a://x"),
            ("a://{a}{b}/c", "a://12/c"),
            ("plain://x", "plain://x"),
        ];
        let no = [
            ("test://template/{id}/data", "test://template/1/2/data"),
            ("test://template/{id}/data", "test://template//data"),
            ("test://{id}", "other://1"),
            ("test://{id", "test://1"),
            ("plain://x", "plain://xy"),
        ];
        for (template, uri) in yes {
            assert!(matches(template, uri), "{template} {uri}");
        }
        for (template, uri) in no {
            assert!(!matches(template, uri), "{template} {uri}");
        }
    }

    proptest! {
        #[test]
        fn matching_ends(template in "[a{}/x+]{0,60}", uri in "[a/x]{0,60}") {
            matches(&template, &uri);
        }
    }
}
