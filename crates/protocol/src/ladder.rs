//! Steps that open a server of which nothing or little is known.
//!
//! Owns their order, and the connection that each one is sent on. Does not encode them (`legacy`,
//! `v2026_07_28`) or open links (`LinkOpener`). Invariant: no `initialize` is sent once a server is
//! known to be modern, and a pipe takes one at most.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, Either, select};
use tokio::time::{sleep, timeout};

use crate::connect_error::ConnectError;
use crate::connect_options::ConnectOptions;
use crate::era::{Era, era_of};
use crate::legacy::LegacyGreeting;
use crate::named_revisions::named_revisions;
use crate::negotiate::{LinkOpener, NegotiatedServer};
use crate::seen_input_flag::SeenInputFlag;
use crate::{PendingCalls, legacy, v2026_07_28};
use moongate_jsonrpc::message::code;
use moongate_model::ServerDescription;
use moongate_transport::{Link, LinkError, ProbeState};

/// Time for which a server may be silent before the next step.
const SILENCE: Duration = Duration::from_secs(5);
/// The same time for a server that took the probe before.
const KNOWN_SILENCE: Duration = Duration::from_secs(30);

/// Probe that is under way.
type Probe = BoxFuture<'static, Result<ServerDescription, ConnectError>>;

/// Open link, with the calls on it.
#[derive(Clone)]
struct OpenLine {
    link: Arc<dyn Link>,
    calls: PendingCalls,
}

/// Use that was made of a line so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineUse {
    /// Nothing was sent.
    Unused,
    /// The server answered, and may take another first message.
    Answered,
    /// A handshake was sent, or the server is silent or gone.
    Spent,
}

/// Weight of a failure for the reader. The heaviest is reported.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FailureWeight {
    /// A server of the other era fails so.
    Expected,
    /// The link failed.
    Broken,
    /// The server said something else about the probe.
    Probe,
    /// The server said something about the handshake.
    Handshake,
    /// Only an operator can change that.
    Operator,
}

/// Steps towards one server.
pub(super) struct Ladder<'a> {
    pub(super) opener: &'a dyn LinkOpener,
    pub(super) seen_input: SeenInputFlag,
    pub(super) options: ConnectOptions,
    line: Option<(OpenLine, LineUse)>,
    failure: Option<(FailureWeight, ConnectError)>,
    /// True on a pipe whose server did not answer the probe in time. It may only have been slow.
    is_probe_open: bool,
}

impl<'a> Ladder<'a> {
    pub(super) fn new(
        opener: &'a dyn LinkOpener,
        seen_input: SeenInputFlag,
        options: ConnectOptions,
    ) -> Self {
        Ladder {
            opener,
            seen_input,
            options,
            line: None,
            failure: None,
            is_probe_open: false,
        }
    }

    /// Opens the server, in the era that is forced, remembered or found.
    pub(super) async fn climb(mut self) -> Result<NegotiatedServer, ConnectError> {
        // The config comes first: an operator forces a revision where the probe decides wrongly.
        let era = self.options.revision.map(era_of).or(self.options.era);
        let opened = match era {
            Some(Era::Modern) => self.discover().await,
            Some(Era::Legacy) => self.descend().await,
            None => {
                let line = self.open().await?;
                match (line.link.is_multiplexed(), self.options.preferred_era) {
                    (_, Some(Era::Legacy)) => self.legacy_first().await,
                    (true, _) => self.probe_pipe(line).await,
                    (false, _) => self.probe_http(line).await,
                }
            }
        };
        opened.map_err(|error| self.failure.take().map_or(error, |(_, heaviest)| heaviest))
    }

    // === links ===

    async fn open(&mut self) -> Result<OpenLine, ConnectError> {
        let calls = PendingCalls::with_seen_input_flag(self.seen_input.clone());
        // Forgotten first: the opener closes the link before it opens the next.
        self.line = None;
        let link = self.opener.open_link(&calls).await?;
        let line = OpenLine { link, calls };
        self.line = Some((line.clone(), LineUse::Unused));
        Ok(line)
    }

