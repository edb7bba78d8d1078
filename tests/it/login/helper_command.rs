//! Tokens that a command prints: `auth = { type = "command" }`.

use std::path::PathBuf;

use super::command::write_program;
use super::world::{World, call, is_good, ready};
use crate::harness::until;

/// Text that the command writes to stderr.
const STDERR: &str = "canary-on-stderr";

/// World whose server accepts a command's tokens.
struct CommandWorld {
    world: World,
    program: PathBuf,
    runs: PathBuf,
}

impl CommandWorld {
    async fn start(ttl: &str) -> CommandWorld {
        let world = World::start().await;
        let is_printed = |token: &str| token.starts_with("canary-printed-");
        world.server.demand_bearer("Bearer", is_printed);
        let program = world.setup.path("token.sh");
        let runs = world.setup.path("runs");
        let auth = format!("auth = {{ type = \"command\", command = {program:?}, ttl = {ttl:?} }}");
        let world = CommandWorld {
            world: world.with(&auth),
            program,
            runs,
        };
        world.print_tokens();
        world
    }

    /// Makes the command print another token at each run.
    fn print_tokens(&self) {
        let script = format!(
            "#!/bin/sh\necho run >> {runs:?}\necho {STDERR} >&2\n\
             printf 'canary-printed-%d\\n' $(wc -l < {runs:?})\n",
            runs = self.runs
        );
        write_program(&self.program, &script);
    }

    fn runs(&self) -> usize {
        let noted = std::fs::read_to_string(&self.runs).unwrap_or_default();
        noted.lines().count()
    }
}

#[tokio::test]
async fn a_command_runs_once_for_many_calls() {
    let world = CommandWorld::start("1h").await;
    let gateway = world.world.gateway().await;
    let client = ready(&gateway).await;
    for _ in 0..20 {
        call(&client).await.text();
    }
    assert_eq!(world.runs(), 1);
    assert_eq!(world.world.last_token(), "canary-printed-1");
}

#[tokio::test]
async fn a_command_runs_again_after_its_time_and_its_failure_is_named() {
    let world = CommandWorld::start("1s").await;
    let gateway = world.world.gateway().await;
    let client = ready(&gateway).await;
    call(&client).await.text();
    let first = world.world.last_token();
    until("another token is sent", async || {
        call(&client).await.text();
        (world.world.last_token() != first).then_some(())
    })
    .await;
    let failing = format!("#!/bin/sh\necho {STDERR} >&2\necho canary-printed-too-early\nexit 3\n");
    write_program(&world.program, &failing);
    let error = until("a call fails", async || {
        let reply = call(&client).await;
        (!is_good(&reply)).then(|| reply.text_body())
    })
    .await;
    assert!(error.contains("servers.linear.auth.command"), "{error}");
    world.print_tokens();
    until("calls go on", async || {
        is_good(&call(&client).await).then_some(())
    })
    .await;
    for hidden in [STDERR, "canary-printed-"] {
        assert!(!error.contains(hidden), "{error}");
        assert!(!gateway.log().contains(hidden), "{}", gateway.log());
    }
}
