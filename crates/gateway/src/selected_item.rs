//! Item of a server that will be exposed, before it has its key.
//!
//! Owns the config's rules about single items. Does not choose keys (`build_catalog.rs`).
//! Invariant: an item that cannot be exposed is named with the reason.

use std::sync::Arc;

use crate::catalog_route::{CatalogRoute, ItemForm, OtherForm};
use crate::running_server::RunningServer;
use crate::{expose, schemas};
use moongate_access::policy::ItemRules;
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_model::{ItemKind, McpMethod};
use moongate_protocol::{CheckedDefinition, Era, LegacyForm, ToolOutput};
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

impl ExcludedItem {
    fn new(kind: ItemKind, upstream: &RunningServer, item: &JsonObject, reason: String) -> Self {
        ExcludedItem {
            server: upstream.settings.name.clone(),
            item: format!(
                "{} {}",
                kind.member(),
                item.get_string(kind.item_key())
                    .map(|t| t.to_string())
                    .unwrap_or_default()
            ),
            reason,
        }
    }
}

/// Item that will be exposed, before it has its key.
pub(super) struct SelectedItem<'a> {
    pub(super) upstream: &'a Arc<RunningServer>,
    pub(super) local: ByteString,
    /// Name before prefix and separator are added.
    pub(super) base_name: String,
    pub(super) definition: ListedDefinition,
    /// Reasons why the definition is not the server's own.
    pub(super) mends: Vec<String>,
    /// Definition for clients of the other era, where that differs.
    pub(super) other: Option<OtherDefinition>,
    pub(super) implied: bool,
}

/// Definition of an item, as one face of its server lists it.
#[derive(Clone)]
pub(super) struct ListedDefinition {
    /// Definition from the server, repaired if need be.
    pub(super) item: Arc<JsonObject>,
    /// Form in lists of legacy clients.
    pub(super) legacy: LegacyForm,
    /// Era of the connection that listed it. `None`: unknown, or both eras list the same.
    pub(super) era: Option<Era>,
}

impl ListedDefinition {
    /// Returns true if clients of either era see the same in both.
    pub(super) fn is_like(&self, other: &ListedDefinition) -> bool {
        self.item == other.item && self.legacy == other.legacy
    }

    /// Renders the form under its exposed key, with the config's description if there is one.
    fn into_form(
        self,
        kind: ItemKind,
        exposed: &ByteString,
        description: Option<&String>,
    ) -> ItemForm {
        let is_tool = kind == ItemKind::Tools;
        ItemForm {
            listed: expose::render_item(kind, &self.item, exposed, description),
            combined: if is_tool {
                schemas::inspect_schema(&self.item)
            } else {
                None
            },
            output: if is_tool {
                ToolOutput::of(&self.item)
            } else {
                ToolOutput::default()
            },
            listed_era: self.era,
            legacy: self.legacy,
            definition: self.item,
        }
    }
}

/// Definition of an item in the other era.
pub(super) struct OtherDefinition {
    pub(super) era: Era,
    /// `None`: the server does not list it in that era.
    pub(super) definition: Option<ListedDefinition>,
}

fn rules_of(upstream: &RunningServer, kind: ItemKind) -> &ItemRules {
    match kind {
        ItemKind::Tools => &upstream.settings.presentation.tools,
        ItemKind::Prompts => &upstream.settings.presentation.prompts,
        ItemKind::Resources | ItemKind::Templates => &upstream.settings.presentation.resources,
    }
}

/// Applies the config's rules and checks the item, which the server's face in an era lists. Returns
/// `None` if the config excludes it.
pub(super) fn select_item<'a>(
    kind: ItemKind,
    upstream: &'a Arc<RunningServer>,
    era: Era,
    item: &Arc<JsonObject>,
) -> Result<Option<SelectedItem<'a>>, ExcludedItem> {
    // Clients parse a list as one document, with limited depth: one item must not cost them all the
    // others.
    if item.to_raw().depth() > upstream.settings.options.lists.max_depth {
        let most = upstream.settings.options.lists.max_depth;
        let name = &upstream.settings.name;
        let reason = format!("it is nested deeper than {most} levels (servers.{name}.max_depth)");
        return Err(ExcludedItem::new(kind, upstream, item, reason));
    }
    let check = upstream.check_definition(kind, item);
    let CheckedDefinition {
        mended,
        mends,
        legacy,
    } = check
        .as_ref()
        .as_ref()
        .map_err(|reason| ExcludedItem::new(kind, upstream, item, reason.clone()))?;
    let definition = mended.as_ref().unwrap_or(item).clone();
    if kind == ItemKind::Tools
        && let Some(problem) = upstream.tool_problem(era, &definition)
    {
        return Err(ExcludedItem::new(kind, upstream, item, problem));
    }
    let Some(local) = definition.get_string(kind.item_key()) else {
        return Ok(None);
    };
    let rules = rules_of(upstream, kind);
    // The rules name items as their server does: exposed names depend on what other servers list.
    if !rules.allows_name(&local) {
        return Ok(None);
    }
    if matches!(kind, ItemKind::Resources | ItemKind::Templates) && !rules.allows_uri(&local) {
        let name = &upstream.settings.name;
        let reason = format!(
            "it has dot segments, %2e, %2f or %5c, and servers.{name}.resources has patterns"
        );
        return Err(ExcludedItem::new(kind, upstream, item, reason));
    }
    let stem = rules
        .rename
        .get(local.as_str())
        .cloned()
        .unwrap_or_else(|| local.to_string());
    let definition = ListedDefinition {
        item: definition,
        legacy: legacy.clone(),
        era: None,
    };
    Ok(Some(SelectedItem {
        upstream,
        local,
        base_name: stem,
        definition,
        mends: mends.clone(),
        other: None,
        implied: false,
    }))
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
        let description = rules.describe.get(self.local.as_str());
        let other = self.other.map(|other| OtherForm {
            era: other.era,
            form: other
                .definition
                .map(|definition| definition.into_form(kind, &exposed, description)),
        });
        let form = self.definition.into_form(kind, &exposed, description);
        let method = match kind {
            ItemKind::Tools => McpMethod::CallTool,
            ItemKind::Prompts => McpMethod::GetPrompt,
            ItemKind::Resources | ItemKind::Templates => McpMethod::ReadResource,
        };
        let method = method.name();
        let server = &self.upstream.settings.name;
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
            form,
            other,
            exposed,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::names::NameRules;
    use crate::testing::{running_server, snapshot};

    use super::*;

    #[test]
    fn a_definition_is_checked_once_for_all_catalogues() {
        let tool = RawJson::literal(
            r#"{"name":"a","title":7,"outputSchema":{"type":"array","pattern":"("}}"#,
        );
        let servers = [running_server(
            "s",
            ItemKind::Tools,
            tool.as_object().into_iter(),
        )];
        let rules = NameRules {
            separator: "__".to_owned(),
            max_length: 64,
        };
        let forms = [(); 2].map(|()| {
            let snapshot = snapshot(&servers, &rules);
            let route = snapshot.iter(ItemKind::Tools).next().unwrap();
            (route.form.definition.clone(), route.form.legacy.clone())
        });
        let [
            (first, LegacyForm::Mended(mend)),
            (second, LegacyForm::Mended(same)),
        ] = forms
        else {
            panic!("{forms:?}")
        };
        assert!(
            Arc::ptr_eq(&first, &second) && Arc::ptr_eq(&mend, &same),
            "{:?}",
            mend.reasons
        );
    }
}
