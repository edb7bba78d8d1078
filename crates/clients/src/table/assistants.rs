//! Clients that are desktop programs or web pages for conversations.
//!
//! Owns their rows. Does not own their meaning (`profile`). Invariant: the first file of a row is
//! the one that new versions of the client read.

use super::usual::USUAL;
use crate::profile::{ClientProfile, ConnectMethod, UserFiles};

pub(super) const ROWS: [ClientProfile; 5] = [
    ClientProfile {
        id: "claude-desktop",
        title: "Claude Desktop",
        user_files: UserFiles::Each {
            linux: &["{config}/Claude/claude_desktop_config.json"],
            macos: &["{support}/Claude/claude_desktop_config.json"],
            windows: &["{config}/Claude/claude_desktop_config.json"],
        },
        http: None,
        next_step: "Quit Claude Desktop and start it again.",
        note: "It can only start programs, so the entry starts `moongate stdio`.",
        ..USUAL
    },
    ClientProfile {
        id: "lmstudio",
        title: "LM Studio",
        user_files: UserFiles::Same(&["~/.lmstudio/mcp.json", "~/.cache/lm-studio/mcp.json"]),
        link: Some("lmstudio://add_mcp?name={name}&config={base64}"),
        next_step: "Open the Program tab and switch it on.",
        ..USUAL
    },
    ClientProfile {
        id: "warp",
        title: "Warp",
        user_files: UserFiles::Same(&["~/.warp/.mcp.json"]),
        project_file: Some(".warp/.mcp.json"),
        next_step: "Open Settings, AI, MCP servers, and start it.",
        ..USUAL
    },
    ClientProfile {
        id: "chatgpt",
        title: "ChatGPT",
        method: ConnectMethod::PublicUrl,
        next_step: "Open Settings, Connectors, add the address in developer mode, and log in.",
        note: "It calls from the internet and sends no key: it needs a public HTTPS address, where \
               people log in with `[auth.oauth]`.",
        ..USUAL
    },
    ClientProfile {
        id: "claude-ai",
        title: "claude.ai",
        method: ConnectMethod::PublicUrl,
        link: Some(
            "https://claude.ai/customize/connectors?modal=add-custom-connector&connectorName={name}&connectorUrl={url}",
        ),
        next_step: "Open the link, confirm the connector, connect it, and log in.",
        note: "It calls from the internet and sends no key: it needs a public HTTPS address, where \
               people log in with `[auth.oauth]`.",
        ..USUAL
    },
];
