//! Definition of a tool at an endpoint in search mode, whose list does not have it.
//!
//! Owns the question to the endpoint. Does not call the tool. Invariant: only a gateway in search
//! mode is asked, and no server that has a tool called `describe_tool`.

use std::sync::Arc;

use moongate_jsonrpc::json::{JsonObject, RawJson};
use moongate_model::{Call, McpMethod};

use super::connect::VerbClient;

/// Tools of an endpoint in search mode. All of them are listed there.
const META_TOOLS: [&str; 3] = ["search_tools", DESCRIBE, "call_tool"];
const DESCRIBE: &str = "describe_tool";

/// Answer of an endpoint in search mode.
pub(super) enum DescribedTool {
    /// Definition of the tool.
    Definition(Arc<JsonObject>),
    /// Text about a name that no tool has.
    Unknown(String),
}

/// Asks for the definition of a tool. `None` if the endpoint is not in search mode, or does not
/// say.
pub(super) async fn describe(
    client: &VerbClient,
    listed: &[Arc<JsonObject>],
    name: &str,
) -> Option<DescribedTool> {
    if !META_TOOLS
        .iter()
        .all(|tool| find_tool(listed, tool).is_some())
    {
        return None;
    }
    let names = RawJson::array([RawJson::string(name)].iter());
    let params = JsonObject::new()
        .with("name", RawJson::string(DESCRIBE))
        .with("arguments", JsonObject::new().with("names", names).to_raw());
    let call = Call {
        definition: find_tool(listed, DESCRIBE).cloned(),
        ..Call::new(McpMethod::CallTool, params)
    };
    let outcome = client.finish_call(call).await.ok()?;
    let block = outcome
        .result
        .get("content")?
        .as_array()?
        .into_iter()
        .next()?;
    let text = block.as_object()?.get_string("text")?;
    let definition = JsonObject::parse(text.as_bytes().to_vec().into()).ok();
    let definition = definition.filter(|tool| tool.get_string("name").as_deref() == Some(name));
    Some(match definition {
        Some(definition) => DescribedTool::Definition(Arc::new(definition)),
        None => DescribedTool::Unknown(text.to_string()),
    })
}

fn find_tool<'a>(listed: &'a [Arc<JsonObject>], name: &str) -> Option<&'a Arc<JsonObject>> {
    listed
        .iter()
        .find(|tool| tool.get_string("name").as_deref() == Some(name))
}
