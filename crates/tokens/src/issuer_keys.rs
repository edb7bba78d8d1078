//! Keys of one issuer, fetched and cached.
//!
//! Owns when they are fetched, and for how long they are used. Does not verify signatures.
//! Invariant: only one fetch runs at a time, and only one in 30 seconds, however many tokens with
//! unknown keys arrive.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use moongate_transport::fetcher::Fetcher;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use url::Url;

use crate::jwk_set::JwkSet;

/// Shortest pause between the starts of two fetches.
const PAUSE: Duration = Duration::from_secs(30);
/// Shortest time for which keys are fresh.
const AGE_MIN: Duration = Duration::from_secs(60);
/// Longest time for which keys are fresh.
const AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Time for which keys are fresh if their issuer does not say.
const AGE_DEFAULT: Duration = Duration::from_secs(60 * 60);
/// Time for which stale keys are still used if they cannot be fetched again.
const GRACE: Duration = Duration::from_secs(24 * 60 * 60);

/// Keys of one issuer.
pub struct IssuerKeys {
    url: Url,
    fetcher: Fetcher,
    held: Mutex<HeldKeys>,
    /// Notified when a fetch has ended.
    ended: watch::Sender<()>,
}

/// Keys from the last fetch.
#[derive(Default)]
struct HeldKeys {
    fetched: Option<FetchedKeys>,
    /// Start of the last fetch.
    started: Option<Instant>,
    is_fetching: bool,
}

struct FetchedKeys {
    set: Arc<JwkSet>,
    fresh_until: Instant,
}

/// Answer to a caller that needs newer keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FetchTurn {
    /// The caller fetches.
    Start,
    /// A fetch is already running.
    Wait,
    /// The last fetch was a moment ago.
    Refused,
}

impl HeldKeys {
    /// Returns the keys in use.
    fn usable(&self, now: Instant) -> Option<Arc<JwkSet>> {
        let fetched = self.fetched.as_ref()?;
        (now < fetched.fresh_until + GRACE).then(|| fetched.set.clone())
    }

    /// Returns true if the keys are no longer fresh.
    fn is_stale(&self, now: Instant) -> bool {
        self.fetched
            .as_ref()
            .is_none_or(|fetched| now >= fetched.fresh_until)
    }

    /// Decides what a caller that needs newer keys can do.
    fn turn(&self, now: Instant) -> FetchTurn {
        if self.is_fetching {
            FetchTurn::Wait
        } else if self.started.is_some_and(|started| now < started + PAUSE) {
            FetchTurn::Refused
        } else {
            FetchTurn::Start
        }
    }

    /// Starts a fetch, if it is time for one.
    fn begin(&mut self, now: Instant) -> FetchTurn {
        let turn = self.turn(now);
        if turn == FetchTurn::Start {
            self.started = Some(now);
            self.is_fetching = true;
        }
        turn
    }
}

impl IssuerKeys {
    /// Creates the keys at a URL. They are fetched when first needed.
    pub fn new(url: Url, fetcher: Fetcher) -> Arc<Self> {
        Arc::new(IssuerKeys {
            url,
            fetcher,
            held: Mutex::default(),
            ended: watch::Sender::new(()),
        })
    }

    /// Returns the keys in use. If they are no longer fresh, starts to fetch new ones.
    pub fn current(self: &Arc<Self>) -> Option<Arc<JwkSet>> {
        let now = Instant::now();
        let held = self.held.lock();
        let usable = held.usable(now);
        let is_due = held.is_stale(now) && held.turn(now) == FetchTurn::Start;
        drop(held);
        // Without keys, the caller waits for the fetch itself. Commands that only read the config
        // have no runtime, and need no keys.
        if usable.is_some()
            && is_due
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(self.clone().refresh());
        }
        usable
    }

    /// Returns true if waiting for a fetch can help.
    pub fn may_fetch(&self) -> bool {
        self.held.lock().turn(Instant::now()) != FetchTurn::Refused
    }

    /// Fetches the keys again, or waits for a fetch that is already running.
    pub async fn refresh(self: Arc<Self>) {
        // Before the turn is taken, so that a fetch that ends in between is not waited for.
        let mut ended = self.ended.subscribe();
        let turn = self.held.lock().begin(Instant::now());
        match turn {
            FetchTurn::Start => {
                let keys = self.clone();
                // In its own task, because a waiting caller may give up, and the keys are for
                // everybody.
                tokio::spawn(async move {
                    let fetching = FetchInProgress(keys);
                    fetching.run().await;
                });
            }
            FetchTurn::Wait => {}
            FetchTurn::Refused => return,
        }
        let _ = ended.changed().await;
    }

    async fn fetch(&self) -> Result<(JwkSet, Duration), String> {
        let mut request = Request::new(Bytes::new());
        request
            .headers_mut()
            .insert(ACCEPT, HeaderValue::from_static("application/json"));
        let response = self
            .fetcher
            .fetch(&self.url, request)
            .await
            .map_err(|error| error.to_string())?;
        let host = self.url.host_str().unwrap_or_default();
        if response.status() != StatusCode::OK {
            return Err(format!(
                "{host} answers with {}",
                response.status().as_u16()
            ));
        }
        let age = max_age(response.headers());
        match JwkSet::read(response.body()) {
            Some(set) => Ok((set, age)),
            None => Err(format!("{host} has no usable keys")),
        }
    }
}

