//! Texts of clients' files, in each format.

use moongate_clients::{ClientProfile, ServerWrapper, format_of};
use moongate_edit::Format;

use super::path_of;

/// Texts of a file. Each has the server `other` and, but for `one`, `more`.
type FixtureTexts = [(&'static str, &'static str); 4];

const JSON: FixtureTexts = [
    ("empty", "{}\n"),
    (
        "one",
        "{\n  \"WRAPPER\": {\n    \"other\": {\"url\": \"https://other.example/mcp\"}\n  }\n}\n",
    ),
    (
        "many",
        "{\"theme\": \"dark\", \"WRAPPER\": {\"other\": {\"url\": \"https://other.example/mcp\"}, \"more\": \
                 {\"command\": \"run\", \"args\": [\"a\"]}}}",
    ),
    (
        "comments",
        "// top\n{\n\t// mine\n\t\"theme\": \"dark\", /* why */\n\t\"WRAPPER\": {\n\t\t// the other\n\t\t\"other\": \
                 {\"url\": \"https://other.example/mcp\"}, // behind\n\t\t\"more\": \
                 {\n\t\t\t\"command\": \"run\", // it\n\t\t},\n\
                 \t},\n}\n// end\n",
    ),
];

const TOML_TABLES: FixtureTexts = [
    ("empty", ""),
    (
        "one",
        "[WRAPPER.other]\nurl = \"https://other.example/mcp\"\n",
    ),
    (
        "many",
        "model = \"x\"\n\n[WRAPPER.other]\nurl \
         = \"https://other.example/mcp\"\n\n[WRAPPER.more]\ncommand = \"run\"\nargs = \
                 [\"a\"]\n\n[tui]\ntheme = \"dark\"\n",
    ),
    (
        "comments",
        "# top\nmodel = \"x\" # mine\n\n# the other\n[WRAPPER.other] # head\nurl \
         = \"https://other.example/mcp\" # behind\n\n\
                 [WRAPPER.more]\n# inside\ncommand = \"run\"\n# end\n",
    ),
];

const TOML_LIST: FixtureTexts = [
    ("empty", ""),
    (
        "one",
        "[[WRAPPER]]\nname = \"other\"\nurl = \"https://other.example/mcp\"\n",
    ),
    (
        "many",
        "model = \"x\"\n\n[[WRAPPER]]\nname = \"other\"\nurl \
         = \"https://other.example/mcp\"\n\n[[WRAPPER]]\nname = \"more\"\n\
                 command = \"run\"\n",
    ),
    (
        "comments",
        "# top\n\n# the other\n[[WRAPPER]] # head\nname = \"other\" # it\nurl \
         = \"https://other.example/mcp\"\n\n[[WRAPPER]]\n# \
                 inside\nname = \"more\"\ncommand = \"run\"\n# end\n",
    ),
];

const YAML_TABLES: FixtureTexts = [
    ("empty", ""),
    (
        "one",
        "WRAPPER:\n  other:\n    type: sse\n    uri: https://other.example/mcp\n",
    ),
    (
        "many",
        "model: x\nWRAPPER:\n  other:\n    type: sse\n    uri: https://other.example/mcp\n  \
         more:\n    type: stdio\n    cmd: run\n\
                 theme: dark\n",
    ),
    (
        "comments",
        "# top\nmodel: x # mine\n# servers\nWRAPPER:\n  # the other\n  other: # head\n    type: \
         sse\n    uri: \
                 https://other.example/mcp # behind\n  more:\n    # inside\n    type: stdio\n    \
                 cmd: run\n# end\n",
    ),
];

const YAML_LIST: FixtureTexts = [
    ("empty", ""),
    (
        "one",
        "WRAPPER:\n  - name: other\n    url: https://other.example/mcp\n",
    ),
    (
        "many",
        "name: x\nWRAPPER:\n  - name: other\n    url: https://other.example/mcp\n  - name: \
         more\n    command: run\nmodels: []\n",
    ),
    (
        "comments",
        "# top\nname: x # mine\nWRAPPER:\n  # the other\n  - name: other # head\n    url: \
         https://other.example/mcp # behind\n  - \
                 name: more\n    # inside\n    command: run\n# end\n",
    ),
];

/// Texts of a client's file.
pub(crate) fn fixtures(profile: &ClientProfile) -> Vec<(&'static str, String)> {
    let texts = match (format_of(&path_of(profile)), profile.wrapper) {
        (Format::Json, _) => JSON,
        (Format::Toml, ServerWrapper::Map(_)) => TOML_TABLES,
        (Format::Toml, ServerWrapper::List(_)) => TOML_LIST,
        (Format::Yaml, ServerWrapper::Map(_)) => YAML_TABLES,
        (Format::Yaml, ServerWrapper::List(_)) => YAML_LIST,
    };
    texts
        .into_iter()
        .map(|(case, text)| (case, text.replace("WRAPPER", profile.wrapper.key())))
        .collect()
}
