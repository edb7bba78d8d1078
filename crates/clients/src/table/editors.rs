//! Clients that are editors, or parts of one.
//!
//! Owns their rows. Does not own their meaning (`profile`). Invariant: the first file of a row is
//! the one that new versions of the client read.

use super::usual::{BRIDGE_BY_TYPE, HTTP_BY_SERVER_URL, HTTP_BY_TYPE, USUAL, limits};
use crate::profile::{
    ClientProfile, ConnectMethod, OffSwitch, ServerWrapper, UserFiles, VariableForm,
};

/// Id of the input that VS Code asks for.
const KEY_INPUT: &str = "moongate-key";

const VS_CODE: ClientProfile = ClientProfile {
    id: "vscode",
    title: "VS Code",
    user_files: UserFiles::Each {
        linux: &["{config}/Code/User/mcp.json"],
        macos: &["{support}/Code/User/mcp.json"],
        windows: &["{config}/Code/User/mcp.json"],
    },
    project_file: Some(".vscode/mcp.json"),
    wrapper: ServerWrapper::Map("servers"),
    http: Some(HTTP_BY_TYPE),
    stdio: BRIDGE_BY_TYPE,
    variable: VariableForm::Input(KEY_INPUT),
    command: Some("code --add-mcp {named}"),
    link: Some("vscode:mcp/install?{named}"),
    limits: limits(Some(64), Some(128)),
    next_step: "Run \"MCP: List Servers\" and start it.",
    ..USUAL
};

