//! Bundle that installs our bridge in Claude Desktop.
//!
//! Owns its manifest, in version 0.3 of the bundle format. Does not write the archive. Invariant: a
//! bundle has no key: the client asks its user for one, and keeps it.

use moongate_platform::Platform;
use serde_json::{Value, json};

/// Path of our program in a bundle.
const BUNDLE_PROGRAM: &str = "server/moongate";

/// Returns the manifest of a bundle for this system. `url` is the endpoint that the client's form
/// shows first.
pub fn bundle_manifest(name: &str, url: &str, version: &str, platform: Platform) -> Value {
    // Names of systems as the format has them, which are those of Node.js.
    let system = match platform {
        Platform::WINDOWS => "win32",
        Platform::MACOS => "darwin",
        _ => "linux",
    };
    let program = program_path(platform);
    json!({
        "manifest_version": "0.3",
        "name": name,
        "display_name": "Moongate",
        "version": version,
        "description": "All MCP servers of a Moongate gateway",
        "author": { "name": "Moongate" },
        "server": {
            "type": "binary",
            "entry_point": program,
            "mcp_config": {
                "command": format!("${{__dirname}}/{program}"),
                "args": ["stdio", "--url", "${user_config.url}"],
                "env": { "MOONGATE_KEY": "${user_config.key}" },
            },
        },
        // The servers behind the gateway decide.
        "tools_generated": true,
        "prompts_generated": true,
        "compatibility": { "platforms": [system] },
        "user_config": {
            "url": {
                "type": "string",
                "title": "Address",
                "description": "Endpoint of the gateway, such as http://127.0.0.1:8080/mcp",
                "required": true,
                "default": url,
            },
            "key": {
                "type": "string",
                "title": "Key",
                "description": "Key for the gateway. Leave it empty if the gateway needs none.",
                "required": false,
                "sensitive": true,
                // Without a default, the reference itself would become the key.
                "default": "",
            },
        },
    })
}

/// Returns the path of our program in a bundle for this system.
pub fn program_path(platform: Platform) -> String {
    let ending = if platform.app_data_folders {
        ".exe"
    } else {
        ""
    };
    format!("{BUNDLE_PROGRAM}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_asks_for_the_key_and_has_none() {
        for (platform, system, program) in [
            (Platform::LINUX, "linux", "server/moongate"),
            (Platform::MACOS, "darwin", "server/moongate"),
            (Platform::WINDOWS, "win32", "server/moongate.exe"),
        ] {
            let manifest =
                bundle_manifest("moongate", "http://127.0.0.1:8080/mcp", "0.1.0", platform);
            assert_eq!(manifest["compatibility"]["platforms"], json!([system]));
            assert_eq!(manifest["server"]["entry_point"], program);
            assert_eq!(manifest["user_config"]["key"]["sensitive"], true);
            assert_eq!(
                manifest["user_config"]["url"]["default"],
                "http://127.0.0.1:8080/mcp"
            );
            let env = json!({ "MOONGATE_KEY": "${user_config.key}" });
            assert_eq!(manifest["server"]["mcp_config"]["env"], env);
        }
    }
}
