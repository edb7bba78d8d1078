//! What a server asks while a call runs, and who answers.
//!
//! Owns what the client declares that it can do. Invariant: only what can be answered is declared, and there is always
//! an answer.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::json::{Object, Raw, Text};
use crate::jsonrpc::{RpcError, code};
use crate::model::{Ask, AskKind, Caller, Can, Level, LogWish, Principal, Question};
use crate::revision;

use super::form;
use super::output::say;

/// The lowest level of log messages that are shown.
pub(super) const LOGS: Level = Level::Info;

/// Answers for the user; with a terminal, by asking them.
#[derive(Clone)]
pub(super) struct Asker {
    /// Taken for each question: the user answers one at a time.
    terminal: Option<Arc<Mutex<()>>>,
}

impl Asker {
    /// Whoever is at this process's terminal, if it has one.
    pub(super) fn new() -> Self {
        let terminal = std::io::IsTerminal::is_terminal(&std::io::stdin());
        Asker { terminal: terminal.then(Arc::default) }
    }

    /// What to declare.
    pub(super) fn capabilities(&self) -> Raw {
        match self.terminal {
            Some(_) => Raw::literal(r#"{"elicitation":{"form":{},"url":{}}}"#),
            None => Raw::literal("{}"),
        }
    }

    /// Who calls.
    pub(super) fn caller(&self) -> Arc<Caller> {
        let can = self.terminal.is_some();
        Arc::new(Caller {
            principal: Arc::new(Principal { name: "command line".to_owned(), id: 0 }),
            session: None,
            capabilities: self.capabilities(),
            can: Can { elicit_form: can, elicit_url: can, ..Can::default() },
            info: Some(revision::implementation()),
            log: LogWish::AtLeast(LOGS),
            revision: "",
            headers: Vec::new(),
            ended: CancellationToken::new(),
        })
    }

    /// Answers everything that is asked at once.
    pub(super) async fn answer(self, server: String, ask: Ask) {
        let mut answers = Vec::new();
        for (key, question) in ask.requests {
            answers.push((key, self.one(&server, question).await));
        }
        // A call that has ended meanwhile needs no answer.
        let _ = ask.answer.send(answers);
    }

    async fn one(&self, server: &str, question: Question) -> Result<Object, RpcError> {
        if !matches!(question.kind, AskKind::ElicitForm | AskKind::ElicitUrl) {
            let message = format!("Method not found: {}: the command line cannot answer it", question.method);
            return Err(RpcError { code: code::METHOD_NOT_FOUND, message: message.into(), data: None });
        }
        let Some(terminal) = &self.terminal else {
            let message = question.params.text("message").unwrap_or_else(|| Text::literal(""));
            say(&format!("{server} asks, and without a terminal nobody can answer; declined: {message}"));
            return Ok(form::answer("decline"));
        };
        let _turn = terminal.lock().await;
        let server = server.to_owned();
        let asked = tokio::task::spawn_blocking(move || {
            // Stderr is not locked: others have something to say while the user thinks.
            form::ask(&mut std::io::stdin().lock(), &mut std::io::stderr(), &server, &question)
        });
        Ok(asked.await.unwrap_or_else(|_| form::answer("cancel")))
    }
}
