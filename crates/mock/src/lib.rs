//! Scriptable MCP server. Tests talk to it, and people try their own clients with it.
//!
//! Owns an implementation of every revision. Does not share code with the gateway, so one mistake
//! cannot hide in both. Invariant: without a fault in its script, it does what the revision says.

mod answer;
mod bearer;
mod call;
mod change_notice;
mod contents;
mod engine;
mod events;
mod fault;
mod frame;
mod handle;
mod headers;
mod http;
mod http_sse;
mod http_sse_sessions;
mod input_requests;
mod legacy;
mod listeners;
mod lists;
mod mock_task;
mod modern;
mod pipe;
mod post;
mod process;
mod prompts;
mod received_request;
mod record;
mod resources;
mod revision;
mod scenario;
mod script;
mod scripted_flow;
mod seal;
mod server;
mod session;
mod stdio;
mod stream;
mod task_inputs;
mod tasks;
mod tools;
mod wire;
mod ws;

pub use self::{
    fault::{FaultAction, FaultRule},
    handle::{MockHandle, serve_http, serve_http_recording, serve_tcp, serve_ws},
    record::{RecordCounters, RecordedRequest},
    revision::Revision,
    script::{
        AnswerMode, ContentPreset, CursorMode, EraRule, GeneratedTools, HttpRules, ListRules,
        MockScript, NewlineStyle, SseRules, StdioRules, TaskRule,
    },
    scripted_flow::{FlowRequest, FlowStep, ScriptedFlow, UndeclaredPolicy},
};

#[cfg(unix)]
pub use self::handle::serve_unix;

use std::{fs::File, path::PathBuf};

/// Serves stdin and stdout in this process, and returns the exit code.
///
/// # Errors
/// Fails when its input cannot be read.
pub async fn serve_stdio(
    script: MockScript,
    record: Option<File>,
    program: Option<PathBuf>,
) -> anyhow::Result<i32> {
    stdio::serve(script, record::RequestRecord::to_file(record), program).await
}

/// Idles for ten minutes and ignores SIGTERM. A stubborn grandchild runs this.
pub async fn idle() {
    process::idle().await;
}
