//! Layers of a config around one server's entry: what the entry says, and what it inherits.
//!
//! Owns the split between the file of the entry and all other layers. Does not edit (`operation`).
//! Invariant: a layer counts as it does when the config is loaded, whether it is a file, a variable
//! or the defaults.

use super::edit_error::ConfigEditError;
use super::file_entry::FileEntry;
use crate::collector::ProblemCollector;
use crate::layers::read_layers;
use crate::merge;
use crate::options::LoadOptions;
use crate::source::ConfigSources;
use crate::tree::{ConfigNode, ConfigPath, ConfigValue};

/// Layers of a config, split into one file's entry of a server and the rest.
pub(super) struct ServerLayers<'a> {
    server: &'a str,
    /// Entry in our words. `None` if the file knows the server under another name.
    own: Option<ConfigNode>,
    /// Merge of all layers without the entry.
    rest: ConfigNode,
}

impl<'a> ServerLayers<'a> {
    /// Reads the layers. Fails for a config that cannot be read, because an edit could then lose
    /// what the entry inherits.
    pub(super) fn read(
        options: &LoadOptions<'_>,
        server: &'a str,
        entry: &FileEntry,
    ) -> Result<Self, ConfigEditError> {
        let mut layers = read_layers(
            options,
            &mut ConfigSources::default(),
            &mut ProblemCollector::default(),
        )
        .map_err(|problems| ConfigEditError::invalid_before(&problems))?;
        // The files are the first layers, in their order.
        let own = options
            .paths
            .iter()
            .position(|path| *path == entry.path)
            .and_then(|at| layers.get_mut(at))
            .and_then(|layer| take_entry(layer, server));
        let rest =
            merge::merge(&layers).map_err(|error| ConfigEditError::new("problems", error))?;
        Ok(ServerLayers { server, own, rest })
    }

    /// Returns true if the server is off even without what the entry says.
    pub(super) fn is_off_elsewhere(&self) -> bool {
        !self.rest.is_used(self.server, &[])
    }

    /// Returns the list of tools that the entry has, lists under a client's keys included.
    pub(super) fn own_tools(&self, list: &str) -> Option<Vec<String>> {
        texts(self.own.as_ref()?.child("tools")?.child(list)?)
    }

    /// Returns the list of tools that holds if the entry has none. An entry's own list replaces it.
    pub(super) fn inherited_tools(&self, list: &str) -> Option<Vec<String>> {
        let server = ConfigPath::of(&["servers", self.server, "tools", list]);
        let defaults = ConfigPath::of(&["defaults", "tools", list]);
        [server, defaults]
            .iter()
            .find_map(|path| texts(self.rest.at(path)?))
    }
}

/// Takes the entry of a server out of a layer.
fn take_entry(layer: &mut ConfigNode, server: &str) -> Option<ConfigNode> {
    let servers = layer.as_table_mut()?.get_mut("servers")?;
    servers.as_table_mut()?.remove(server)
}

/// Reads a list of texts.
pub(super) fn texts(node: &ConfigNode) -> Option<Vec<String>> {
    let ConfigValue::List(items) = &node.value else {
        return None;
    };
    let texts = items.iter().filter_map(ConfigNode::as_text);
    Some(texts.map(str::to_owned).collect())
}