    /// Returns a line for the next first message, and true if an earlier one was answered on it.
    async fn next_line(&mut self) -> Result<(OpenLine, bool), ConnectError> {
        match &self.line {
            // Each HTTP request is independent.
            Some((line, _)) if !line.link.is_multiplexed() => Ok((line.clone(), false)),
            Some((line, LineUse::Unused)) => Ok((line.clone(), false)),
            Some((line, LineUse::Answered)) => Ok((line.clone(), true)),
            Some((_, LineUse::Spent)) | None => Ok((self.open().await?, false)),
        }
    }

    fn mark(&mut self, now: LineUse) {
        if let Some((_, line)) = &mut self.line {
            *line = now;
        }
    }

    /// Records a failure. Among equal ones the first counts: it is about the newest revision.
    fn record(&mut self, weight: FailureWeight, error: ConnectError) {
        if self
            .failure
            .as_ref()
            .is_none_or(|(before, _)| *before < weight)
        {
            self.failure = Some((weight, error));
        }
    }

    // === the modern era ===

    /// Discovers the server. An error that lists the revision is answered by another try.
    ///
    /// 2026-07-28/basic/versioning.mdx: "The client SHOULD select a mutually supported version from
    /// the `supported` list and retry the request, or surface an error to the user if no compatible
    /// version exists."
    async fn discover(&mut self) -> Result<NegotiatedServer, ConnectError> {
        let (line, _) = self.next_line().await?;
        discover(&line, &self.options)
            .await
            .map(|description| self.attach_modern(line, description))
    }

    fn attach_modern(&self, line: OpenLine, description: ServerDescription) -> NegotiatedServer {
        let OpenLine { link, calls } = line;
        let server = v2026_07_28::ModernHandle::attach(
            link.clone(),
            calls.clone(),
            self.options.clone(),
            description,
        );
        NegotiatedServer {
            server,
            link,
            calls,
            revision: v2026_07_28::REVISION,
            era: Era::Modern,
            greeting: None,
        }
    }

    /// Probes a server over HTTP.
    ///
    /// 2026-07-28/basic/transports/streamable-http.mdx, Backward Compatibility: "If the body is
    /// empty or is not a recognized modern JSON-RPC error, fall back to `initialize`".
    async fn probe_http(&mut self, line: OpenLine) -> Result<NegotiatedServer, ConnectError> {
        let probe = probe(line.clone(), self.options.clone());
        match select(probe, std::pin::pin!(sleep(SILENCE))).await {
            Either::Left((Ok(description), _)) => Ok(self.attach_modern(line, description)),
            Either::Left((Err(error), _)) => self.after_probe(error).await,
            Either::Right(((), probe)) => self.race_over_http(line, probe).await,
        }
    }

    /// Sends the handshake while the probe has no answer. The first success decides the era.
    async fn race_over_http(
        &mut self,
        line: OpenLine,
        probe: Probe,
    ) -> Result<NegotiatedServer, ConnectError> {
        let first = match select(probe, std::pin::pin!(self.descend())).await {
            Either::Left((Ok(description), _)) => Ok(Either::Left(description)),
            Either::Left((Err(error), _)) if settles_modern(&error) => Err(error),
            Either::Left((Err(_), handshake)) => handshake.await.map(Either::Right),
            Either::Right((Ok(opened), _)) => Ok(Either::Right(opened)),
            Either::Right((Err(error), probe)) => probe.await.map(Either::Left).map_err(|_| error),
        };
        Ok(match first? {
            Either::Left(description) => self.attach_modern(line, description),
            Either::Right(opened) => opened,
        })
    }

    /// Continues after a failed probe.
    ///
    /// 2026-07-28/basic/transports/stdio.mdx, Backward Compatibility: "The server returns any other
    /// error, or does not respond within a reasonable timeout: the server is legacy. Fall back to
    /// the `initialize` handshake."
    async fn after_probe(&mut self, error: ConnectError) -> Result<NegotiatedServer, ConnectError> {
        if settles_modern(&error) || is_unreachable(&error) {
            return Err(error);
        }
        self.mark(if is_link_broken(&error) {
            LineUse::Spent
        } else {
            LineUse::Answered
        });
        self.record(probe_weight(&error), error);
        self.descend().await
    }

