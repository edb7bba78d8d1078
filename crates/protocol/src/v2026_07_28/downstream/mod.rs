//! Client side of the stateless revision: no POST depends on an earlier one.
//!
//! Owns the dialect and what it writes to clients. Does not know servers. Invariant: nothing of a
//! request is kept, apart from parked calls.

pub(super) mod dialect;
pub(super) mod encode;
pub(super) mod input_rounds;
pub(super) mod open_requests;
pub(super) mod request_state;
mod response_encoder;
pub(super) mod subscriptions;
pub(super) mod validated_request;
