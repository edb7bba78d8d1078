//! `FileEditor`, through which operators read and edit the config files of a running gateway.
//!
//! Owns its `ConfigEditor` side. Does not make changes (`change_config.rs`) or edit texts
//! (`moongate_config::edit`). Invariant: changes, previews and comparisons wait for a reload under
//! way.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::ConfigReloader;
use moongate_admin::{
    AppliedChange, ChangePreview, ChangeRefusal, ComparedServers, ConfigChange, ConfigEditor,
    Reloader as _,
};
use moongate_config::edit::{ConfigOperation, EditHistory, PastEdit};
use moongate_config::{ParsedServer, Plan, SettingLocations};

/// Editor of the files that a gateway has its config from.
#[derive(Clone)]
pub(in crate::app) struct FileEditor {
    pub(super) reloader: Arc<ConfigReloader>,
    /// Past edits. A new location of the state needs a restart.
    pub(super) history: Option<Arc<EditHistory>>,
}

impl FileEditor {
    /// Creates the editor. `plan` is the one that the gateway started with.
    pub(in crate::app) fn new(reloader: Arc<ConfigReloader>, plan: &Plan) -> Self {
        FileEditor {
            reloader,
            history: EditHistory::of_plan(plan).map(Arc::new),
        }
    }
}

impl ConfigEditor for FileEditor {
    fn change_config(
        &self,
        change: ConfigChange,
    ) -> BoxFuture<'_, Result<AppliedChange, ChangeRefusal>> {
        Box::pin(self.change_config_files(change))
    }

    fn preview_change(
        &self,
        operations: Vec<ConfigOperation>,
    ) -> BoxFuture<'_, Result<ChangePreview, ChangeRefusal>> {
        Box::pin(self.reloader.prepare_change(operations))
    }

    fn plan_import(
        &self,
        found: Vec<ParsedServer>,
        own_url: String,
    ) -> BoxFuture<'_, Result<ComparedServers, ChangeRefusal>> {
        Box::pin(self.reloader.compare_with_config(found, own_url))
    }

    fn past_edits(&self) -> Vec<PastEdit> {
        let places = &self.reloader.config().places;
        let files: Vec<PathBuf> = places
            .files()
            .iter()
            .map(|file| file.path.clone())
            .collect();
        self.history
            .as_ref()
            .map(|history| history.edits(&files))
            .unwrap_or_default()
    }

    fn setting_places(&self) -> Option<SettingLocations> {
        let source = self.reloader.source.as_ref()?;
        SettingLocations::read(&(source.options)()).ok()
    }
}
