//! Searches of operators: the tools that a model would find at an endpoint.
//!
//! Owns the form of their hits. Does not rank, and knows no keys. Invariant: the words and the
//! ranking are those of search mode, whether the endpoint is in it or not.

use crate::Gateway;
use crate::catalog::estimate_tokens;
use crate::endpoint_coverage::EndpointCoverage;
use crate::search_mode::find_items::{ItemQuery, no_match_text};
use crate::search_mode::is_meta_name;
use crate::search_mode::item_index::ItemGroup;
use crate::search_mode::meta_arguments::LIMIT_DEFAULT;
use crate::settings::SearchRules;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{Error, ItemKind};
use moongate_protocol::Era;

/// Tools that fit an operator's words.
pub struct FoundTools {
    /// Tools of the endpoint.
    pub total: usize,
    /// Tools that fit, best first.
    pub tools: Vec<FoundTool>,
}

/// Tool that fits an operator's words.
pub struct FoundTool {
    /// Exposed name.
    pub name: ByteString,
    /// Server of the tool.
    pub server: ByteString,
    /// Line that says how to call it.
    pub signature: String,
    /// Beginning of its description, or nothing.
    pub about: String,
    /// Remarks, such as the state of a server that is not ready.
    pub notes: Vec<&'static str>,
    /// Share of the best possible score.
    pub score: f32,
    /// Words of the search that it has.
    pub matched_words: Vec<String>,
}

/// Size of the list that clients of an endpoint get in search mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchModeList {
    /// True if they get it. False if the endpoint has full lists, and this is what it could have
    /// instead.
    pub is_listed: bool,
    /// Number of tools: the meta-tools, and those that are always listed.
    pub tools: usize,
    /// Bytes of their definitions.
    pub bytes: usize,
}

impl SearchModeList {
    /// Estimates the tokens that the list costs a model.
    pub fn tokens(&self) -> u64 {
        estimate_tokens(self.bytes)
    }
}

impl Gateway {
    /// Measures the list of tools that an endpoint gives in search mode, to a caller whose key has
    /// no rules. Returns `None` without such an endpoint, and for that of one server, which has
    /// full lists always.
    pub fn search_mode_list(&self, endpoint: &str) -> Option<SearchModeList> {
        let endpoint = self.current.load().endpoints.get(endpoint)?.clone();
        let own = endpoint.search_rules();
        let usual = SearchRules::default();
        let rules = own.unwrap_or(&usual);
        if endpoint.keeps_local_names() {
            return None;
        }
        let snapshot = endpoint.generation.snapshot.load();
        let always = snapshot.iter(ItemKind::Tools).filter(|route| {
            let is_always = rules.always.matches(&route.exposed) && !is_meta_name(&route.exposed);
            is_always && !route.hidden && endpoint.offers(ItemKind::Tools, route)
        });
        let mut tools = endpoint.list_meta_tools(rules, &snapshot, false);
        tools.extend(
            always.map(|route| endpoint.listed_definition(ItemKind::Tools, route, &route.form)),
        );
        let is_listed = own.is_some();
        Some(SearchModeList {
            is_listed,
            tools: tools.len(),
            bytes: tools.iter().map(|tool| tool.bytes().len()).sum(),
        })
    }

    /// Returns the names of the tools that fit some words, best first. Blocks for the time of the
    /// search.
    pub fn rank_tools(
        &self,
        coverage: &EndpointCoverage,
        words: &str,
        limit: usize,
    ) -> Vec<ByteString> {
        let ranked = self.context.item_indexes.rank(
            &self.snapshot(),
            ItemGroup::Tools,
            words,
            limit,
            |_, route| coverage.has_tool(route),
        );
        ranked
            .items
            .into_iter()
            .map(|item| item.route.exposed.clone())
            .collect()
    }

    /// Finds the tools that fit some words at an endpoint. Returns `None` for an unknown endpoint.
    pub async fn find_tools(
        &self,
        endpoint: &str,
        words: &str,
        limit: usize,
    ) -> Option<Result<FoundTools, Error>> {
        let endpoint = self.current.load().endpoints.get(endpoint)?.clone();
        let words = words.to_owned();
        let found = endpoint.in_background(move |endpoint| {
            let snapshot = endpoint.generation.snapshot.load_full();
            // `offers` and not `permits`: an operator isn't a principal, so rules of keys do not
            // apply.
            let found = endpoint.indexes().rank(
                &snapshot,
                ItemGroup::Tools,
                &words,
                limit,
                |kind, route| endpoint.offers(kind, route),
            );
            let tools = found.items.into_iter().map(|item| {
                let summary = endpoint.summarize(item.kind, &item.route, &item.route.form);
                FoundTool {
                    name: item.route.exposed.clone(),
                    server: item.route.upstream.name.clone(),
                    signature: summary.signature,
                    about: summary.about,
                    notes: summary.notes,
                    score: item.score,
                    matched_words: item.matched_words,
                }
            });
            FoundTools {
                total: found.total,
                tools: tools.collect(),
            }
        });
        Some(found.await)
    }

    /// Returns the text with which `search_tools` would answer a caller whose key has no rules.
    /// `None`: no such endpoint.
    pub async fn search_text(&self, endpoint: &str, words: &str) -> Option<Result<String, Error>> {
        let endpoint = self.current.load().endpoints.get(endpoint)?.clone();
        let group = ItemGroup::Tools;
        let text = ByteString::from(words);
        let query = ItemQuery {
            group,
            text,
            server: None,
            limit: LIMIT_DEFAULT,
            full: false,
            client: "",
        };
        let answer = endpoint.in_background(move |endpoint| {
            let snapshot = endpoint.generation.snapshot.load_full();
            let found = endpoint.indexes().rank(
                &snapshot,
                group,
                &query.text,
                query.limit,
                |kind, route| endpoint.offers(kind, route),
            );
            if found.items.is_empty() {
                return no_match_text(&query, &endpoint.servers().collect::<Vec<_>>());
            }
            endpoint.found_text(Era::Modern, &query, &found)
        });
        Some(answer.await)
    }
}