pub(super) const ROWS: [ClientProfile; 14] = [
    ClientProfile {
        id: "cursor",
        title: "Cursor",
        user_files: UserFiles::Same(&["~/.cursor/mcp.json"]),
        project_file: Some(".cursor/mcp.json"),
        variable: VariableForm::Reference("${env:NAME}"),
        link: Some("cursor://anysphere.cursor-deeplink/mcp/install?name={name}&config={base64}"),
        limits: limits(Some(60), Some(40)),
        next_step: "Open Settings, Tools & MCP, and switch it on.",
        ..USUAL
    },
    VS_CODE,
    ClientProfile {
        id: "vscode-insiders",
        title: "VS Code Insiders",
        user_files: UserFiles::Each {
            linux: &["{config}/Code - Insiders/User/mcp.json"],
            macos: &["{support}/Code - Insiders/User/mcp.json"],
            windows: &["{config}/Code - Insiders/User/mcp.json"],
        },
        project_file: None,
        command: Some("code-insiders --add-mcp {named}"),
        link: Some("vscode-insiders:mcp/install?{named}"),
        ..VS_CODE
    },
    ClientProfile {
        id: "visual-studio",
        title: "Visual Studio",
        user_files: UserFiles::Same(&["~/.mcp.json"]),
        project_file: Some(".mcp.json"),
        command: None,
        link: Some("https://vs-open.link/mcp-install?{named}"),
        next_step: "Open the tools of Copilot Chat and switch it on.",
        ..VS_CODE
    },
    ClientProfile {
        id: "windsurf",
        title: "Windsurf (Devin Desktop)",
        user_files: UserFiles::Same(&[
            "{config}/devin/mcp_config.json",
            "~/.codeium/windsurf/mcp_config.json",
        ]),
        http: Some(HTTP_BY_SERVER_URL),
        off_switch: OffSwitch::Disabled,
        command: Some("devin mcp add -s user {name} {url} [--header {header}]"),
        limits: limits(Some(60), Some(100)),
        next_step: "Open the MCP servers of Cascade and refresh them.",
        ..USUAL
    },
    ClientProfile {
        id: "antigravity",
        title: "Antigravity",
        user_files: UserFiles::Same(&[
            "~/.gemini/config/mcp_config.json",
            "~/.gemini/antigravity/mcp_config.json",
        ]),
        project_file: Some(".agents/mcp_config.json"),
        http: Some(HTTP_BY_SERVER_URL),
        off_switch: OffSwitch::Disabled,
        next_step: "Open the MCP servers of the agent panel and refresh them.",
        ..USUAL
    },
    ClientProfile {
        id: "zed",
        title: "Zed",
        user_files: UserFiles::Each {
            linux: &["~/.config/zed/settings.json"],
            macos: &["~/.config/zed/settings.json"],
            windows: &["{config}/Zed/settings.json"],
        },
        project_file: Some(".zed/settings.json"),
        wrapper: ServerWrapper::Map("context_servers"),
        next_step: "Open the settings of the agent panel: a green dot shows that it is running.",
        note: "Zed may offer an OAuth login if its entry has no key. Unless people log in at \
               the gateway, ignore it or give Zed a key.",
        ..USUAL
    },
    ClientProfile {
        id: "cline",
        title: "Cline",
        user_files: UserFiles::Each {
            linux: &[
                "{config}/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
                "~/.cline/data/settings/cline_mcp_settings.json",
            ],
            macos: &[
                "{support}/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
                "~/.cline/data/settings/cline_mcp_settings.json",
            ],
            windows: &[
                "{config}/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
                "~/.cline/data/settings/cline_mcp_settings.json",
            ],
        },
        // Without a type, Cline takes the URL for one of HTTP+SSE.
        http: Some(
            r#"{"type":"streamableHttp","url":"{url}","headers":{"Authorization":"{bearer}"},"disabled":false,"autoApprove":[]}"#,
        ),
        off_switch: OffSwitch::Disabled,
        next_step: "Open the MCP servers of Cline: a green dot shows that it is running.",
        ..USUAL
    },
    ClientProfile {
        id: "roo",
        title: "Roo Code",
        method: ConnectMethod::Discontinued,
        user_files: UserFiles::Each {
            linux: &[
                "{config}/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
            ],
            macos: &[
                "{support}/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
            ],
            windows: &[
                "{config}/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
            ],
        },
        project_file: Some(".roo/mcp.json"),
        http: Some(
            r#"{"type":"streamable-http","url":"{url}","headers":{"Authorization":"{bearer}"}}"#,
        ),
        off_switch: OffSwitch::Disabled,
        next_step: "Move to another client.",
        note: "Roo Code was archived in May 2026: its servers can be imported.",
        ..USUAL
    },
    ClientProfile {
        id: "kilo",
        title: "Kilo Code",
        user_files: UserFiles::Same(&["{xdg}/kilo/kilo.json"]),
        project_file: Some("kilo.json"),
        wrapper: ServerWrapper::Map("mcp"),
        http: Some(
            r#"{"type":"remote","url":"{url}","enabled":true,"headers":{"Authorization":"{bearer}"}}"#,
        ),
        stdio: r#"{"type":"local","command":["{program}","stdio","--url","{url}"],"enabled":true,"environment":{"MOONGATE_KEY":"{key}"}}"#,
        off_switch: OffSwitch::Enabled,
        next_step: "Reload the window.",
        ..USUAL
    },
    ClientProfile {
        id: "continue",
        title: "Continue",
        user_files: UserFiles::Same(&["~/.continue/config.yaml"]),
        project_file: Some(".continue/mcpServers/moongate.yaml"),
        folder: Some(".continue/mcpServers"),
        // Continue refuses a file without these three.
        file_head: "name: Local Config\nversion: 1.0.0\nschema: v1\n",
        wrapper: ServerWrapper::List("mcpServers"),
        http: Some(
            r#"{"name":"{name}","type":"streamable-http","url":"{url}","requestOptions":{"headers":{"Authorization":"{bearer}"}}}"#,
        ),
        stdio: r#"{"name":"{name}","command":"{program}","args":["stdio","--url","{url}"],"env":{"MOONGATE_KEY":"{key}"}}"#,
        next_step: "Choose agent mode, the only mode that uses tools.",
        ..USUAL
    },
    ClientProfile {
        id: "jetbrains",
        title: "JetBrains AI Assistant",
        method: ConnectMethod::Paste,
        next_step: "Open Settings, Tools, AI Assistant, MCP, and choose + and As JSON.",
        ..USUAL
    },
    ClientProfile {
        id: "junie",
        title: "Junie",
        user_files: UserFiles::Same(&["~/.junie/mcp/mcp.json"]),
        project_file: Some(".junie/mcp/mcp.json"),
        off_switch: OffSwitch::Enabled,
        next_step: "Open the MCP settings of Junie and switch it on.",
        note: "Older versions start programs only: use `--stdio` for them.",
        ..USUAL
    },
    ClientProfile {
        id: "kiro",
        title: "Kiro",
        user_files: UserFiles::Same(&["~/.kiro/settings/mcp.json"]),
        project_file: Some(".kiro/settings/mcp.json"),
        off_switch: OffSwitch::Disabled,
        link: Some("https://kiro.dev/launch/mcp/add?name={name}&config={entry}"),
        next_step: "Open the MCP servers of the Kiro panel.",
        ..USUAL
    },
];
