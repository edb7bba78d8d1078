//! Input requests of a server during a call. Owns the capabilities that the client declares.
//!
//! Does not print forms (`form`). Invariant: only what can be answered is declared, and every
//! request gets a response.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use moongate_jsonrpc::json::{JsonObject, RawJson};
use moongate_jsonrpc::message::{RpcError, code};
use moongate_model::{
    Caller, ClientCapabilities, ElicitationAction, InputKind, InputRequest, InputRequired,
    LogFilter, LogLevel, Principal,
};

use super::form;
use super::output::print_message;

/// Lowest level of log messages that are shown.
pub(super) const LOG_LEVEL: LogLevel = LogLevel::Info;

/// Responder for the user. Asks them if there is a terminal.
#[derive(Clone)]
pub(super) struct UserPrompter {
    /// Lock that is held for each request: the user answers one at a time.
    terminal: Option<Arc<Mutex<()>>>,
}

impl UserPrompter {
    /// Creates a prompter for this process's terminal, if it has one.
    pub(super) fn new() -> Self {
        let terminal = std::io::IsTerminal::is_terminal(&std::io::stdin());
        UserPrompter {
            terminal: terminal.then(Arc::default),
        }
    }

    /// Returns the capabilities to declare.
    pub(super) fn capabilities(&self) -> RawJson {
        match self.terminal {
            Some(_) => ClientCapabilities::DECLARED_ELICITATION,
            None => RawJson::literal("{}"),
        }
    }

    /// Returns the caller for all calls of the verb.
    pub(super) fn caller(&self) -> Arc<Caller> {
        let capabilities = match self.terminal {
            Some(_) => ClientCapabilities::ELICITATION,
            None => ClientCapabilities::default(),
        };
        Arc::new(Caller {
            principal: Arc::new(Principal::new("command line", 0, [0; 16])),
            session: None,
            declared_capabilities: self.capabilities(),
            capabilities,
            client_info: Some(moongate_protocol::gateway_info()),
            log_filter: LogFilter::AtLeast(LOG_LEVEL),
            revision: "",
            forwarded_headers: Vec::new(),
            ended: CancellationToken::new(),
            channel: None,
        })
    }

    /// Responds to all requests of one round.
    pub(super) async fn respond(self, server: String, ask: InputRequired) {
        let mut answers = Vec::new();
        for (key, question) in ask.requests {
            answers.push((key, self.respond_to_one(&server, question).await));
        }
        // A call that has ended meanwhile needs no response.
        let _ = ask.responder.send(answers);
    }

    async fn respond_to_one(
        &self,
        server: &str,
        question: InputRequest,
    ) -> Result<JsonObject, RpcError> {
        // The revisions allow a server to send only what was declared. A faulty server gets an
        // error.
        if !matches!(question.kind, InputKind::ElicitForm | InputKind::ElicitUrl) {
            let message = format!(
                "Method not found: {}: the command line cannot answer it",
                question.method
            );
            return Err(RpcError {
                code: code::METHOD_NOT_FOUND,
                message: message.into(),
                data: None,
            });
        }
        let Some(terminal) = &self.terminal else {
            let message = question.shown().message;
            print_message(&format!(
                "{server} asks, but without a terminal nobody can answer; declined: {message}"
            ));
            return Ok(ElicitationAction::Decline.result(None));
        };
        let _turn = terminal.lock().await;
        let server = server.to_owned();
        // Reading a terminal blocks its thread until the user presses Enter.
        let asked = tokio::task::spawn_blocking(move || {
            // Stderr is not locked: other messages are printed while the user thinks.
            form::prompt_user(
                &mut std::io::stdin().lock(),
                &mut std::io::stderr(),
                &server,
                &question,
            )
        });
        Ok(asked
            .await
            .unwrap_or_else(|_| ElicitationAction::Cancel.result(None)))
    }
}
