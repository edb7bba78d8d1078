//! Mock over stdin and stdout.
//!
//! Owns the life of the process: its start, the signals it survives, its exit code. Does not own
//! the lines. Invariant: a well-behaved script ends with its input.

use std::{path::PathBuf, sync::Arc};

use tokio::{
    io::{AsyncWriteExt as _, BufReader, BufWriter},
    time::{Duration, sleep},
};

use super::{
    engine,
    pipe::{self, PipeEnd},
    process,
    record::RequestRecord,
    script::MockScript,
    server::MockServer,
};

/// Serves stdin and stdout until one of them ends, and returns the exit code.
pub(super) async fn serve(
    script: MockScript,
    record: RequestRecord,
    program: Option<PathBuf>,
) -> anyhow::Result<i32> {
    let server = MockServer::new(script, record, program);
    let stdio = server.script.stdio.clone();
    if stdio.ignore_sigterm {
        process::ignore_sigterm();
    }
    engine::flood(stdio.stderr_flood).await;
    if let Some(banner) = &stdio.banner {
        let mut stdout = tokio::io::stdout();
        stdout.write_all(format!("{banner}\n").as_bytes()).await?;
        stdout.flush().await?;
    }
    if let (true, Some(program)) = (stdio.grandchild, &server.program) {
        process::grandchild(program, false)?;
    }
    sleep(Duration::from_millis(stdio.start_ms)).await;
    if let Some(code) = stdio.exit_at_start {
        return Ok(code);
    }
    let reader = BufReader::new(tokio::io::stdin());
    let writer = BufWriter::new(tokio::io::stdout());
    let ended = pipe::serve(Arc::clone(&server), reader, writer).await?;
    // A stubborn server has to be killed: it ignores the orderly end of its input.
    if stdio.ignore_eof && ended == PipeEnd::Eof {
        std::future::pending::<()>().await;
    }
    Ok(match ended {
        PipeEnd::Broken(Some(code)) => code,
        PipeEnd::Broken(None) | PipeEnd::Eof => 0,
    })
}
