//! Locations of servers, of their rules and of keys, for people who look for them.
//!
//! Owns the search in the layers. Does not report problems (`source`). Invariant: a location is a line
//! of a file, as the file was when the config was read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use moongate_edit::ConfigFile;

use super::keys::KeyList;
use super::source::ConfigSources;
use super::tree::{ConfigNode, ConfigPath, ConfigValue, SourceSpan};

/// Tables of a server that have rules.
const KINDS: [&str; 3] = ["tools", "resources", "prompts"];
/// Lists of patterns in such a table.
const LISTS: [&str; 3] = ["allow", "deny", "hide"];

/// Locations in the files of a config.
#[derive(Clone, Debug, Default)]
pub struct ConfigLocations {
    files: Vec<ReadFile>,
    servers: BTreeMap<String, ServerLocation>,
    defaults: RuleLines,
    /// Lines of keys, by list and name.
    keys: BTreeMap<(KeyList, String), FileLine>,
}

/// File as it was read.
#[derive(Clone, Debug)]
pub struct ReadFile {
    /// Absolute path.
    pub path: PathBuf,
    /// Tag of its bytes.
    pub tag: String,
    /// Reason why it cannot be written, if there is one.
    pub why_not: Option<String>,
}

#[derive(Clone, Debug)]
struct ServerLocation {
    line: FileLine,
    rules: RuleLines,
    /// Variables that decide about keys of its entry.
    variables: Vec<String>,
}

/// Line of a file, by the file's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileLine {
    file: usize,
    line: usize,
}

/// Lines of the patterns of each list. `None` for patterns of no file.
type RuleLines = BTreeMap<(&'static str, &'static str), Vec<Option<FileLine>>>;

impl ReadFile {
    fn new(path: &Path, tag: String) -> Self {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let why_not = ConfigFile::check_writable(&path)
            .err()
            .map(|error| error.to_string());
        ReadFile { path, tag, why_not }
    }
}

/// Finds a list of patterns in the table at `path`.
fn list_at<'a>(
    layer: &'a ConfigNode,
    path: &[&str],
    kind_and_list: [&str; 2],
) -> Option<&'a ConfigNode> {
    path.iter()
        .chain(&kind_and_list)
        .try_fold(layer, |node, key| node.child(key))
}

/// Lists the variables that values come from.
fn collect_variables(node: &ConfigNode, sources: &ConfigSources, found: &mut Vec<String>) {
    match &node.value {
        ConfigValue::Table(table) => table
            .values()
            .for_each(|node| collect_variables(node, sources, found)),
        _ => {
            found.extend(sources.variable_at(node.span).map(str::to_owned));
        }
    }
}

/// Search for locations in the layers of a config, the weakest of which comes first.
struct LayerSearch<'a> {
    layers: &'a [ConfigNode],
    sources: &'a ConfigSources,
    /// Starts of the lines of each file.
    starts: Vec<Vec<usize>>,
}

