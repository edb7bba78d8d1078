//! Formats of files.
//!
//! Owns the names of files that each format has. Does not look into files.

use std::path::Path;

/// Format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// TOML.
    Toml,
    /// JSON, with comments and trailing commas.
    Json,
    /// YAML.
    Yaml,
}

impl Format {
    /// Finds the format by the ending of the file's name.
    pub fn of_file(path: &Path) -> Option<Format> {
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        match &*ending {
            "toml" => Some(Format::Toml),
            "json" | "jsonc" => Some(Format::Json),
            "yaml" | "yml" => Some(Format::Yaml),
            _ => None,
        }
    }
}
