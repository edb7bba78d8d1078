//! Connection of a verb to its server. Owns opening and closing it.
//!
//! Does not choose the server (`target.rs`). Invariant: the child that was started has ended on
//! every way out, also on a signal.

use std::sync::Arc;
use std::time::Duration;

use crate::cli::signals::StopSignals;
use moongate_jsonrpc::json::{JsonObject, or_default};
use moongate_model::{Call, Caller, Error, ItemKind, McpErrorKind, Outcome};
use moongate_telemetry::{Metrics, logs};
use moongate_upstream::{ConnectIdentity, UpstreamConnection, UpstreamRuntime};
use serde::Deserialize;

use super::elicitation::UserPrompter;
use super::output::VerbFailure;
use super::progress;
use super::target::{TargetArgs, VerbTarget};

/// Time limit for closing the connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Open connection, with its user.
pub(super) struct VerbClient {
    pub(super) target: VerbTarget,
    prompter: UserPrompter,
    caller: Arc<Caller>,
    active: UpstreamConnection,
}

/// Opens the connection, does the work and closes it. A signal ends the work.
pub(super) async fn with_client<T>(
    args: &TargetArgs,
    work: impl AsyncFnOnce(&VerbClient) -> Result<T, VerbFailure>,
) -> Result<T, VerbFailure> {
    let target = args.target()?;
    let logins = target.logins();
    logs::start(
        if args.verbose {
            "info,moongate=debug"
        } else {
            "warn"
        },
        false,
    );
    // Before the child is started, so that no signal can leave it behind.
    let mut stop = StopSignals::listen().map_err(|e| VerbFailure::Failed(format!("{e:#}")))?;
    let end = run_with(target, &mut stop, work).await;
    if let Some(logins) = logins {
        // The end of the process would lose a refresh token that has just been renewed. Another
        // signal is from a person who doesn't wait for that.
        tokio::select! {
            () = logins.settle() => {}
            () = stop.recv() => {}
        }
    }
    end
}

async fn run_with<T>(
    target: VerbTarget,
    stop: &mut StopSignals,
    work: impl AsyncFnOnce(&VerbClient) -> Result<T, VerbFailure>,
) -> Result<T, VerbFailure> {
    let shared = UpstreamRuntime::new(Arc::new(Metrics::new()), target.guard())
        .with_tls(target.tls())
        .with_credentials(target.credentials());
    let input_round = UserPrompter::new();
    let identity = ConnectIdentity {
        capabilities: input_round.capabilities(),
        ..ConnectIdentity::for_all(None)
    };
    let opened = tokio::select! {
        opened = moongate_upstream::open_connection(&target.settings, &shared, identity) => opened,
        () = stop.recv() => {
            // The future owned the link, which is closed by now. Only the reaper still knows the
            // child.
            let _ = tokio::task::spawn_blocking(move || shared.reaper.stop()).await;
            return Err(VerbFailure::Interrupted);
        }
    };
    let active = opened.map_err(|error| target.failure(&error))?;
    let client = VerbClient {
        caller: input_round.caller(),
        target,
        prompter: input_round,
        active,
    };
    let end = tokio::select! {
        end = work(&client) => end,
        () = stop.recv() => Err(VerbFailure::Interrupted),
    };
    close(client).await;
    end
}

/// Closes the connection and waits for its end.
async fn close(client: VerbClient) {
    let link = client.active.link.clone();
    drop(client);
    // The session is closed in the background, by the last owner of the link.
    let left = async {
        // The link has no event for its last owner, and this wait is short.
        while Arc::strong_count(&link) > 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    // After the time the link is closed anyway.
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, left).await;
    link.close(Vec::new()).await;
}

impl VerbClient {
    /// Lists all items of one kind. Empty if the server has no such list.
    pub(super) async fn list(&self, kind: ItemKind) -> Result<Vec<Arc<JsonObject>>, VerbFailure> {
        let capabilities = self.active.server.describe(&self.caller).capabilities;
        if !moongate_upstream::offers_list(&capabilities, kind) {
            return Ok(Vec::new());
        }
        let limit = self.target.settings.live.list_timeout.0;
        let lists = &self.target.settings.options.lists;
        let listed = tokio::time::timeout(
            limit,
            moongate_upstream::list_all(&*self.active.server, kind, lists),
        )
        .await;
        let late =
            |_| VerbFailure::Failed(format!("{} took longer than {limit:?}", kind.list_method()));
        Ok(listed
            .map_err(late)?
            .map_err(|error| self.failure(&error))?
            .items)
    }

    /// Returns the server's instructions.
    pub(super) fn instructions(&self) -> Option<String> {
        self.active.server.describe(&self.caller).instructions
    }

    /// Makes a call and follows it to its end.
    pub(super) async fn finish_call(&self, call: Call) -> Result<Outcome, VerbFailure> {
        let exchange = self.active.server.call(
            &self.caller,
            Call {
                progress: true,
                ..call
            },
        );
        progress::run_to_end(exchange, self.target.name(), &self.prompter)
            .await
            .map_err(|error| self.failure(&error))
    }

    fn failure(&self, error: &Error) -> VerbFailure {
        if error.kind == McpErrorKind::ServerTimeout && self.target.is_ad_hoc() {
            let name = self.target.name();
            let limit = self.target.settings.live.timeout.0;
            return VerbFailure::Failed(format!(
                "{name} did not answer within {limit:?} (--timeout)"
            ));
        }
        VerbFailure::of(error).with_hint(missing(error))
    }
}

/// Data of an error about missing capabilities.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CapabilityError {
    #[serde(deserialize_with = "or_default")]
    required_capabilities: Option<JsonObject>,
}

/// Returns a hint for a server that requires a capability which this client lacks.
fn missing(error: &Error) -> Option<String> {
    let data: CapabilityError = error.data.as_ref()?.as_object()?.read_members();
    let required = data.required_capabilities?;
    let names: Vec<&str> = required.iter().map(|(name, _)| name.as_str()).collect();
    Some(match names.as_slice() {
        ["elicitation"] => {
            "it needs to ask the user, which requires a terminal as stdin".to_owned()
        }
        names => format!(
            "it needs {}, which the command line does not support",
            names.join(" and ")
        ),
    })
}
