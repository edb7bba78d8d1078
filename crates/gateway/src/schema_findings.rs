//! Findings about tools whose input schema model APIs refuse.
//!
//! Owns their text. Does not change schemas (`schemas.rs`). Invariant: a finding says what was done
//! about the tool.

use crate::catalog::Snapshot;
use crate::catalog_route::CatalogRoute;
use crate::endpoint_scope::EndpointScope;
use crate::findings::{CatalogFinding, FindingTopic};
use crate::generation::Generation;
use crate::schemas::{CombinedSchema, SchemaStyle};
use moongate_model::ItemKind;

/// Returns a finding for each tool that model APIs refuse, and says what was done about it.
pub(super) fn refused_tools(generation: &Generation, snapshot: &Snapshot) -> Vec<CatalogFinding> {
    let mut compatible: Vec<String> = Vec::new();
    for scope in generation.scopes.values() {
        match scope {
            EndpointScope::All if generation.schema == SchemaStyle::Compatible => {
                compatible.push("/mcp".to_owned())
            }
            EndpointScope::View(view)
                if view.schema.unwrap_or(generation.schema) == SchemaStyle::Compatible =>
            {
                compatible.push(format!("/mcp/{}", view.name));
            }
            _ => {}
        }
    }
    compatible.sort_unstable();
    let tools = snapshot
        .iter(ItemKind::Tools)
        .filter_map(|route| Some((route, route.form.combined.as_ref()?)));
    tools
        .map(|(route, combined)| refused_tool(route, combined, &compatible))
        .collect()
}

/// Returns the finding for a tool. `compatible`: the endpoints that list compatible schemas.
fn refused_tool(
    route: &CatalogRoute,
    combined: &CombinedSchema,
    compatible: &[String],
) -> CatalogFinding {
    let done = match (&combined.compatible, compatible.is_empty()) {
        (None, _) => "listed unchanged because it cannot be rewritten".to_owned(),
        (Some(_), true) => {
            "listed unchanged; gateway.schema = \"compatible\" lists it without".to_owned()
        }
        (Some(_), false) => format!("changed at {}", compatible.join(", ")),
    };
    let keywords = combined.keywords.join(", ");
    let text = format!(
        "{}: {keywords} at the top of its inputSchema: {done}",
        route.exposed
    );
    CatalogFinding {
        server: Some(route.upstream.settings.name.clone()),
        topic: FindingTopic::Schema,
        text,
    }
}
