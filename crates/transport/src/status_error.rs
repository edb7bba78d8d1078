//! Link errors of responses with a status other than 2xx.
//!
//! Owns the hints for people. Does not retry. Invariant: a slow or large body never delays the
//! error for long, and no error quotes the credential that a source gave to the request.

use std::time::Duration;

use bytes::Bytes;
use http::header::LOCATION;
use http::{HeaderMap, StatusCode};

use crate::LinkError;
use crate::credential_source::AuthChallenge;
use crate::error_words::error_words;
use crate::event_stream::is_for;
use crate::proxy::ProxyAddress;
use crate::read_body::collect_body;
use crate::response_body::ResponseBody;
use crate::retry_after::retry_after;
use crate::sent_credential::SentCredential;
use crate::server_text::without_byte_order_mark;
use moongate_jsonrpc::message::{RpcMessage, RpcPayload, ServerPayload, mended_length};

/// Limit of the bytes read from the body of an error response.
const REFUSAL_BYTES: usize = 64 * 1024;

/// What is known of the path of a URL.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PathAdvice {
    /// Nothing was ever answered there: the URL may be wrong.
    Unproven,
    /// The server answered there before.
    Known,
}

/// Turns a response with a status other than 2xx into an error.
pub(super) async fn read_status_error(
    response: http::Response<ResponseBody>,
    proxy: Option<&ProxyAddress>,
    id: Option<u64>,
    advice: PathAdvice,
) -> LinkError {
    let (head, body) = response.into_parts();
    // The body only adds detail to the error, so a slow one must not delay the call for long.
    let body = tokio::time::timeout(
        Duration::from_secs(5),
        collect_body(body, REFUSAL_BYTES, None),
    )
    .await;
    let mut error = status_error(
        head.status,
        &head.headers,
        body.ok().and_then(Result::ok),
        advice,
        head.extensions.get(),
    );
    // Another request's error says nothing to this caller. Its words are in the hint.
    if let LinkError::Status { message, .. } = &mut error
        && !message
            .as_deref()
            .is_some_and(|message| is_error_for(message, id))
    {
        *message = None;
    }
    // A forwarding proxy reports its own errors with the same statuses.
    if let (
        LinkError::Status {
            status: 403 | 407 | 500..,
            hint,
            ..
        },
        Some(proxy),
    ) = (&mut error, proxy)
    {
        hint.push_str(&format!(
            "; it came through {proxy}, which may have sent this status itself"
        ));
    }
    error
}

/// True for an error about the request with this id. One without an id is about the only message
/// that was sent.
fn is_error_for(message: &RpcMessage, id: Option<u64>) -> bool {
    match message {
        RpcMessage::Response(response) => {
            response.outcome.is_err() && id.is_none_or(|id| is_for(response, id))
        }
        RpcMessage::Request(_) | RpcMessage::Notification(_) => false,
    }
}

/// Turns the status, headers and body of a response into an error. What was sent is removed from
/// the server's words.
pub(super) fn status_error(
    status: StatusCode,
    headers: &HeaderMap,
    body: Option<Bytes>,
    advice: PathAdvice,
    sent: Option<&SentCredential>,
) -> LinkError {
    let retry_after = retry_after(headers);
    // Before anything is cut or decoded: a part of a credential is not found any more.
    let body = match sent {
        Some(sent) => body.map(|body| sent.hide_in_body(body)),
        None => body,
    };
    let hint = match (status, location(headers, sent)) {
        (status, Some(to)) if status.is_redirection() => {
            format!(": it redirects to {to:?}, which is not followed; configure that URL")
        }
        (StatusCode::NOT_FOUND, _) if advice == PathAdvice::Unproven => {
            ": there is nothing at this path; is `url` complete? Most servers are at /mcp, \
            older ones at /sse"
                .to_owned()
        }
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => {
            ": the configured credentials are missing or refused".to_owned()
        }
        (StatusCode::TOO_MANY_REQUESTS, _) => ": too many requests".to_owned(),
        (StatusCode::PROXY_AUTHENTICATION_REQUIRED, _) => {
            ": the proxy requires other credentials; write `USER:PASSWORD@` before its host \
             (`proxy`, or HTTP_PROXY)"
                .to_owned()
        }
        _ => String::new(),
    };
    let message = body.as_ref().and_then(read_message).map(Box::new);
    let said = body
        .and_then(|body| error_words(headers, &body))
        .map(|said| format!("; it said: {said}"));
    let hint = hint + &said.unwrap_or_default();
    let challenge = AuthChallenge::of(status, headers).map(Box::new);
    LinkError::Status {
        status: status.as_u16(),
        hint,
        message,
        retry_after,
        challenge,
    }
}