/// Running fetch. It ends even if its task panics.
struct FetchInProgress(Arc<IssuerKeys>);

impl FetchInProgress {
    async fn run(&self) {
        match self.0.fetch().await {
            Ok((set, age)) => {
                self.0.held.lock().fetched = Some(FetchedKeys {
                    set: Arc::new(set),
                    fresh_until: Instant::now() + age,
                });
            }
            // The last good keys stay.
            Err(error) => tracing::warn!("key set not fetched: {error}"),
        }
    }
}

impl Drop for FetchInProgress {
    fn drop(&mut self) {
        self.0.held.lock().is_fetching = false;
        self.0.ended.send_replace(());
    }
}

/// Returns how long keys are fresh (RFC 9111, section 5.2.2.1).
fn max_age(headers: &HeaderMap) -> Duration {
    let directives = headers
        .get_all(CACHE_CONTROL)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim);
    let mut age = AGE_DEFAULT;
    for directive in directives {
        let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
        if name.eq_ignore_ascii_case("no-store") || name.eq_ignore_ascii_case("no-cache") {
            return AGE_MIN;
        }
        if name.eq_ignore_ascii_case("max-age")
            && let Ok(seconds) = value.trim_matches('"').parse()
        {
            age = Duration::from_secs(seconds);
        }
    }
    age.clamp(AGE_MIN, AGE_MAX)
}

#[cfg(test)]
mod tests {
    use moongate_transport::fetcher::FetchRules;
    use moongate_transport::trust::tls_without_roots;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    const SET: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE"}]}"#;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn fetched(fresh_until: Instant) -> HeldKeys {
        HeldKeys {
            fetched: Some(FetchedKeys {
                set: Arc::new(JwkSet::read(SET.as_bytes()).unwrap()),
                fresh_until,
            }),
            ..HeldKeys::default()
        }
    }

    #[test]
    fn freshness_is_between_a_minute_and_a_day() {
        for (value, expected) in [
            ("max-age=600", 600),
            ("public, Max-Age=600, must-revalidate", 600),
            ("max-age=\"600\"", 600),
            ("max-age=1", 60),
            ("max-age=99999999", 24 * 60 * 60),
            ("max-age=-1", 60 * 60),
            ("max-age=600, no-store", 60),
            ("no-cache", 60),
            ("public", 60 * 60),
            ("s-maxage=600", 60 * 60),
        ] {
            let value = HeaderValue::from_static(value);
            let headers = HeaderMap::from_iter([(CACHE_CONTROL, value.clone())]);
            assert_eq!(max_age(&headers), seconds(expected), "{value:?}");
        }
        assert_eq!(max_age(&HeaderMap::new()), AGE_DEFAULT);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_good_keys_are_used_for_a_day_after_they_were_fresh() {
        let fresh_until = Instant::now() + seconds(60);
        let held = fetched(fresh_until);
        assert!(!held.is_stale(fresh_until - seconds(1)));
        assert!(held.is_stale(fresh_until));
        assert!(held.usable(fresh_until + GRACE - seconds(1)).is_some());
        assert!(held.usable(fresh_until + GRACE).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn one_fetch_runs_at_a_time_and_one_in_thirty_seconds() {
        let now = Instant::now();
        let mut held = HeldKeys::default();
        assert_eq!(held.begin(now), FetchTurn::Start);
        assert_eq!(held.begin(now + seconds(60)), FetchTurn::Wait);
        held.is_fetching = false;
        assert_eq!(held.begin(now + seconds(29)), FetchTurn::Refused);
        assert_eq!(held.begin(now + seconds(30)), FetchTurn::Start);
    }

    #[tokio::test]
    async fn callers_share_a_fetch_and_a_failure_leaves_the_keys() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/keys", listener.local_addr().unwrap());
        let url = Url::parse(&url).unwrap();
        let rules = FetchRules {
            origins: vec![url.origin()],
            ..FetchRules::default()
        };
        let keys = IssuerKeys::new(url, Fetcher::new(tls_without_roots(), &rules));
        assert!(keys.current().is_none() && keys.may_fetch());
        let serving = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await;
            let length = SET.len();
            let response = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{SET}");
            stream.write_all(response.as_bytes()).await.unwrap();
        };
        tokio::join!(serving, keys.clone().refresh(), keys.clone().refresh());
        assert!(keys.current().is_some());
        assert!(!keys.may_fetch());
        // The issuer goes away, and the pause ends.
        drop(listener);
        keys.held.lock().started = None;
        keys.clone().refresh().await;
        assert!(keys.current().is_some());
    }
}
