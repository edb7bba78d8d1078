//! What a server asks while a call runs, and who answers.
//!
//! Owns what the client declares that it can do. Invariant: only what can be answered is declared, and there is always
//! an answer.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::json::{ByteString, JsonObject, RawJson};
use crate::jsonrpc::{RpcError, code};
use crate::model::{
    Caller, ClientCapabilities, InputKind, InputRequest, InputRequired, LogFilter, LogLevel, Principal,
};
use crate::revision;

use super::form;
use super::output::print_message;

/// The lowest level of log messages that are shown.
pub(super) const LOG_LEVEL: LogLevel = LogLevel::Info;

/// Answers for the user; with a terminal, by asking them.
#[derive(Clone)]
pub(super) struct UserPrompter {
    /// Taken for each question: the user answers one at a time.
    terminal: Option<Arc<Mutex<()>>>,
}

impl UserPrompter {
    /// Whoever is at this process's terminal, if it has one.
    pub(super) fn new() -> Self {
        let terminal = std::io::IsTerminal::is_terminal(&std::io::stdin());
        UserPrompter { terminal: terminal.then(Arc::default) }
    }

    /// What to declare.
    pub(super) fn capabilities(&self) -> RawJson {
        match self.terminal {
            Some(_) => RawJson::literal(r#"{"elicitation":{"form":{},"url":{}}}"#),
            None => RawJson::literal("{}"),
        }
    }

    /// Who calls.
    pub(super) fn caller(&self) -> Arc<Caller> {
        let can = self.terminal.is_some();
        Arc::new(Caller {
            principal: Arc::new(Principal { name: "command line".to_owned(), id: 0 }),
            session: None,
            declared_capabilities: self.capabilities(),
            capabilities: ClientCapabilities { elicit_form: can, elicit_url: can, ..ClientCapabilities::default() },
            client_info: Some(revision::implementation()),
            log_filter: LogFilter::AtLeast(LOG_LEVEL),
            revision: "",
            forwarded_headers: Vec::new(),
            ended: CancellationToken::new(),
        })
    }

    /// Answers everything that is asked at once.
    pub(super) async fn respond(self, server: String, ask: InputRequired) {
        let mut answers = Vec::new();
        for (key, question) in ask.requests {
            answers.push((key, self.respond_to_one(&server, question).await));
        }
        // A call that has ended meanwhile needs no answer.
        let _ = ask.responder.send(answers);
    }

    async fn respond_to_one(&self, server: &str, question: InputRequest) -> Result<JsonObject, RpcError> {
        if !matches!(question.kind, InputKind::ElicitForm | InputKind::ElicitUrl) {
            let message = format!("Method not found: {}: the command line cannot answer it", question.method);
            return Err(RpcError { code: code::METHOD_NOT_FOUND, message: message.into(), data: None });
        }
        let Some(terminal) = &self.terminal else {
            let message = question.params.get_string("message").unwrap_or_else(|| ByteString::literal(""));
            print_message(&format!("{server} asks, and without a terminal nobody can answer; declined: {message}"));
            return Ok(form::input_response("decline"));
        };
        let _turn = terminal.lock().await;
        let server = server.to_owned();
        let asked = tokio::task::spawn_blocking(move || {
            // Stderr is not locked: others have something to say while the user thinks.
            form::prompt_user(&mut std::io::stdin().lock(), &mut std::io::stderr(), &server, &question)
        });
        Ok(asked.await.unwrap_or_else(|_| form::input_response("cancel")))
    }
}
