//! Test of both sides on one connection.
//!
//! Owns no code of the crate. Does not open sockets. Invariant: one side reads what the other
//! wrote.

use std::convert::Infallible;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use proptest::prelude::*;
use tokio::io::DuplexStream;

use crate::{
    ClientPool, HttpIo, NextRequest, Persistence, PoolLimits, RequestTemplate, SendBody,
    ServerConnection,
};

const REQUESTS: usize = 3;
const MARK: HeaderName = HeaderName::from_static("x-mark");

/// Answers each request with `parts`, and returns the bodies of the requests.
async fn serve(stream: DuplexStream, parts: &[Bytes], is_stream: bool) -> Vec<Bytes> {
    let mut connection = ServerConnection::new(stream, 16 * 1024);
    let mut bodies = Vec::new();
    while bodies.len() < REQUESTS {
        let next = std::future::poll_fn(|cx| connection.poll_next(cx, &mut |_| Some(()))).await;
        let NextRequest::Request(request) = next else {
            panic!("the request is a simple one")
        };
        assert_eq!(request.head.method, Method::POST);
        assert_eq!(request.head.uri.path(), "/mcp");
        bodies.push(request.body);
        let body = match is_stream {
            true => SendBody::Chunks(stream::iter(parts.to_vec()).boxed()),
            false => SendBody::Whole(parts.iter().cloned().collect()),
        };
        let mut response = Response::new(body);
        response
            .headers_mut()
            .insert(MARK, request.head.headers[MARK].clone());
        connection
            .write_response(response, Persistence::KeepAlive)
            .await
            .unwrap();
    }
    bodies
}

/// Sends the requests over one connection, and returns the bodies of the answers.
async fn ask(stream: DuplexStream, body: &Bytes) -> Vec<Bytes> {
    let pool = ClientPool::new(PoolLimits {
        idle: 1,
        idle_time: Duration::from_secs(60),
    });
    let template = RequestTemplate::new("/mcp".to_owned(), &HeaderMap::new());
    let mut stream = Some(stream);
    let mut answers = Vec::new();
    for n in 0..REQUESTS {
        let mark = HeaderValue::from(n);
        let request = template.request(&Method::POST, "*/*", &[(MARK, mark.clone())], body.clone());
        let (reader, writer) = match stream.take().map(tokio::io::split) {
            Some((reader, writer)) => (Some(reader), Some(writer)),
            None => (None, None),
        };
        let response = pool.request(request, || async {
            let reader = reader.expect("one connection");
            let writer = writer.expect("one connection");
            Ok::<HttpIo, Infallible>(HttpIo::from((Box::new(reader) as _, Box::new(writer) as _)))
        });
        let response = response.await.unwrap();
        assert_eq!(response.status().as_u16(), 200);
        assert_eq!(&response.headers()[MARK], &mark);
        let mut body = response.into_body();
        let mut all = BytesMut::new();
        while body.fill(&mut all).await.unwrap() {}
        answers.push(all.freeze());
    }
    answers
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn one_side_reads_what_the_other_wrote(
        body in prop::collection::vec(any::<u8>(), 0..3000),
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..6000), 0..6),
        is_stream in any::<bool>(),
        buffer in 4096_usize..20_000,
    ) {
        let body = Bytes::from(body);
        let parts = parts.into_iter().map(Bytes::from).collect::<Vec<_>>();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (asked, answered) = runtime.block_on(async {
            let (ours, theirs) = tokio::io::duplex(buffer);
            tokio::join!(serve(theirs, &parts, is_stream), ask(ours, &body))
        });
        prop_assert_eq!(asked, vec![body; REQUESTS]);
        prop_assert_eq!(answered, vec![Bytes::from(parts.concat()); REQUESTS]);
    }
}
