//! Owner of the grant in a request to `/token` or `/revoke`.
//!
//! Owns how it is found. Does not check a grant or use it up. Invariant: whoever has no grant costs
//! a look at a seal, and nothing that others share.

use crate::broker::Broker;
use crate::code_table::CodeState;
use crate::form_fields::FormFields;
use crate::login_id::LoginId;
use crate::login_row::ClientMark;

/// Client and login that a grant belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GrantOwner {
    /// Client.
    pub(crate) client: ClientMark,
    /// Login, unless a code has yet to start it.
    pub(crate) login: Option<LoginId>,
}

/// Finds the owner of the code or token in a form. `None`: there is none that is known.
pub(crate) fn owner_of(broker: &Broker, form: &FormFields) -> Option<GrantOwner> {
    let login = match form.get("code").map(|code| broker.codes.state(code)) {
        Some(CodeState::Waiting(grant)) => {
            let client = grant.client;
            return Some(GrantOwner {
                client,
                login: None,
            });
        }
        Some(CodeState::Used(login)) => login?,
        Some(CodeState::Unknown) | None => ["refresh_token", "token"]
            .into_iter()
            .filter_map(|name| form.get(name))
            .find_map(|token| login_of(broker, token))?,
    };
    let live = broker.store.find(login)?;
    Some(GrantOwner {
        client: live.row.client,
        login: Some(live.id),
    })
}

/// Returns the login that a token names, of whichever kind and age the token is.
pub(crate) fn login_of(broker: &Broker, token: &str) -> Option<LoginId> {
    let seals = &broker.seals;
    let refresh = seals.open_refresh(token).map(|claims| claims.login);
    refresh.or_else(|| seals.open_access(token).map(|claims| claims.login))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_broker::{TestBroker, client};

    fn owner(test: &TestBroker, query: &str) -> Option<GrantOwner> {
        owner_of(&test.broker, &FormFields::of_query(query).unwrap())
    }

    #[tokio::test]
    async fn a_code_or_token_names_its_client_and_login() {
        let test = TestBroker::in_memory();
        let live = test.login(|_| {}).await;
        let refresh = test.refresh_token(&live, 0);
        let access = test.access_token(&live, 0);
        let of_login = GrantOwner {
            client: client("client").mark(),
            login: Some(live.id),
        };
        for query in [
            format!("refresh_token={refresh}"),
            format!("token={refresh}"),
            format!("token={access}"),
        ] {
            assert_eq!(owner(&test, &query), Some(of_login), "{query}");
        }
        let code = test.code();
        let of_code = GrantOwner {
            login: None,
            ..of_login
        };
        let query = format!("code={}", code.expose());
        assert_eq!(owner(&test, &query), Some(of_code));
        for query in ["", "code=x", "token=mgr_x", "refresh_token=mga_x"] {
            assert_eq!(owner(&test, query), None, "{query}");
        }
        test.broker.revoke(live.id).await;
        assert_eq!(owner(&test, &format!("token={refresh}")), None);
    }
}
