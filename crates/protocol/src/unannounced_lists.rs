//! Lists of a server that announces none of them.
//!
//! Owns the one request for each list, and what the answers say. Does not keep the items.
//! Invariant: a server that announces any list is asked for nothing here.

use std::time::Duration;

use futures_util::future::join_all;

use crate::connect_error::ConnectError;
use moongate_jsonrpc::json::{JsonObject, RawJson};
use moongate_model::{ItemKind, ServerDescription};

/// Time for the answers. A server that ignores methods it does not know must not delay its start
/// for long.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Asks a server that announces no list for each one, and records those that it has.
///
/// Small servers answer `initialize` with `"capabilities": {}` and list tools anyway.
pub(super) async fn find_unannounced_lists<F>(
    description: &mut ServerDescription,
    list: impl Fn(ItemKind) -> F,
) where
    F: Future<Output = Result<JsonObject, ConnectError>>,
{
    let capabilities = &mut description.capabilities;
    if capabilities.tools || capabilities.prompts || capabilities.resources {
        return;
    }
    let answers =
        join_all(ItemKind::ALL.map(|kind| tokio::time::timeout(ANSWER_TIME, list(kind)))).await;
    let mut refused = None;
    for (kind, answer) in ItemKind::ALL.into_iter().zip(answers) {
        match answer {
            Ok(Ok(result))
                if result
                    .get(kind.member())
                    .and_then(RawJson::as_array)
                    .is_some() =>
            {
                match kind {
                    ItemKind::Tools => capabilities.tools = true,
                    ItemKind::Prompts => capabilities.prompts = true,
                    ItemKind::Resources | ItemKind::Templates => capabilities.resources = true,
                }
            }
            // The first refusal is that of tools, which says most.
            Ok(Err(error)) => {
                refused = refused.or(Some(format!("{}: {error}", kind.list_method())))
            }
            _ => {}
        }
    }
    if !(capabilities.tools || capabilities.prompts || capabilities.resources) {
        let why = refused
            .map(|refused| format!(" ({refused})"))
            .unwrap_or_default();
        description.notes.push(format!(
            "it announces no tools, resources or prompts, and lists none either{why}"
        ));
    }
}
