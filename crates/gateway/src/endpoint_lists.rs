//! Lists of an endpoint.
//!
//! Owns what each caller sees in them. Does not hold items (`catalog.rs`). Invariant: an item that
//! may not be used is not listed.

use crate::catalog::{ListKey, RenderedList};
use crate::catalog_route::{CatalogRoute, ItemForm};
use crate::endpoint::Endpoint;
use crate::endpoint_scope::EndpointScope;
use crate::search_mode::is_meta_name;
use crate::settings::SearchRules;
use crate::{SchemaStyle, expose, schemas};
use moongate_jsonrpc::json::{JsonObject, RawJson};
use moongate_model::{Caller, Error, ItemKind, McpErrorKind, Outcome, Principal, RoleId};
use moongate_protocol::{Era, LegacyForm, era_of};
use moongate_upstream::Upstream;

impl Endpoint {
    pub(super) fn list_items(
        &self,
        caller: &Caller,
        kind: ItemKind,
        params: &JsonObject,
        with_tasks: bool,
    ) -> Result<Outcome, Error> {
        if params.get("cursor").is_some_and(|cursor| !cursor.is_null()) {
            // Every list has one page, so no cursor was ever given out.
            // 2025-11-25/server/utilities/pagination.mdx, Error Handling: "Invalid cursors SHOULD
            // result in an error with code -32602 (Invalid params)."
            return Err(Error::new(
                McpErrorKind::InvalidParams,
                "Invalid params: unknown cursor",
            ));
        }
        let RenderedList {
            mut result,
            mut hint,
            ..
        } = self.rendered_list(caller, kind, with_tasks);
        if let Some(absence) = self.absence()
            && self.sees_servers(&caller.principal)
        {
            moongate_protocol::explain_absence(&mut result, &absence);
            // The absence of a server may end at any time.
            hint.ttl_ms = 0;
        }
        // The shortest cache time of any server holds for the whole list.
        let is_own = kind == ItemKind::Tools && self.search_rules().is_some();
        for upstream in self.servers().filter(|_| !is_own) {
            if let Some(ttl) = upstream.list_ttl(kind) {
                hint.ttl_ms = hint.ttl_ms.min(ttl);
            }
        }
        Ok(Outcome {
            result,
            cache_hint: Some(hint),
            task: None,
        })
    }

    /// Returns true if a caller may know any server of this endpoint.
    fn sees_servers(&self, principal: &Principal) -> bool {
        let snapshot = self.generation.snapshot.load();
        !self.visible_servers(principal, &snapshot).is_empty()
    }

    /// Renders a list, without the age of its parts.
    pub(super) fn rendered_list(
        &self,
        caller: &Caller,
        kind: ItemKind,
        with_tasks: bool,
    ) -> RenderedList {
        let era = era_of(caller.revision);
        let key = ListKey {
            endpoint: self.name.clone(),
            role: caller.principal.role(),
            kind,
            with_tasks,
            era,
        };
        // Without keys every caller sees the same list, so shared caches may hold it.
        let public = caller.principal.role() == RoleId::ANONYMOUS;
        let snapshot = self.generation.snapshot.load();
        let search = self.search_rules().filter(|_| kind == ItemKind::Tools);
        snapshot.list(
            key,
            public,
            || {
                search
                    .map(|rules| self.list_meta_tools(rules, &snapshot, with_tasks))
                    .unwrap_or_default()
            },
            |route| {
                if search.is_some_and(|rules| is_left_to_search(rules, route)) {
                    return None;
                }
                let form = route.form_for(era)?;
                self.permits(&caller.principal, kind, route)
                    .then(|| self.render_for(caller.revision, kind, route, form, with_tasks))
                    .flatten()
            },
        )
    }

    /// Renders an item for a client's list. `None`: legacy clients do not get it.
    fn render_for(
        &self,
        revision: &str,
        kind: ItemKind,
        route: &CatalogRoute,
        form: &ItemForm,
        with_tasks: bool,
    ) -> Option<RawJson> {
        let plain = self.listed_for(revision, kind, route, form);
        let plain = if era_of(revision) == Era::Legacy {
            legacy_form(kind, form, plain)?
        } else {
            plain
        };
        match with_tasks && runs_as_task(&route.upstream) {
            true => Some(moongate_protocol::offer_as_task(&plain).unwrap_or(plain)),
            false => Some(plain),
        }
    }

    /// Renders a form of an item as lists show it to a client of this revision.
    pub(super) fn listed_for(
        &self,
        client: &str,
        kind: ItemKind,
        route: &CatalogRoute,
        form: &ItemForm,
    ) -> RawJson {
        let plain = self.listed_definition(kind, route, form);
        form.output.listed_for(client, &plain).unwrap_or(plain)
    }

    /// Renders a form of an item as its server wrote it, under its exposed name.
    pub(super) fn listed_definition(
        &self,
        kind: ItemKind,
        route: &CatalogRoute,
        form: &ItemForm,
    ) -> RawJson {
        let style = match &self.scope {
            EndpointScope::View(view) => view.schema.unwrap_or(self.generation.schema),
            _ => self.generation.schema,
        };
        let plain = if self.keeps_local_names() {
            render_local(kind, route, form)
        } else {
            form.listed.clone()
        };
        let combined = form
            .combined
            .as_ref()
            .filter(|_| style == SchemaStyle::Compatible);
        let compatible = combined.and_then(|combined| combined.compatible.as_ref());
        compatible
            .and_then(|schema| schemas::with_schema(&plain, schema))
            .unwrap_or(plain)
    }
}

/// Returns true if a list in search mode leaves a tool out, so that only a search finds it.
fn is_left_to_search(rules: &SearchRules, route: &CatalogRoute) -> bool {
    !rules.always.matches(&route.exposed) || is_meta_name(&route.exposed)
}

/// Returns true if any tool of the server may become a task without declaring it.
fn runs_as_task(upstream: &Upstream) -> bool {
    upstream
        .description()
        .and_then(|description| description.capabilities.tasks)
        .is_some_and(|tasks| tasks.any_tool)
}

/// Returns a listed item as legacy clients take it. `None`: they do not get it.
fn legacy_form(kind: ItemKind, form: &ItemForm, listed: RawJson) -> Option<RawJson> {
    match &form.legacy {
        LegacyForm::Same => Some(listed),
        LegacyForm::Mended(mend) => mend.apply(kind, &listed),
        LegacyForm::LeftOut(_) => None,
    }
}

/// Renders an item under its server's own key, with the config's description.
fn render_local(kind: ItemKind, route: &CatalogRoute, form: &ItemForm) -> RawJson {
    let rules = match kind {
        ItemKind::Tools => &route.upstream.settings.presentation.tools,
        ItemKind::Prompts => &route.upstream.settings.presentation.prompts,
        ItemKind::Resources | ItemKind::Templates => {
            &route.upstream.settings.presentation.resources
        }
    };
    expose::render_item(
        kind,
        &form.definition,
        &route.local,
        rules.describe.get(route.local.as_str()),
    )
}
