//! `moongate connect claude-desktop --bundle`: what the bundle has, and that its bridge works.

use std::path::Path;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

use super::gateway;
use crate::harness::user_home::{KEY, UserHome};

/// Reads a bundle as Claude Desktop would: checks it, takes it apart, and prints the manifest.
const UNPACK: &str = "import os, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as archive:
    assert archive.testzip() is None
    for file in archive.infolist():
        archive.extract(file, sys.argv[2])
        os.chmod(os.path.join(sys.argv[2], file.filename), file.external_attr >> 16 & 0o777)
    print(archive.read('manifest.json').decode())
";

/// Unpacks a bundle into a folder. Returns its manifest.
async fn unpack(bundle: &Path, dir: &Path) -> String {
    let unpacked = Command::new("python3")
        .args(["-c", UNPACK])
        .arg(bundle)
        .arg(dir)
        .output()
        .await
        .unwrap();
    assert!(
        unpacked.status.success(),
        "{}",
        String::from_utf8_lossy(&unpacked.stderr)
    );
    String::from_utf8(unpacked.stdout).unwrap()
}

/// Does what the client does with the manifest and the answers of its user.
fn start_bridge(manifest: &Value, dir: &Path, gateway: &str) -> Child {
    let filled = |text: &Value| {
        let text = text
            .as_str()
            .unwrap()
            .replace("${__dirname}", dir.to_str().unwrap());
        text.replace("${user_config.url}", gateway)
            .replace("${user_config.key}", KEY)
    };
    let start = &manifest["server"]["mcp_config"];
    let mut bridge = Command::new(filled(&start["command"]));
    bridge
        .args(start["args"].as_array().unwrap().iter().map(filled))
        .env_clear();
    bridge.envs(
        start["env"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| (name, filled(value))),
    );
    bridge
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true);
    bridge.spawn().unwrap()
}

async fn assert_bundles_are_refused(home: &UserHome) {
    for (args, why) in [
        (
            &["connect", "cursor", "--bundle", "x.mcpb"][..],
            "Claude Desktop",
        ),
        (
            &[
                "connect",
                "claude-desktop",
                "--bundle",
                "x.mcpb",
                "--endpoint",
                "unix:/x",
            ],
            "--endpoint",
        ),
        (
            &["connect", "claude-desktop", "--bundle", "none/x.mcpb"],
            "cannot write",
        ),
    ] {
        let refused = home.run(args).await;
        assert_eq!(refused.code, Some(1), "{args:?}: {}", refused.err);
        assert!(refused.err.contains(why), "{args:?}: {}", refused.err);
    }
}

#[tokio::test]
async fn a_bundle_has_a_bridge_that_works() {
    let gateway = gateway().await;
    let home = UserHome::new();
    let bundle = [
        "connect",
        "claude-desktop",
        "--bundle",
        "out.mcpb",
        "--endpoint",
    ];
    let written = home.run(&[&bundle[..], &[&gateway.mcp()]].concat()).await;
    assert_eq!(written.code, Some(0), "{}", written.err);
    assert!(written.err.contains("out.mcpb"), "{}", written.err);
    let dir = home.path("unpacked");
    let text = unpack(&home.path("work/out.mcpb"), &dir).await;
    assert!(!text.contains(KEY), "{text}");
    let manifest: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(manifest["manifest_version"], "0.3");
    assert_eq!(manifest["server"]["type"], "binary");
    assert_eq!(manifest["user_config"]["key"]["sensitive"], true);
    assert_eq!(
        manifest["user_config"]["url"]["default"],
        json!(gateway.mcp())
    );
    let mut child = start_bridge(&manifest, &dir, &gateway.mcp());
    let mut input = child.stdin.take().unwrap();
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"}}});
    input
        .write_all(format!("{hello}\n").as_bytes())
        .await
        .unwrap();
    let mut lines =
        tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(child.stdout.take().unwrap()));
    let answer = crate::harness::within("the bridge answers", lines.next_line())
        .await
        .unwrap()
        .unwrap();
    assert!(
        answer.contains("\"result\"") && answer.contains("serverInfo"),
        "{answer}"
    );
    assert_bundles_are_refused(&home).await;
    let left = std::fs::read_dir(home.path("work")).unwrap().count();
    assert_eq!(left, 1, "only the bundle is there");
}
