//! Meta-tools: the gateway's own tools, which find and call those of servers.
//!
//! Owns their names and definitions. Does not run them. Invariant: a definition is the same bytes
//! in every list, so that clients' prompt caches stay valid.

use std::sync::LazyLock;

use serde_json::Value;

use crate::settings::SearchRules;
use moongate_jsonrpc::json::{JsonObject, RawJson};

/// Definitions in the order of [`MetaTool::ALL`].
static DEFINITIONS: LazyLock<Vec<RawJson>> = LazyLock::new(|| {
    // No panic in service: a test fails first if the file does not parse.
    let definitions: Vec<Value> =
        serde_json::from_str(include_str!("meta_tools.json")).unwrap_or_default();
    definitions.iter().map(RawJson::from_value).collect()
});

/// Tool of the gateway's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetaTool {
    SearchTools,
    DescribeTool,
    CallTool,
    CallReadonlyTool,
    ListServers,
    SearchResources,
    ReadResource,
    SearchPrompts,
    GetPrompt,
}

impl MetaTool {
    /// All of them, in the order of lists.
    pub(super) const ALL: [MetaTool; 9] = [
        MetaTool::SearchTools,
        MetaTool::DescribeTool,
        MetaTool::CallTool,
        MetaTool::CallReadonlyTool,
        MetaTool::ListServers,
        MetaTool::SearchResources,
        MetaTool::ReadResource,
        MetaTool::SearchPrompts,
        MetaTool::GetPrompt,
    ];

    /// Finds the meta-tool of this name.
    pub(super) fn from_name(name: &str) -> Option<MetaTool> {
        MetaTool::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// Returns the name that clients call it by.
    pub(super) fn name(self) -> &'static str {
        match self {
            MetaTool::SearchTools => "search_tools",
            MetaTool::DescribeTool => "describe_tool",
            MetaTool::CallTool => "call_tool",
            MetaTool::CallReadonlyTool => "call_readonly_tool",
            MetaTool::ListServers => "list_servers",
            MetaTool::SearchResources => "search_resources",
            MetaTool::ReadResource => "read_resource",
            MetaTool::SearchPrompts => "search_prompts",
            MetaTool::GetPrompt => "get_prompt",
        }
    }

    /// Returns true if the config has it.
    pub(super) fn is_enabled(self, rules: &SearchRules) -> bool {
        match self {
            MetaTool::CallReadonlyTool => rules.split_calls,
            MetaTool::SearchResources
            | MetaTool::ReadResource
            | MetaTool::SearchPrompts
            | MetaTool::GetPrompt => rules.resources,
            _ => true,
        }
    }

    /// Returns true if its calls may become tasks, as far as the tool that it calls can.
    pub(super) fn calls_tools(self) -> bool {
        matches!(self, MetaTool::CallTool | MetaTool::CallReadonlyTool)
    }

    /// Returns the definition as lists show it.
    pub(super) fn definition(self) -> RawJson {
        // Only the order ties a definition to its variant. A test compares their names.
        DEFINITIONS
            .get(self as usize)
            .cloned()
            .unwrap_or(RawJson::NULL)
    }

    /// Returns the members of its definition.
    pub(super) fn members(self) -> JsonObject {
        self.definition().as_object().unwrap_or_default()
    }

    /// Returns true if it has an argument of this name.
    pub(super) fn has_argument(self, name: &str) -> bool {
        let properties = self
            .members()
            .get_object("inputSchema")
            .and_then(|schema| schema.get_object("properties"));
        properties.is_some_and(|properties| properties.get(name).is_some())
    }

    /// Returns the line that says how to call it.
    pub(super) fn signature(self) -> String {
        let definition = self.members();
        let schema = definition
            .get("inputSchema")
            .map(|schema| schema.bytes().clone())
            .unwrap_or_default();
        moongate_search::signature(self.name(), &String::from_utf8_lossy(&schema))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_meta_tool_has_its_definition() {
        assert_eq!(DEFINITIONS.len(), MetaTool::ALL.len());
        for tool in MetaTool::ALL {
            let definition = tool.members();
            assert_eq!(definition.get_string("name").as_deref(), Some(tool.name()));
            assert_eq!(MetaTool::from_name(tool.name()), Some(tool));
            assert!(tool.signature().starts_with(&format!("{}(", tool.name())));
        }
        let signature = r#"search_tools(query: string, server?: string, limit?: integer = 5, detail?: "signature"|"full" = "signature")"#;
        assert_eq!(MetaTool::SearchTools.signature(), signature);
    }
}