    /// Probes a server on a pipe.
    async fn probe_pipe(&mut self, line: OpenLine) -> Result<NegotiatedServer, ConnectError> {
        line.link.set_probe_state(ProbeState::Sent);
        let probe = probe(line.clone(), self.options.clone());
        let was_modern = self.options.preferred_era == Some(Era::Modern);
        let silence = if was_modern { KNOWN_SILENCE } else { SILENCE };
        match select(probe, std::pin::pin!(sleep(silence))).await {
            Either::Left((Ok(description), _)) => Ok(self.attach_modern(line, description)),
            Either::Left((Err(error), _)) => self.after_probe(error).await,
            Either::Right(((), probe)) => {
                if let Some(limit) = self.opener.install_time()
                    && let Ok(opened) = timeout(
                        limit.saturating_sub(silence),
                        self.both_on_one_pipe(&line, probe),
                    )
                    .await
                {
                    match opened {
                        Err(error) if settles_modern(&error) => return Err(error),
                        Err(error) => self.record(FailureWeight::Broken, error),
                        opened => return opened,
                    }
                }
                // A server may wait forever after a first message that it does not know.
                self.mark(LineUse::Spent);
                self.is_probe_open = true;
                self.descend().await
            }
        }
    }

    /// Sends the handshake while the probe has no answer. The first success decides the era.
    async fn both_on_one_pipe(
        &self,
        line: &OpenLine,
        probe: Probe,
    ) -> Result<NegotiatedServer, ConnectError> {
        let handshake = std::pin::pin!(greet(
            line.clone(),
            self.options.clone(),
            self.first_greeting()
        ));
        match select(probe, handshake).await {
            Either::Left((Ok(description), _)) => Ok(self.attach_modern(line.clone(), description)),
            Either::Left((Err(error), _)) if settles_modern(&error) => Err(error),
            Either::Left((Err(_), handshake)) => handshake.await,
            Either::Right((Ok(opened), _)) => {
                // A late response to the probe needs no handling.
                line.link.set_probe_state(ProbeState::Refused);
                Ok(opened)
            }
            Either::Right((Err(error), probe)) => match probe.await {
                Ok(description) => Ok(self.attach_modern(line.clone(), description)),
                Err(_) => Err(error),
            },
        }
    }

    // === the legacy era ===

    /// Opens a server in the legacy era first, because its clients use that. A refusal leads to the
    /// modern era.
    ///
    /// A probe would choose the modern era for as long as the process runs.
    ///
    /// 2026-07-28/basic/versioning.mdx: "An `initialize` request selects legacy semantics, scoped
    /// to the stdio process".
    async fn legacy_first(&mut self) -> Result<NegotiatedServer, ConnectError> {
        match self.descend().await {
            Err(error) if is_refusal(&error) => {
                // The server answered, so its pipe is open. One that is out of order gets a second
                // chance.
                self.mark(LineUse::Answered);
                let discovered = match self.discover().await {
                    Err(_) => {
                        self.mark(LineUse::Spent);
                        self.discover().await
                    }
                    discovered => discovered,
                };
                // The first error is reported if both fail: it comes from the era that the clients
                // use.
                discovered.map_err(|_| error)
            }
            opened => opened,
        }
    }

    fn first_greeting(&self) -> LegacyGreeting {
        self.options
            .greeting
            .unwrap_or_else(|| LegacyGreeting::first(self.options.revision))
    }

