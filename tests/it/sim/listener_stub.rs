//! How a client comes in: straight to the routes, or over connections, as bytes.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use moongate_listener::{ConnectionService, ListenSettings};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::sim::link;
use crate::sim::rng::Rng;
use crate::sim::world::SimWorld;

/// The connection broke, or was cut.
#[derive(Debug)]
pub(crate) struct ConnectionBroken;

/// Where clients come in.
#[derive(Clone)]
pub(crate) struct HttpHosts {
    pub(crate) routes: Router,
    pub(crate) service: ConnectionService,
    pub(crate) settings: ListenSettings,
    pub(crate) draining: CancellationToken,
}

/// One client's way in.
pub(crate) enum ListenerStub {
    Routes(Router),
    Connections {
        house: HttpHosts,
        world: Arc<SimWorld>,
        rng: Mutex<Rng>,
        idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
    },
}

impl ListenerStub {
    pub(crate) fn new(house: &HttpHosts, world: &Arc<SimWorld>, rng: &mut Rng) -> Self {
        if rng.one_in(2) {
            return ListenerStub::Routes(house.routes.clone());
        }
        let house = house.clone();
        let world = world.clone();
        let rng = Mutex::new(rng.fork());
        ListenerStub::Connections {
            house,
            world,
            rng,
            idle: Mutex::default(),
        }
    }

    /// Sends a request; gives the answer as soon as its head is there.
    pub(crate) async fn send(
        &self,
        request: Request<Bytes>,
    ) -> Result<Response<Body>, ConnectionBroken> {
        match self {
            ListenerStub::Routes(routes) => {
                let answered = routes.clone().oneshot(request.map(Body::from)).await;
                Ok(answered.unwrap_or_else(|never| match never {}))
            }
            ListenerStub::Connections { idle, .. } => {
                let kept = {
                    let mut idle = idle.lock().unwrap();
                    idle.retain(SendRequest::is_ready);
                    idle.pop()
                };
                let mut sender = match kept {
                    Some(sender) => sender,
                    None => self.connect().await?,
                };
                let answer = sender
                    .send_request(request.map(Full::new))
                    .await
                    .map_err(|_| ConnectionBroken)?;
                // It is ready again once the answer was read.
                idle.lock().unwrap().push(sender);
                Ok(answer.map(Body::new))
            }
        }
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, ConnectionBroken> {
        let ListenerStub::Connections {
            house, world, rng, ..
        } = self
        else {
            return Err(ConnectionBroken);
        };
        let (ours, theirs) = link::connection(world, &mut rng.lock().unwrap(), 100);
        let HttpHosts {
            service,
            settings,
            draining,
            ..
        } = house.clone();
        world.spawn("a connection of a client, there", async move {
            moongate_listener::serve_connection(theirs, service, &settings, draining).await;
        });
        let (sender, connection) = handshake(TokioIo::new(ours))
            .await
            .map_err(|_| ConnectionBroken)?;
        world.spawn("a connection of a client, here", async move {
            drop(connection.await)
        });
        Ok(sender)
    }
}
