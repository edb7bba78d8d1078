//! Refusals of requests that did not become calls, and the errors of the transport.
//!
//! Owns their shape. Does not decide on them. Invariant: a refusal names the request if its id
//! could be read.

use http::Response;

use crate::body::Body;
use crate::http_response::json_response;
use crate::legacy::downstream::encode;
use moongate_jsonrpc::message::{RequestId, RpcMessage, RpcPayload};
use moongate_model::Error;

/// Error of a request that did not become a call.
pub(crate) struct LegacyRefusal {
    pub(crate) id: Option<RequestId>,
    pub(crate) error: Error,
}

impl From<Error> for LegacyRefusal {
    fn from(error: Error) -> Self {
        LegacyRefusal { id: None, error }
    }
}

impl LegacyRefusal {
    pub(crate) fn for_id(id: &RequestId, error: Error) -> Self {
        LegacyRefusal {
            id: Some(id.clone()),
            error,
        }
    }
}

/// Builds the response to a refused request.
pub(crate) fn error_response(id: Option<&RequestId>, error: &Error) -> Response<Body> {
    json_response(
        encode::http_status(error),
        [encode::encode_error(id, error)],
    )
}

/// Returns the id of the refused request if the payload is a single request.
pub(crate) fn request_id(payload: &RpcPayload) -> Option<RequestId> {
    match payload {
        RpcPayload::One(RpcMessage::Request(request)) => Some(request.id.clone()),
        _ => None,
    }
}
