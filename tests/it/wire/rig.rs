//! A gateway in this process.

use std::path::Path;

use moongate::app::GatewayApp;
use moongate_config::{LoadOptions, load};
use moongate_protocol::SUPPORTED;
use tempfile::TempDir;

/// The program under test, which is the mock too.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_moongate");

/// A gateway with this config, on a port of its own.
pub(crate) async fn start(dir: &TempDir, config: &str) -> GatewayApp {
    let path = dir.path().join("moongate.toml");
    std::fs::write(&path, config).unwrap();
    let options = LoadOptions {
        paths: vec![path],
        listen: vec!["127.0.0.1:0".into()],
        revisions: &SUPPORTED,
        ..LoadOptions::default()
    };
    let loaded = load(&options).unwrap_or_else(|problems| panic!("{problems:?}\n{config}"));
    GatewayApp::start(loaded.plan, Some(Path::new(PROGRAM)))
        .await
        .unwrap()
}