    /// Sends `initialize` in one form after another, until the server takes one.
    async fn descend(&mut self) -> Result<NegotiatedServer, ConnectError> {
        let forced = self.options.revision;
        let mut later = LegacyGreeting::later(forced);
        let mut next = Some(self.first_greeting());
        let mut is_remembered = true;
        let mut refusals = Vec::new();
        // Each form is tried once, so this ends.
        while let Some(greeting) = next {
            later.retain(|other| *other != greeting);
            let error = match self.initialize(greeting).await {
                // What a host in trouble refused may be taken tomorrow.
                Ok(opened) => {
                    return Ok(NegotiatedServer {
                        greeting: opened.greeting.filter(|_| is_remembered),
                        ..opened
                    });
                }
                Err(error) => error,
            };
            if let Some(opened) = self.discover_late(&error).await {
                return opened;
            }
            let has_result = matches!(error, ConnectError::NoCommonRevision(_));
            let is_final = !is_refusal(&error) || v2026_07_28::is_modern(&error) && !has_result;
            is_remembered &= is_definite(&error);
            let named = named_revisions(&error);
            let text = error.to_string();
            self.record(handshake_weight(&error), error);
            // A server that names only the stateless revision has no handshake.
            if is_final || named == [v2026_07_28::REVISION] {
                break;
            }
            // The text may also name the revision that it refuses.
            let others = named
                .into_iter()
                .filter(|named| forced.is_none() && *named != greeting.revision());
            let mut exact = others.filter_map(LegacyGreeting::of_revision);
            let wanted = exact.find_map(|named| later.iter().position(|other| *other == named));
            tracing::debug!(
                server = self.options.server,
                revision = greeting.revision(),
                "handshake refused: {text}"
            );
            // One that says the same of two revisions minds something else than their members.
            let says_the_same = refusals.contains(&text);
            if greeting != LegacyGreeting::first(forced) {
                refusals.push(text);
            }
            next = match wanted {
                Some(at) => Some(later.remove(at)),
                None if says_the_same => later
                    .iter()
                    .position(|other| other.is_bare())
                    .map(|at| later.remove(at)),
                None if later.is_empty() => None,
                None => Some(later.remove(0)),
            };
        }
        let failure = self.failure.take().map(|(_, error)| error);
        Err(failure.unwrap_or_else(|| {
            LinkError::Protocol("the server accepts no handshake".to_owned()).into()
        }))
    }

    /// Probes a server again that refused the handshake, if it did not answer the first probe in
    /// time. A modern one that starts slowly answers now.
    async fn discover_late(
        &mut self,
        refused: &ConnectError,
    ) -> Option<Result<NegotiatedServer, ConnectError>> {
        if !is_refusal(refused) || !std::mem::take(&mut self.is_probe_open) {
            return None;
        }
        let (line, _) = self.line.clone()?;
        match timeout(SILENCE, discover(&line, &self.options)).await {
            Ok(Ok(description)) => Some(Ok(self.attach_modern(line, description))),
            Ok(Err(error)) if settles_modern(&error) => Some(Err(error)),
            _ => None,
        }
    }

    /// Sends `initialize` in one form. On a pipe that answered something before, it gets a second
    /// chance on a fresh one.
    async fn initialize(
        &mut self,
        greeting: LegacyGreeting,
    ) -> Result<NegotiatedServer, ConnectError> {
        let (line, is_second_message) = self.next_line().await?;
        self.mark(LineUse::Spent);
        let greeting_now = greet(line, self.options.clone(), greeting);
        if !is_second_message {
            return greeting_now.await;
        }
        match timeout(SILENCE, greeting_now).await {
            Ok(Ok(opened)) => Ok(opened),
            // Some servers answer anything but `initialize` with an error, and end or stay out of
            // order from then on.
            Ok(Err(_)) | Err(_) => {
                let line = self.open().await?;
                self.mark(LineUse::Spent);
                greet(line, self.options.clone(), greeting).await
            }
        }
    }
}

/// Sends `server/discover`, a second time if the error lists the revision that was sent.
async fn discover(
    line: &OpenLine,
    options: &ConnectOptions,
) -> Result<ServerDescription, ConnectError> {
    let found = v2026_07_28::discover(&line.link, &line.calls, options).await;
    match found {
        Err(error) if v2026_07_28::is_modern(&error) && lists_modern(&error) => {
            v2026_07_28::discover(&line.link, &line.calls, options)
                .await
                .map_err(|_| error)
        }
        found => found,
    }
}

fn lists_modern(error: &ConnectError) -> bool {
    named_revisions(error).contains(&v2026_07_28::REVISION)
}

/// True for an error that only a modern server sends: "Do **not** fall back to `initialize`."
fn settles_modern(error: &ConnectError) -> bool {
    v2026_07_28::is_modern(error) && !lists_legacy(error)
}

/// True if a server answered the probe, and lists only revisions with a handshake.
fn lists_legacy(error: &ConnectError) -> bool {
    matches!(error, ConnectError::NoCommonRevision(_)) && !named_revisions(error).is_empty()
}