fn read_message(body: &Bytes) -> Option<RpcMessage> {
    let body = without_byte_order_mark(body);
    // A copy of an error's body is small: what is read of one is bounded.
    let text = match mended_length(&body) {
        Some(_) => Bytes::from(String::from_utf8_lossy(&body).into_owned()),
        None => body,
    };
    match ServerPayload::parse(&text, 1).ok()?.0 {
        RpcPayload::One(message) => Some(message),
        RpcPayload::Batch(_) => None,
    }
}

/// Returns where a response redirects to, for people.
fn location(headers: &HeaderMap, sent: Option<&SentCredential>) -> Option<String> {
    let location = headers.get(LOCATION)?.to_str().ok()?;
    let hidden = sent.and_then(|sent| sent.hide(location.as_bytes()));
    Some(hidden.map_or_else(
        || location.to_owned(),
        |hidden| String::from_utf8_lossy(&hidden).into_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn refusal_text(status: u16) -> String {
        status_error(
            StatusCode::from_u16(status).unwrap(),
            &HeaderMap::new(),
            None,
            PathAdvice::Unproven,
            None,
        )
        .to_string()
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        for status in [401, 403] {
            assert!(refusal_text(status).contains("credentials are missing or refused"));
        }
        assert!(refusal_text(404).contains("is `url` complete"));
        assert_eq!(refusal_text(500), "HTTP status 500");
        let known = status_error(
            StatusCode::NOT_FOUND,
            &HeaderMap::new(),
            None,
            PathAdvice::Known,
            None,
        );
        assert_eq!(known.to_string(), "HTTP status 404");
    }

    /// Tokens that nobody knows by their look: a UUID, base64url and hexadecimal digits.
    const TOKENS: [&str; 3] = [
        "5f0c6d0e-3a5b-4c7e-9d1f-2b8a7c6e5d4f",
        "qPz-Xw_aTkLmNoRsTuVyBcDeFgHiJkMn",
        "9c1185a5c5e9fc54612808977ee8f548b2258d31",
    ];

    /// Error of a response to a request with this token. `{token}` in the body and in the location
    /// is the token.
    fn quoting_error(status: u16, token: &str, body: &str, location: &str) -> LinkError {
        let mut headers = HeaderMap::new();
        let quoted = location.replace("{token}", token);
        headers.insert(LOCATION, HeaderValue::from_str(&quoted).unwrap());
        let sent = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
        status_error(
            StatusCode::from_u16(status).unwrap(),
            &headers,
            Some(Bytes::from(body.replace("{token}", token))),
            PathAdvice::Known,
            Some(&SentCredential::new(sent)),
        )
    }

    #[test]
    fn no_error_quotes_the_credential_that_was_sent() {
        let rpc = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no {token} here",
            "data":{"sent":"{token}"}}}"#;
        let cut = format!("{}{{token}}", "x".repeat(290));
        for token in TOKENS {
            for status in [400, 403, 500] {
                for body in [
                    r#"{"message":"no right for {token}"}"#,
                    "no {token}",
                    rpc,
                    cut.as_str(),
                ] {
                    let error = quoting_error(status, token, body, "/");
                    let shown = format!("{error} {error:?}");
                    assert!(!shown.contains(&token[..8]), "{shown}");
                }
                let error = quoting_error(status, token, rpc, "/");
                assert!(error.to_string().contains("no [redacted] here"), "{error}");
                let LinkError::Status { message, .. } = error else {
                    panic!("no status");
                };
                assert!(message.is_some());
            }
            let error = quoting_error(302, token, "", "https://x.test/a?token={token}&b=c");
            let shown = error.to_string();
            assert!(shown.contains("?token=[redacted]&b=c"), "{shown}");
        }
    }
}
