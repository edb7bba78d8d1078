//! Popular servers, which need no more than their name to be added.
//!
//! Owns the table (`popular.toml`, part of the program) and the settings of an entry. Does not
//! fetch or probe anything. Invariant: an entry's settings take each argument, and have no secret.

#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use jiff::civil::Date;
use moongate_api::{PopularArgumentRow, PopularKeyRow, PopularRow};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Days after which a probe says little about today.
pub const PROBE_DAYS_MAX: i32 = 120;

/// Popular server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PopularServer {
    /// Name, which is also the name in the config unless the user gives another.
    pub name: String,
    /// Name for people.
    pub title: String,
    /// End of the sentence "is for ...".
    pub purpose: String,
    /// URL of a remote server.
    pub url: Option<String>,
    /// Program of a local server.
    pub command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    /// Arguments that the user gives, in their order.
    #[serde(default)]
    pub arguments: Vec<PopularArgument>,
    /// Key that the server takes.
    pub key: Option<PopularKey>,
    /// Number of its tools when it was probed.
    pub tools: Option<u32>,
    probed: Option<String>,
}

/// Argument that the user gives.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PopularArgument {
    /// Name, in capitals.
    pub name: String,
    /// Meaning, as "the folder that ...".
    pub purpose: String,
    /// True if it is the path of a folder.
    #[serde(default)]
    pub folder: bool,
    /// True if it may be given several times. Only the last argument may.
    #[serde(default)]
    pub repeats: bool,
}

impl PopularArgument {
    fn row(&self) -> PopularArgumentRow {
        PopularArgumentRow {
            name: self.name.clone(),
            purpose: self.purpose.clone(),
            folder: self.folder,
            repeats: self.repeats,
        }
    }
}

/// Key that a server takes in a header.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PopularKey {
    /// Name of the header.
    pub header: String,
    /// Value of the header, with a reference to the variable.
    pub value: String,
    /// Variable with the key.
    pub variable: String,
    /// True if nothing works without it.
    pub required: bool,
}

impl PopularKey {
    fn row(&self) -> PopularKeyRow {
        PopularKeyRow {
            header: self.header.clone(),
            value: self.value.clone(),
            variable: self.variable.clone(),
            required: self.required,
        }
    }
}

#[derive(Deserialize)]
struct PopularFile {
    server: Vec<PopularServer>,
}

// A test shows that the table parses, so an empty one never happens.
static TABLE: LazyLock<Vec<PopularServer>> = LazyLock::new(|| {
    toml::from_str::<PopularFile>(include_str!("popular.toml"))
        .map_or_else(|_| Vec::new(), |file| file.server)
});

/// Returns the table, in its order.
pub fn popular_servers() -> &'static [PopularServer] {
    &TABLE
}

/// Finds an entry by its exact name.
pub fn popular_server(name: &str) -> Option<&'static PopularServer> {
    TABLE.iter().find(|server| server.name == name)
}

/// Returns a package with the version of the table. `package` has no version, or `@latest`.
pub fn pinned_package(package: &str) -> Option<&'static str> {
    let bare = package.strip_suffix("@latest").unwrap_or(package);
    let words = TABLE.iter().flat_map(|server| &server.args);
    // The scope of an npm package starts with `@`, too.
    words.map(String::as_str).find(|word| {
        word.rsplit_once('@')
            .is_some_and(|(name, _)| !name.is_empty() && name == bare)
    })
}

impl PopularServer {
    /// Returns the settings, as `ConfigOperation::AddServer` takes them. The error names a missing
    /// or excess argument.
    ///
    /// An optional key is left out: a reference to a variable that is not set would keep the server
    /// from starting.
    pub fn settings(&self, args: &[String]) -> Result<Map<String, Value>, String> {
        self.check_arguments(args)?;
        let mut settings = Map::new();
        if let Some(url) = &self.url {
            settings.insert("url".to_owned(), json!(url));
        }
        if let Some(command) = &self.command {
            settings.insert("command".to_owned(), json!(command));
            let filled: Vec<&str> = self
                .args
                .iter()
                .flat_map(|word| self.fill(word, args))
                .collect();
            if !filled.is_empty() {
                settings.insert("args".to_owned(), json!(filled));
            }
        }
        if let Some(key) = self.key.as_ref().filter(|key| key.required) {
            settings.insert(
                "headers".to_owned(),
                json!({ key.header.as_str(): key.value }),
            );
        }
        Ok(settings)
    }

    fn check_arguments(&self, args: &[String]) -> Result<(), String> {
        let usage = self.usage();
        if let Some(missing) = self.arguments.get(args.len()) {
            return Err(format!(
                "{} needs {}, {}: `moongate add {usage}`",
                self.name, missing.name, missing.purpose
            ));
        }
        let takes_more = self.arguments.last().is_some_and(|last| last.repeats);
        if let Some(excess) = args.get(self.arguments.len()).filter(|_| !takes_more) {
            return Err(format!(
                "{excess:?} is one argument too many; use `moongate add {usage}`"
            ));
        }
        match args
            .iter()
            .position(|word| word.is_empty() || word.chars().any(char::is_control))
        {
            Some(at) => Err(format!(
                "argument {} of {} is empty or has control characters",
                at + 1,
                self.name
            )),
            None => Ok(()),
        }
    }

    /// Replaces the mark of an argument by what the user gave.
    fn fill<'a>(&'a self, word: &'a str, args: &'a [String]) -> Vec<&'a str> {
        let mark = word
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'));
        let position = self
            .arguments
            .iter()
            .position(|argument| mark == Some(argument.name.as_str()));
        match position {
            Some(at) if self.arguments[at].repeats => {
                args[at..].iter().map(String::as_str).collect()
            }
            Some(at) => vec![&args[at]],
            None => vec![word],
        }
    }

    /// Returns the name with its arguments, as they are typed: `files DIR...`.
    pub fn usage(&self) -> String {
        let mut usage = self.name.clone();
        for argument in &self.arguments {
            usage += &format!(
                " {}{}",
                argument.name,
                if argument.repeats { "..." } else { "" }
            );
        }
        usage
    }

    /// Returns the URL, or the command as it would be typed, with the names of arguments.
    pub fn target(&self) -> String {
        let words = self.args.iter().map(|word| word.trim_matches(['{', '}']));
        let command = self
            .command
            .iter()
            .map(String::as_str)
            .chain(words)
            .collect::<Vec<_>>()
            .join(" ");
        self.url.clone().unwrap_or(command)
    }

    /// Returns the day of the last probe that found it alive.
    pub fn probed(&self) -> Option<Date> {
        self.probed.as_deref().and_then(|day| day.parse().ok())
    }

    /// True if the last probe is long ago.
    pub fn is_stale(&self, today: Date) -> bool {
        self.probed().is_some_and(|probed| {
            today
                .since(probed)
                .is_ok_and(|age| age.get_days() > PROBE_DAYS_MAX)
        })
    }

    /// Returns the entry for programs.
    pub fn row(&self, today: Date) -> PopularRow {
        PopularRow {
            name: self.name.clone(),
            title: self.title.clone(),
            purpose: self.purpose.clone(),
            url: self.url.clone(),
            command: self.command.clone(),
            args: self.args.clone(),
            arguments: self.arguments.iter().map(PopularArgument::row).collect(),
            usage: self.usage(),
            key: self.key.as_ref().map(PopularKey::row),
            tools: self.tools,
            probed: self.probed.clone(),
            stale: self.is_stale(today),
        }
    }
}
