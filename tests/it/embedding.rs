//! Gateway inside another program, as `docs/guides/embedding.md` shows it.

use crate::harness::{legacy, only, serve};

const GUIDE: &str = include_str!("../../docs/guides/embedding.md");
const HERE: &str = include_str!("embedding.rs");

#[tokio::test]
async fn the_example_of_the_guide_runs() {
    let mock = serve(only(legacy(), &["echo"])).await;
    example::serve_tools(&mock.url).await.unwrap();
}

#[tokio::test]
async fn what_fails_is_said() {
    let refused = |config: &'static str| async move {
        let started = moongate::embed::EmbeddedGateway::start(config, [].into()).await;
        started.err().expect("it is refused").to_string()
    };
    let problems =
        refused("[gateway]\nlisten = 5\n[servers.a]\nurll = \"http://127.0.0.1:1\"").await;
    assert!(
        problems.contains("gateway.listen") && problems.contains("urll"),
        "{problems}"
    );
    let config = "[gateway]\nlisten = \"127.0.0.1:0\"\nadmin = false\nstate = \"memory\"\n\
        [servers.a]\nurl = \"http://127.0.0.1:1/mcp\"";
    let gateway = moongate::embed::EmbeddedGateway::start(config, [].into())
        .await
        .unwrap();
    let wait = |name: &'static str| gateway.wait_ready(name, std::time::Duration::from_millis(500));
    let reason = wait("a").await.unwrap_err().to_string();
    assert!(reason.contains("\"a\" isn't ready"), "{reason}");
    assert!(
        wait("b")
            .await
            .unwrap_err()
            .to_string()
            .contains("the config has a")
    );
    gateway.stop().await;
}

#[test]
fn the_guide_has_the_example_that_is_tested() {
    let shown = GUIDE
        .split("```rust\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let code = |text: &str| {
        text.lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect::<Vec<_>>()
            .join("\n")
    };
    let tested = HERE
        .split("// The guide shows what follows.")
        .nth(2)
        .unwrap()
        .split("// To here.")
        .next()
        .unwrap();
    assert_eq!(
        code(shown),
        code(&tested.replace("pub(super) async", "async"))
    );
}

#[expect(
    clippy::print_stdout,
    reason = "the example shows where clients connect"
)]
mod example {
    // The guide shows what follows.
    use std::collections::BTreeMap;
    use std::time::Duration;

    use moongate::embed::EmbeddedGateway;

    pub(super) async fn serve_tools(files_server: &str) -> anyhow::Result<()> {
        let config = format!(
            r#"
            [gateway]
            listen = "127.0.0.1:0" # the system picks a free port
            admin = false
            state = "memory"

            [servers.files]
            url = "{files_server}"
            "#
        );
        let gateway = EmbeddedGateway::start(&config, BTreeMap::new()).await?;
        gateway.wait_ready("files", Duration::from_secs(10)).await?;
        println!("MCP clients connect to {}", gateway.url()?);
        gateway.stop().await;
        Ok(())
    }
    // To here.
}
