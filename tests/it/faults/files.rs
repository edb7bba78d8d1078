//! Open files: a limit that is raised, and shared out.

use rustix::process::Rlimit;
use serde_json::json;
use tokio::net::TcpStream;

use crate::harness::{Era, McpClient, Process, Setup, holds, until};

fn limit_of(pid: u32) -> Rlimit {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let mut values = line.split_whitespace().map(|value| value.parse().ok());
    Rlimit { current: values.next().unwrap(), maximum: values.next().unwrap() }
}

fn open_files(gateway: &Process) -> u64 {
    std::fs::read_dir(format!("/proc/{}/fd", gateway.pid())).unwrap().count() as u64
}

#[tokio::test]
async fn the_limit_of_files_is_raised_and_programs_get_the_first_one() {
    let setup = Setup::new();
    let seen = setup.path("seen");
    let line = format!("ulimit -S -n > {}; sleep 600", seen.display());
    let setup = setup.with("servers.a", &format!("command = \"sh\"\nargs = [\"-c\", {line:?}]"));
    let gateway = setup.spawn_after("ulimit -S -n 300").await;
    let limit = limit_of(gateway.pid());
    assert_eq!(limit.current, Some(limit.maximum.unwrap_or(u64::MAX).min(65_536)));
    until("the program has written", || {
        let text = std::fs::read_to_string(&seen).unwrap_or_default();
        std::future::ready((text.trim() == "300").then_some(()))
    })
    .await;
    // More than the first limit allows.
    let address = gateway.base.strip_prefix("http://").unwrap().to_owned();
    let client = McpClient::open(&gateway.mcp(), Era::Modern).await;
    let mut held = Vec::new();
    for _ in 0..400 {
        held.push(TcpStream::connect(&address).await.unwrap());
    }
    holds("all are held", || open_files(&gateway) > 400).await;
    assert_eq!(client.request("tools/list", json!({})).await.status, 200);
}