impl LayerSearch<'_> {
    fn line_of(&self, span: SourceSpan) -> Option<FileLine> {
        let line = self
            .starts
            .get(span.source)?
            .partition_point(|start| *start <= span.start);
        Some(FileLine {
            file: span.source,
            line,
        })
    }

    /// Finds the rules of the table at `path`. A later list replaces an earlier one.
    fn rules(&self, path: &[&str]) -> RuleLines {
        let mut found = RuleLines::new();
        for (kind, list) in KINDS
            .into_iter()
            .flat_map(|kind| LISTS.map(|list| (kind, list)))
        {
            let mut layers = self.layers.iter().rev();
            let Some(node) = layers.find_map(|layer| list_at(layer, path, [kind, list])) else {
                continue;
            };
            let items = (0..)
                .map_while(|at| node.child(&format!("[{at}]")))
                .map(|item| self.line_of(item.span));
            found.insert((kind, list), items.collect());
        }
        found
    }

    /// Finds the entries of servers, with their rules and variables.
    fn servers(&self) -> BTreeMap<String, ServerLocation> {
        let mut lines: BTreeMap<&String, FileLine> = BTreeMap::new();
        for (name, node) in self
            .layers
            .iter()
            .filter_map(|layer| layer.child("servers")?.as_table())
            .flatten()
        {
            // A later file is stronger. Variables cannot be edited.
            if let Some(line) = self.line_of(node.key) {
                lines.insert(name, line);
            }
        }
        lines
            .into_iter()
            .map(|(name, line)| (name.clone(), self.server(name, line)))
            .collect()
    }

    fn server(&self, name: &str, line: FileLine) -> ServerLocation {
        ServerLocation {
            line,
            rules: self.rules(&["servers", name]),
            variables: self.variables(name),
        }
    }

    /// Lists the variables that decide about keys of a server's entry.
    fn variables(&self, server: &str) -> Vec<String> {
        let path = ConfigPath::of(&["servers", server]);
        let mut found = Vec::new();
        for node in self.layers.iter().filter_map(|layer| layer.at(&path)) {
            collect_variables(node, self.sources, &mut found);
        }
        found
    }

    /// Finds the entries of keys.
    fn keys(&self) -> BTreeMap<(KeyList, String), FileLine> {
        let mut keys = BTreeMap::new();
        for list in [KeyList::Clients, KeyList::Operators] {
            // A later list replaces an earlier one as a whole.
            let found = self
                .layers
                .iter()
                .rev()
                .find_map(|layer| layer.child(list.table())?.child("keys"));
            for item in (0..).map_while(|at| found?.child(&format!("[{at}]"))) {
                // The line of the name: a TOML table may start elsewhere.
                let name = item.child("name");
                if let Some((name, line)) =
                    name.and_then(|name| Some((name.as_text()?, self.line_of(name.span)?)))
                {
                    keys.insert((list, name.replace("$$", "$")), line);
                }
            }
        }
        keys
    }
}

impl ConfigLocations {
    /// Finds the locations. The weakest layer comes first.
    pub(super) fn find(layers: &[ConfigNode], sources: &ConfigSources) -> Self {
        let files: Vec<ReadFile> = sources
            .files()
            .map(|(path, tag)| ReadFile::new(path, tag))
            .collect();
        let search = LayerSearch {
            layers,
            sources,
            starts: sources.line_starts(),
        };
        ConfigLocations {
            files,
            servers: search.servers(),
            defaults: search.rules(&["defaults"]),
            keys: search.keys(),
        }
    }

    /// Returns the files that were read, weakest first.
    pub fn files(&self) -> &[ReadFile] {
        &self.files
    }

    /// Returns the file and the line of a server's entry, if a file has it.
    pub fn server(&self, name: &str) -> Option<(&ReadFile, usize)> {
        let line = self.servers.get(name)?.line;
        Some((self.files.get(line.file)?, line.line))
    }

    /// Returns the variables that decide about keys of a server's entry.
    pub fn server_variables(&self, name: &str) -> &[String] {
        self.servers
            .get(name)
            .map_or(&[], |server| &server.variables)
    }

    /// Returns the file and the line of a key's entry, if a file has it.
    pub fn key(&self, list: KeyList, name: &str) -> Option<(&ReadFile, usize)> {
        let line = self.keys.get(&(list, name.to_owned()))?;
        Some((self.files.get(line.file)?, line.line))
    }

    /// Returns the file and the line of a pattern. `kind` is a table of the server, such as
    /// `tools`, `list` a list in it, such as `deny`, and `index` the position in the list.
    pub fn rule(
        &self,
        server: &str,
        kind: &str,
        list: &str,
        index: usize,
    ) -> Option<(&Path, usize)> {
        let own = self.servers.get(server).map(|server| &server.rules);
        let found = own.into_iter().chain([&self.defaults]);
        // An own list replaces that of the defaults.
        let lines = found.into_iter().find_map(|rules| {
            rules
                .iter()
                .find(|((of_kind, of_list), _)| (*of_kind, *of_list) == (kind, list))
                .map(|(_, lines)| lines)
        });
        let line = (*lines?.get(index)?)?;
        Some((&self.files.get(line.file)?.path, line.line))
    }
}
