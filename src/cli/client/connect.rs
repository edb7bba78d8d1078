//! The connection to the server of a verb, and what is done over it.
//!
//! Owns opening and closing. Invariant: on every way out, a signal included, the child that was started has ended.

use std::sync::Arc;
use std::time::Duration;

use crate::cli::signals::StopSignals;
use crate::json::Object;
use crate::model::{Call, Caller, Error, Kind, Outcome, Reason};
use crate::telemetry::{Metrics, logs};
use crate::upstream::{self, Active, For, Shared};

use super::ask::Asker;
use super::output::Failure;
use super::running;
use super::target::{Target, TargetArgs};

/// How long taking leave may take.
const LEAVE: Duration = Duration::from_secs(2);

/// An open connection, and who uses it.
pub(super) struct Client {
    pub(super) target: Target,
    asker: Asker,
    caller: Arc<Caller>,
    active: Active,
}

/// Opens the connection, does the work and closes it; a signal ends the work.
pub(super) async fn with<T>(
    args: &TargetArgs,
    work: impl AsyncFnOnce(&Client) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let target = args.target()?;
    logs::start(if args.verbose { "info,moongate=debug" } else { "warn" }, false);
    let mut stop = StopSignals::listen().map_err(|e| Failure::Failed(format!("{e:#}")))?;
    let shared = Shared::new(Arc::new(Metrics::new()), target.guard()).trusting(target.tls());
    let asker = Asker::new();
    let whom = For { capabilities: asker.capabilities(), ..For::everybody(None) };
    let opened = tokio::select! {
        opened = upstream::open(&target.settings, &shared, whom) => opened,
        () = stop.recv() => {
            // The link is gone with the future that owned it; only the guard still knows the child.
            let _ = tokio::task::spawn_blocking(move || shared.guard.stop()).await;
            return Err(Failure::Interrupted);
        }
    };
    let active = opened.map_err(|error| target.failure(&error))?;
    let client = Client { caller: asker.caller(), target, asker, active };
    let end = tokio::select! {
        end = work(&client) => end,
        () = stop.recv() => Err(Failure::Interrupted),
    };
    close(client).await;
    end
}

/// Closes the connection and waits for that.
async fn close(client: Client) {
    let link = client.active.link.clone();
    drop(client);
    // Whoever still holds the link takes leave of the server: a session is ended aside, once nobody uses it.
    let left = async {
        while Arc::strong_count(&link) > 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let _ = tokio::time::timeout(LEAVE, left).await;
    link.close(Vec::new()).await;
}

impl Client {
    /// Everything of one kind; nothing where the server has no such list.
    pub(super) async fn list(&self, kind: Kind) -> Result<Vec<Arc<Object>>, Failure> {
        let features = self.active.server.describe(&self.caller).features;
        if !upstream::offers(&features, kind) {
            return Ok(Vec::new());
        }
        let limit = self.target.settings.list_timeout;
        let lists = &self.target.settings.lists;
        let listed = tokio::time::timeout(limit, upstream::list_all(&*self.active.server, kind, lists)).await;
        let late = |_| Failure::Failed(format!("{} took longer than {limit:?}", kind.list_method()));
        Ok(listed.map_err(late)?.map_err(|error| self.failure(&error))?.items)
    }

    /// How to use the server, in its own words.
    pub(super) fn instructions(&self) -> Option<String> {
        self.active.server.describe(&self.caller).instructions
    }

    /// Makes a call and sees it through.
    pub(super) async fn finish(&self, call: Call) -> Result<Outcome, Failure> {
        let exchange = self.active.server.call(&self.caller, Call { progress: true, ..call });
        running::finish(exchange, self.target.name(), &self.asker).await.map_err(|error| self.failure(&error))
    }

    fn failure(&self, error: &Error) -> Failure {
        if error.reason == Reason::ServerTimeout && self.target.is_ad_hoc() {
            let (name, limit) = (self.target.name(), self.target.settings.timeout);
            return Failure::Failed(format!("{name} did not answer within {limit:?} (--timeout)"));
        }
        Failure::of(error).with_hint(missing(error))
    }
}

/// What to say of a server that needs what only some clients can do.
fn missing(error: &Error) -> Option<String> {
    let required = error.data.as_ref()?.as_object()?.object("requiredCapabilities")?;
    let names: Vec<&str> = required.iter().map(|(name, _)| name.as_str()).collect();
    Some(match names.as_slice() {
        ["elicitation"] => "it wants to ask the user, which needs a terminal as stdin".to_owned(),
        names => format!("it needs {}, which the command line does not have", names.join(" and ")),
    })
}
