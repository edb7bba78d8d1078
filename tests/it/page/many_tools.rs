//! The page with 100 servers of 50 tools each: how long a reader waits.

use moongate_mock::MockScript;
use serde_json::json;

use super::{page_home, run_script};
use crate::harness::{Setup, legacy, only, serve};

const SERVERS: usize = 100;
const TOOLS: usize = 50;

#[tokio::test]
async fn five_thousand_tools_are_shown_and_searched_at_once() {
    let tools = (0..TOOLS).map(|n| {
        let properties = json!({
            "owner": { "type": "string", "description": "The owner of the repository." },
            "limit": { "type": "integer", "description": "How many results to return at most." },
        });
        json!({
            "name": format!("list_items_{n}"), "annotations": { "readOnlyHint": true },
            "description": format!("Lists the items of kind {n} that a repository has, newest \
                                    first, one page at a time."),
            "inputSchema": { "type": "object", "properties": properties, "required": ["owner"] },
        })
    });
    let server = serve(MockScript {
        tools: tools.collect(),
        ..only(legacy(), &[])
    })
    .await;
    let names: Vec<String> = (0..SERVERS).map(|n| format!("server{n:03}")).collect();
    let setup = names
        .iter()
        .fold(Setup::new(), |setup, name| setup.http(name, &server.url));
    let gateway = setup.start().await;
    gateway
        .ready(&names.iter().map(String::as_str).collect::<Vec<_>>())
        .await;
    let admin = gateway.app.admin.unwrap().to_string();
    run_script(
        "many_tools.mjs",
        &admin,
        &page_home().join("pictures"),
        async |_| String::new(),
    )
    .await;
}
