//! Item of a server that will be exposed, before it has its key.
//!
//! Owns the config's rules about single items. Does not choose keys (`build_catalog.rs`). Invariant: an item that
//! cannot be exposed is named with the reason.

use std::sync::Arc;

use crate::catalog_route::CatalogRoute;
use crate::server_entry::ServerEntry;
use crate::{expose, schemas};
use moongate_access::policy::ItemRules;
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_model::{ItemKind, McpMethod};
use moongate_protocol::{CheckedDefinition, Era, LegacyForm, ToolOutput, check_definition};
use moongate_telemetry::MeterFactory;

/// Item that cannot be exposed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ExcludedItem {
    /// Server of the item.
    pub server: String,
    /// Kind and key, as far as it has one.
    pub item: String,
    /// Reason, for operators.
    pub reason: String,
}

/// Item that will be exposed, before it has its key.
pub(super) struct SelectedItem<'a> {
    pub(super) upstream: &'a Arc<ServerEntry>,
    pub(super) local: ByteString,
    /// Name before prefix and separator are added.
    pub(super) base_name: String,
    pub(super) definition: Arc<JsonObject>,
    /// Reasons why the definition is not the server's own.
    pub(super) mends: Vec<String>,
    pub(super) legacy: LegacyForm,
    pub(super) implied: bool,
    /// Era of the connection that listed it, if known.
    pub(super) era: Option<Era>,
}

fn rules_of(upstream: &ServerEntry, kind: ItemKind) -> &ItemRules {
    match kind {
        ItemKind::Tools => &upstream.settings.tools,
        ItemKind::Prompts => &upstream.settings.prompts,
        ItemKind::Resources | ItemKind::Templates => &upstream.settings.resources,
    }
}

/// Applies the config's rules and checks the item. Returns `None` if the config excludes it.
pub(super) fn select_item<'a>(
    kind: ItemKind,
    upstream: &'a Arc<ServerEntry>,
    item: &Arc<JsonObject>,
) -> Result<Option<SelectedItem<'a>>, ExcludedItem> {
    let left_out = |reason: String| ExcludedItem {
        server: upstream.settings.name.clone(),
        item: format!(
            "{} {}",
            kind.member(),
            item.get_string(kind.item_key()).map(|t| t.to_string()).unwrap_or_default()
        ),
        reason,
    };
    // Clients parse a list as one document, with limited depth: one item must not cost them all the others.
    if item.to_raw().depth() > upstream.settings.lists.depth {
        let (most, name) = (upstream.settings.lists.depth, &upstream.settings.name);
        return Err(left_out(format!("it is nested deeper than {most} levels (servers.{name}.max_depth)")));
    }
    let CheckedDefinition { definition, mends, legacy } = check_definition(kind, item).map_err(left_out)?;
    if kind == ItemKind::Tools
        && let Some(problem) = upstream.tool_problem(&definition)
    {
        return Err(left_out(problem));
    }
    let Some(local) = definition.get_string(kind.item_key()) else { return Ok(None) };
    let rules = rules_of(upstream, kind);
    // The rules name items as their server does: exposed names depend on what other servers list.
    if !rules.allows_name(&local) {
        return Ok(None);
    }
    if matches!(kind, ItemKind::Resources | ItemKind::Templates) && !rules.allows_uri(&local) {
        let name = &upstream.settings.name;
        let reason = format!("it has dot segments, %2e, %2f or %5c, and servers.{name}.resources has patterns");
        return Err(left_out(reason));
    }
    let stem = rules.rename.get(local.as_str()).cloned().unwrap_or_else(|| local.to_string());
    let selected =
        SelectedItem { upstream, local, base_name: stem, definition, mends, legacy, implied: false, era: None };
    Ok(Some(selected))
}

impl SelectedItem<'_> {
    pub(super) fn into_route(
        self,
        kind: ItemKind,
        exposed: ByteString,
        meters: &MeterFactory,
        own_meter: bool,
    ) -> CatalogRoute {
        let rules = rules_of(self.upstream, kind);
        let listed = expose::render_item(kind, &self.definition, &exposed, rules.describe.get(self.local.as_str()));
        let method = match kind {
            ItemKind::Tools => McpMethod::CallTool,
            ItemKind::Prompts => McpMethod::GetPrompt,
            ItemKind::Resources | ItemKind::Templates => McpMethod::ReadResource,
        };
        let (method, server) = (method.name(), &self.upstream.settings.name);
        let meter = match kind {
            ItemKind::Tools if own_meter => meters.meter(method, server, &exposed),
            // Tools beyond the limit share one series.
            ItemKind::Tools => Arc::new(meters.shared_meter(method, server, "_OTHER")),
            _ => Arc::new(meters.shared_meter(method, server, "")),
        };
        CatalogRoute {
            meter,
            upstream: self.upstream.clone(),
            hidden: self.implied || rules.hide.matches(&self.local),
            implied: self.implied,
            local_raw: RawJson::string(&self.local),
            local: self.local,
            exposed,
            listed_era: self.era,
            output: if kind == ItemKind::Tools { ToolOutput::of(&self.definition) } else { ToolOutput::default() },
            combined: if kind == ItemKind::Tools { schemas::inspect_schema(&self.definition) } else { None },
            definition: self.definition,
            legacy: self.legacy,
            listed,
        }
    }
}
