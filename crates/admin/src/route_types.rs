//! Types of a route's body and answer.
//!
//! Owns how a route names them. Does not describe routes (`openapi.rs`). Invariant: only tests ask
//! for schemas, so the binary has none.

#[cfg(test)]
use schemars::{Schema, SchemaGenerator};

/// Type with a schema.
#[cfg(test)]
pub(super) use schemars::JsonSchema as Described;

/// Type with a schema, which only tests ask for.
#[cfg(not(test))]
pub(super) trait Described {}

#[cfg(not(test))]
impl<T> Described for T {}

/// Types of a route's body and answer, as far as they are JSON.
#[derive(Clone, Copy)]
pub(super) struct RouteTypes {
    #[cfg(test)]
    pub(super) body: Option<fn(&mut SchemaGenerator) -> Schema>,
    #[cfg(test)]
    pub(super) answer: Option<fn(&mut SchemaGenerator) -> Schema>,
}

impl RouteTypes {
    /// Route without a body, and with another answer than JSON.
    pub(super) const NONE: RouteTypes = RouteTypes {
        #[cfg(test)]
        body: None,
        #[cfg(test)]
        answer: None,
    };

    /// Names the type of the body.
    #[cfg_attr(
        not(test),
        expect(clippy::needless_update, reason = "only tests have members")
    )]
    pub(super) const fn with_body<T: Described>(self) -> Self {
        RouteTypes {
            #[cfg(test)]
            body: Some(|generator| generator.subschema_for::<T>()),
            ..self
        }
    }

    /// Names the type of the answer.
    #[cfg_attr(
        not(test),
        expect(clippy::needless_update, reason = "only tests have members")
    )]
    pub(super) const fn with_answer<T: Described>(self) -> Self {
        RouteTypes {
            #[cfg(test)]
            answer: Some(|generator| generator.subschema_for::<T>()),
            ..self
        }
    }
}
