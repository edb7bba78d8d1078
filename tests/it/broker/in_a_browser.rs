//! Consent in Chromium: `tests/page/consent.mjs` does what a person would.
//!
//! Owns the steps that the script requests. Does not drive the browser. Invariant: the browser
//! enforces each page's policy, so an approval that the policy blocks fails the test.

use super::client::LoginClient;
use super::shapes::OPENCODE;
use super::world::{Company, people};
use crate::page::{page_home, run_script};

/// Client whose address shows a page, although nothing listens there.
async fn client_of(company: &Company) -> LoginClient {
    let mut client = LoginClient::discover(&company.mcp(), &OPENCODE).await;
    client.redirect = company.documents.url("/client/callback");
    let body = format!(
        r#"{{"client_name":"Client of the test","redirect_uris":[{:?}]}}"#,
        client.redirect
    );
    let reply = client.register(&body).await;
    assert_eq!(reply.status, 201, "{reply:?}");
    client.id = reply.json()["client_id"].as_str().unwrap().to_owned();
    client
}

/// Exchanges the code of an answer, and calls a tool with the token.
async fn use_answer(company: &Company, client: &LoginClient, answer: &str) -> String {
    let code = client.code_of(answer);
    let tokens = client.exchange(&code, &company.documents).await;
    client.call(&tokens.access).await;
    "good".to_owned()
}

#[tokio::test]
async fn a_person_says_yes_and_no_in_a_browser() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let client = client_of(&company).await;
    let base = company.origin.trim_start_matches("http://");
    let pictures = page_home().join("pictures");
    run_script("consent.mjs", base, &pictures, async |order| {
        match order.split_once(' ') {
            Some(("exchange", answer)) => use_answer(&company, &client, answer).await,
            _ if order == "address" => client.address(),
            _ if order == "logins" => people(&gateway).await.len().to_string(),
            _ => panic!("the script orders {order:?}"),
        }
    })
    .await;
    let complaints = company.provider.complaints();
    assert_eq!(complaints, Vec::<String>::new());
}
