//! What the gateway is held against: a reverse proxy that only forwards, and a server with one
//! fixed answer.

use super::serve::{SinglePiece, serve};
use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use std::path::Path;

/// Forwards every request to `upstream` (`host:port`), bodies as streams, nothing parsed.
pub(crate) async fn proxy(upstream: &str) -> Result<()> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Client<_, Incoming> = Client::builder(TokioExecutor::new()).build(connector);
    let uri: Uri = format!("http://{upstream}/mcp").parse()?;
    let service = service_fn(move |mut request: Request<Incoming>| {
        *request.uri_mut() = uri.clone();
        client.request(request)
    });
    serve(0, service).await
}

/// Answers every POST with the bytes of `file`.
pub(crate) async fn fixed(file: &Path, kind: &str) -> Result<()> {
    let body = Bytes::from(
        tokio::fs::read(file)
            .await
            .with_context(|| format!("cannot read {}", file.display()))?,
    );
    let kind = HeaderValue::from_str(kind)?;
    let service = service_fn(move |request: Request<Incoming>| {
        let (body, kind) = (body.clone(), kind.clone());
        async move {
            request.into_body().collect().await?;
            let mut response = Response::new(SinglePiece::sized(body));
            response.headers_mut().insert(CONTENT_TYPE, kind);
            Ok::<_, hyper::Error>(response)
        }
    });
    serve(0, service).await
}
