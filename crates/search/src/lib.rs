//! Ranked search over the tools of all servers, and their one-line signatures.
//!
//! Owns what a tool's text is worth to a query, and how near two names are. Does not know MCP's
//! messages, servers' states or rules: the caller's filter says which tools exist for it.
//! Invariant: tools that the filter hides change nothing in an answer.

mod arguments;
mod document;
mod index;
mod name_distance;
mod nearest;
mod query;
mod ranking;
mod schema;
mod segment;
mod signature;
mod stem;
mod synonyms;
mod tokens;
mod weights;

pub use arguments::argument_texts;
pub use document::{ArgumentText, ServerDocument, ToolDocument};
pub use index::{SearchHit, SearchIndex};
pub use name_distance::{few_edits, few_edits_or_beginning, nearest};
pub use signature::{signature, summary};
pub use weights::{FieldWeight, RankingWeights, TextField};
