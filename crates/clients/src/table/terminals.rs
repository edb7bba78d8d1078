//! Clients that run in a terminal.
//!
//! Owns their rows. Does not own their meaning (`profile`). Invariant: the first file of a row is
//! the one that new versions of the client read.

use super::usual::{BRIDGE_BY_TYPE, HTTP_BY_TYPE, USUAL, limits};
use crate::profile::{ClientProfile, OffSwitch, ServerWrapper, UserFiles, VariableForm};

pub(super) const ROWS: [ClientProfile; 14] = [
    ClientProfile {
        id: "claude-code",
        title: "Claude Code",
        user_files: UserFiles::Same(&["{CLAUDE_CONFIG_DIR}/.claude.json", "~/.claude.json"]),
        project_file: Some(".mcp.json"),
        http: Some(HTTP_BY_TYPE),
        stdio: BRIDGE_BY_TYPE,
        variable: VariableForm::Reference("${NAME}"),
        command: Some(
            "claude mcp add --transport http --scope user {name} {url} [--header {header}]",
        ),
        limits: limits(Some(64), None),
        next_step: "Restart `claude`, or type /mcp in a running session.",
        ..USUAL
    },
    ClientProfile {
        id: "codex",
        title: "Codex",
        user_files: UserFiles::Same(&["{CODEX_HOME}/config.toml", "~/.codex/config.toml"]),
        project_file: Some(".codex/config.toml"),
        wrapper: ServerWrapper::Map("mcp_servers"),
        http: Some(r#"{"url":"{url}","http_headers":{"Authorization":"{bearer}"}}"#),
        variable: VariableForm::Entry(r#"{"url":"{url}","bearer_token_env_var":"{variable}"}"#),
        off_switch: OffSwitch::Enabled,
        command: Some("codex mcp add {name} --url {url} [--bearer-token-env-var {variable}]"),
        limits: limits(Some(64), None),
        next_step: "Restart `codex`; `codex mcp list` shows it.",
        note: "A project's file counts only in a trusted project.",
        ..USUAL
    },
    ClientProfile {
        id: "gemini",
        title: "Gemini CLI",
        user_files: UserFiles::Same(&["~/.gemini/settings.json"]),
        project_file: Some(".gemini/settings.json"),
        http: Some(
            r#"{"httpUrl":"{url}","headers":{"Authorization":"{bearer}"},"timeout":600000}"#,
        ),
        variable: VariableForm::Reference("$NAME"),
        command: Some("gemini mcp add -s user -t http [--header {header}] {name} {url}"),
        limits: limits(Some(63), None),
        next_step: "Restart `gemini`; `gemini mcp list` shows it.",
        note: "Gemini CLI connects servers only in a trusted folder.",
        ..USUAL
    },
    ClientProfile {
        id: "qwen",
        title: "Qwen Code",
        user_files: UserFiles::Same(&["~/.qwen/settings.json"]),
        project_file: Some(".qwen/settings.json"),
        http: Some(r#"{"httpUrl":"{url}","headers":{"Authorization":"{bearer}"}}"#),
        variable: VariableForm::Reference("$NAME"),
        command: Some("qwen mcp add -s user -t http [--header {header}] {name} {url}"),
        limits: limits(Some(63), None),
        next_step: "Restart `qwen`; `qwen mcp list` shows it.",
        ..USUAL
    },
    ClientProfile {
        id: "opencode",
        title: "OpenCode",
        // The file with comments hides the other one.
        user_files: UserFiles::Same(&[
            "{xdg}/opencode/opencode.jsonc",
            "{xdg}/opencode/opencode.json",
        ]),
        project_file: Some("opencode.json"),
        wrapper: ServerWrapper::Map("mcp"),
        http: Some(
            r#"{"type":"remote","url":"{url}","enabled":true,"headers":{"Authorization":"{bearer}"}}"#,
        ),
        stdio: r#"{"type":"local","command":["{program}","stdio","--url","{url}"],"enabled":true,"environment":{"MOONGATE_KEY":"{key}"}}"#,
        variable: VariableForm::Reference("{env:NAME}"),
        off_switch: OffSwitch::Enabled,
        command: Some("opencode mcp add {name} --url {url} [--header {header_pair}]"),
        next_step: "Restart `opencode`; `opencode mcp list` shows it.",
        ..USUAL
    },
    ClientProfile {
        id: "copilot-cli",
        title: "GitHub Copilot CLI",
        user_files: UserFiles::Same(&[
            "{COPILOT_HOME}/mcp-config.json",
            "~/.copilot/mcp-config.json",
        ]),
        project_file: Some(".mcp.json"),
        http: Some(
            r#"{"type":"http","url":"{url}","headers":{"Authorization":"{bearer}"},"tools":["*"]}"#,
        ),
        stdio: r#"{"type":"local","command":"{program}","args":["stdio","--url","{url}"],"env":{"MOONGATE_KEY":"{key}"},"tools":["*"]}"#,
        command: Some("copilot mcp add --transport http [--header {header}] {name} {url}"),
        limits: limits(Some(64), Some(128)),
        next_step: "Restart `copilot`, or type /mcp in a running session.",
        ..USUAL
    },
    ClientProfile {
        id: "crush",
        title: "Crush",
        user_files: UserFiles::Same(&["{xdg}/crush/crush.json"]),
        project_file: Some(".crush.json"),
        wrapper: ServerWrapper::Map("mcp"),
        http: Some(HTTP_BY_TYPE),
        stdio: BRIDGE_BY_TYPE,
        variable: VariableForm::Reference("$NAME"),
        off_switch: OffSwitch::Disabled,
        next_step: "Restart `crush`.",
        ..USUAL
    },
    ClientProfile {
        id: "goose",
        title: "Goose",
        user_files: UserFiles::Each {
            linux: &["{config}/goose/config.yaml"],
            macos: &["~/.config/goose/config.yaml"],
            windows: &["{config}/Block/goose/config/config.yaml"],
        },
        wrapper: ServerWrapper::Map("extensions"),
        http: Some(
            r#"{"enabled":true,"type":"streamable_http","name":"{name}","uri":"{url}","headers":{"Authorization":"{bearer}"},"timeout":300}"#,
        ),
        stdio: r#"{"enabled":true,"type":"stdio","name":"{name}","cmd":"{program}","args":["stdio","--url","{url}"],"envs":{"MOONGATE_KEY":"{key}"},"timeout":300}"#,
        off_switch: OffSwitch::Enabled,
        link: Some(
            "goose://extension?url={url}&type=streamable_http&id={name}&name={name}&description=Moongate&timeout=300",
        ),
        next_step: "Start a new Goose session.",
        ..USUAL
    },
    ClientProfile {
        id: "amp",
        title: "Amp",
        user_files: UserFiles::Same(&["~/.config/amp/settings.json"]),
        project_file: Some(".amp/settings.json"),
        // One key, with a dot in it.
        wrapper: ServerWrapper::Map("amp.mcpServers"),
        command: Some("amp mcp add {name} [--header {header_pair}] {url}"),
        next_step: "Restart `amp`; `amp mcp list` shows it.",
        ..USUAL
    },
    ClientProfile {
        id: "factory",
        title: "Factory Droid",
        user_files: UserFiles::Same(&["~/.factory/mcp.json"]),
        project_file: Some(".factory/mcp.json"),
        http: Some(HTTP_BY_TYPE),
        stdio: BRIDGE_BY_TYPE,
        off_switch: OffSwitch::Disabled,
        command: Some("droid mcp add {name} {url} --type http [--header {header}]"),
        next_step: "Restart `droid`, or type /mcp in a running session.",
        ..USUAL
    },
    ClientProfile {
        id: "amazonq",
        title: "Amazon Q Developer",
        user_files: UserFiles::Same(&["~/.aws/amazonq/mcp.json"]),
        project_file: Some(".amazonq/mcp.json"),
        http: None,
        off_switch: OffSwitch::Disabled,
        next_step: "Restart `q chat`.",
        note: "It can only start programs, so the entry starts `moongate stdio`.",
        ..USUAL
    },
    ClientProfile {
        id: "augment",
        title: "Augment (Auggie)",
        user_files: UserFiles::Same(&["~/.augment/settings.json"]),
        http: Some(HTTP_BY_TYPE),
        stdio: BRIDGE_BY_TYPE,
        command: Some("auggie mcp add {name} --transport http --url {url} [--header {header}]"),
        next_step: "Restart `auggie`; `auggie mcp list` shows it.",
        ..USUAL
    },
    ClientProfile {
        id: "kimi",
        title: "Kimi CLI",
        user_files: UserFiles::Same(&["~/.kimi-code/mcp.json", "~/.kimi/mcp.json"]),
        next_step: "Restart `kimi`.",
        ..USUAL
    },
    ClientProfile {
        id: "vibe",
        title: "Mistral Vibe",
        user_files: UserFiles::Same(&["{VIBE_HOME}/config.toml", "~/.vibe/config.toml"]),
        project_file: Some(".vibe/config.toml"),
        wrapper: ServerWrapper::List("mcp_servers"),
        http: Some(
            r#"{"name":"{name}","transport":"streamable-http","url":"{url}","headers":{"Authorization":"{bearer}"}}"#,
        ),
        stdio: r#"{"name":"{name}","transport":"stdio","command":"{program}","args":["stdio","--url","{url}"],"env":{"MOONGATE_KEY":"{key}"}}"#,
        next_step: "Restart `vibe`.",
        ..USUAL
    },
];