/// Probes a server, and reports the outcome to the link.
fn probe(line: OpenLine, options: ConnectOptions) -> Probe {
    Box::pin(async move {
        let discovered = discover(&line, &options).await;
        // A legacy server may complain about the probe on stderr. The link must know that this is
        // not news.
        let refused = discovered
            .as_ref()
            .is_err_and(|error| !v2026_07_28::is_modern(error));
        line.link.set_probe_state(if refused {
            ProbeState::Refused
        } else {
            ProbeState::Settled
        });
        discovered
    })
}

/// Opens a server in the legacy era.
async fn greet(
    line: OpenLine,
    options: ConnectOptions,
    greeting: LegacyGreeting,
) -> Result<NegotiatedServer, ConnectError> {
    let OpenLine { link, calls } = line;
    // Kept with the options: a lost session is opened again in the same form.
    let options = ConnectOptions {
        greeting: Some(greeting),
        ..options
    };
    let opened = legacy::open(&link, &calls, &options).await?;
    let revision = opened.revision();
    let server = legacy::LegacyHandle::attach(link.clone(), calls.clone(), options, opened);
    Ok(NegotiatedServer {
        server,
        link,
        calls,
        revision,
        era: Era::Legacy,
        greeting: Some(greeting),
    })
}

// === failures ===

fn probe_weight(error: &ConnectError) -> FailureWeight {
    match error {
        ConnectError::Answered(error) => match error.code {
            code::METHOD_NOT_FOUND | code::INVALID_PARAMS | code::INVALID_REQUEST => {
                FailureWeight::Expected
            }
            _ => FailureWeight::Probe,
        },
        ConnectError::NoCommonRevision(_) => FailureWeight::Probe,
        ConnectError::Link(LinkError::Status {
            status: 400 | 404 | 405 | 406 | 415,
            ..
        }) => FailureWeight::Expected,
        ConnectError::Link(LinkError::Status { .. }) => FailureWeight::Probe,
        ConnectError::Link(_) => FailureWeight::Expected,
    }
}

fn handshake_weight(error: &ConnectError) -> FailureWeight {
    match error {
        ConnectError::Link(
            LinkError::Spawn(_)
            | LinkError::Status {
                status: 401 | 403, ..
            },
        ) => FailureWeight::Operator,
        ConnectError::Answered(_) | ConnectError::NoCommonRevision(_) => FailureWeight::Handshake,
        ConnectError::Link(LinkError::Status { .. }) => FailureWeight::Handshake,
        ConnectError::Link(_) => FailureWeight::Broken,
    }
}

fn is_unreachable(error: &ConnectError) -> bool {
    match error {
        // Another request would only anger a host that asks to wait.
        ConnectError::Link(LinkError::Status { status, .. }) => *status == 429,
        // Nobody read the probe, so a second attempt with the handshake would show nothing more.
        ConnectError::Link(LinkError::Unreachable(_) | LinkError::Spawn(_)) => true,
        _ => false,
    }
}

/// True if the server read the handshake and did not take it.
fn is_refusal(error: &ConnectError) -> bool {
    match error {
        ConnectError::Answered(_) | ConnectError::NoCommonRevision(_) => true,
        // These come from the host, or say that nothing is there.
        ConnectError::Link(LinkError::Status {
            status: 401 | 403 | 407 | 408 | 429 | 502..=504 | 520..=530,
            ..
        }) => false,
        ConnectError::Link(LinkError::Status {
            status: 404 | 405,
            message,
            ..
        }) => message.is_some(),
        ConnectError::Link(LinkError::Status { status, .. }) => *status >= 400,
        ConnectError::Link(_) => false,
    }
}

/// True if the refusal is about the handshake, and not about the state of the host.
fn is_definite(refusal: &ConnectError) -> bool {
    match refusal {
        ConnectError::Link(LinkError::Status {
            status, message, ..
        }) => *status < 500 || message.is_some(),
        _ => true,
    }
}

fn is_link_broken(error: &ConnectError) -> bool {
    matches!(
        error,
        ConnectError::Link(LinkError::Closed(_) | LinkError::NotSent(_) | LinkError::QueueFull(_))
    )
}
