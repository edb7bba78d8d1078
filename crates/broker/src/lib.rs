//! People's logins at the gateway: an authorization server in front of the company's login.
//!
//! Owns consent, the exchange with the company's login, client tokens and the login store. Does not
//! decide what a role may use. Invariant: no code is issued without approval on our own page, and a
//! token is valid only while its login has a row.

mod answer_address;
mod assertion_ids;
mod authorize_request;
mod authorize_route;
mod broker;
mod broker_method;
mod broker_method_source;
mod callback_route;
mod client_authentication;
mod client_documents;
mod client_fault;
mod client_keys;
mod client_record;
mod client_registration;
mod clients;
mod code_exchange;
mod code_table;
mod consent_forms;
mod consent_page;
mod consent_route;
mod departure;
mod document_metadata;
mod end_cause;
mod error_page;
mod fault_page;
mod form_fields;
mod grant_owner;
mod host_check;
mod login_cookies;
mod login_id;
mod login_index;
mod login_row;
mod login_store;
mod loopback_address;
mod metadata_route;
mod moving_page;
mod oauth_error;
mod page_frame;
mod page_guards;
mod page_headers;
mod person_facts;
mod person_login;
mod person_row;
mod pinned_names;
mod provider;
mod recheck;
mod redirect_rules;
mod refresh_exchange;
mod refresh_verdict;
mod register_route;
mod renewal_locks;
mod request_rates;
mod revoke_route;
mod routes;
mod row_codec;
mod row_writes;
mod server_document;
mod store_fault;
mod token_reply;
mod token_route;
mod token_seals;
mod transactions;

#[cfg(test)]
mod test_broker;

pub use broker::{Broker, BrokerParts};
pub use broker_method_source::BrokerMethodSource;
pub use end_cause::EndOutcome;
pub use login_id::LoginId;
pub use login_store::LostSecret;
pub use person_login::PersonLogin;
pub use recheck::recheck_forever;
pub use routes::broker_routes;
