//! Canaries: no token, code, verifier, cookie or secret of a login appears anywhere that people or
//! other programs read.

use std::path::Path;

use super::browser::{BrowserStop, ConsentButton};
use super::provider::{AnswerRule, RenewalRule};
use super::shapes::{CHATGPT, CLAUDE_CODE};
use super::world::{Company, LoggedIn, people};
use crate::harness::{Process, until};

/// Pages of the operator's listener.
const PAGES: [&str; 8] = [
    "/",
    "/metrics",
    "/api/v1/status",
    "/api/v1/config",
    "/api/v1/calls",
    "/api/v1/sessions",
    "/api/v1/people",
    "/api/v1/doctor",
];

/// Texts that others read, each with a name.
#[derive(Default)]
struct ReadTexts(Vec<(String, String)>);

impl ReadTexts {
    async fn add_gateway(&mut self, gateway: &Process) {
        for page in PAGES {
            let reply = gateway.admin(page).await;
            let text = String::from_utf8_lossy(&reply.body);
            self.0.push((page.to_owned(), text.into_owned()));
        }
        self.0.push(("log".to_owned(), gateway.log()));
        for kind in ["cmdline", "environ"] {
            let file = format!("/proc/{}/{kind}", gateway.pid());
            self.add_file(Path::new(&file));
        }
    }

    /// Adds the files below a folder.
    fn add_files(&mut self, folder: &Path) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => self.add_files(&path),
                false => self.add_file(&path),
            }
        }
    }

    fn add_file(&mut self, path: &Path) {
        if let Ok(bytes) = std::fs::read(path) {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            self.0.push((path.display().to_string(), text));
        }
    }

    fn assert_none_has(&self, secrets: &[String]) {
        for secret in secrets {
            let leaks = self.0.iter().filter(|(_, text)| text.contains(secret));
            let names: Vec<&str> = leaks.map(|(name, _)| name.as_str()).collect();
            assert!(names.is_empty(), "{secret} is in {names:?}");
        }
    }
}

#[tokio::test]
async fn no_secret_of_a_persons_login_is_anywhere() {
    let root = "canary-root-secret-0123456789abcdef0123456789";
    let company = Company::start()
        .await
        .with("gateway", &format!("secret = {root:?}"));
    let gateway = company.gateway().await;
    let mut texts = ReadTexts::default();
    let mut secrets = vec![root.to_owned()];
    for shape in [&CLAUDE_CODE, &CHATGPT] {
        let client = company.client(shape).await;
        let mut browser = company.browser();
        let page = browser.open(&client.address()).await;
        secrets.extend(browser.cookie_values());
        let page = browser.press(&page, ConsentButton::Yes).await;
        secrets.extend(browser.cookie_values());
        let BrowserStop::Client(answer) = browser.follow(page).await else {
            panic!("no code");
        };
        let code = client.code_of(&answer);
        let tokens = client.exchange(&code, &company.documents).await;
        client.call(&tokens.access).await;
        let form = client.exchange_form("a-code-of-nobody");
        let refused = client.post_token(&form, &company.documents).await;
        texts.0.push(("refusal".to_owned(), refused.text_body()));
        texts.add_gateway(&gateway).await;
        let renewed = client.refresh(&tokens.refresh, &company.documents).await;
        client.call(&renewed.access).await;
        secrets.extend([code, client.verifier.clone(), client.state.clone()]);
        secrets.extend([tokens.access, tokens.refresh]);
        secrets.extend([renewed.access, renewed.refresh]);
    }
    let LoggedIn { client, tokens } = company.log_in().await;
    // What fails is logged, too.
    company
        .provider
        .change(|rules| rules.answer = AnswerRule::WrongIss);
    let page = company.browser().try_log_in(&client.address()).await;
    texts.0.push(("page".to_owned(), page.html()));
    company
        .provider
        .change(|rules| rules.renewal = RenewalRule::Refuse("invalid_grant"));
    let company = company.recheck(&gateway).await;
    until("all logins have ended", async || {
        people(&gateway).await.is_empty().then_some(())
    })
    .await;
    let form = client.refresh_form(&tokens.refresh);
    let refused = client.post_token(&form, &company.documents).await;
    texts.0.push(("end".to_owned(), refused.text_body()));
    secrets.extend([tokens.access, tokens.refresh]);
    secrets.extend(company.provider.secrets());
    texts.add_gateway(&gateway).await;
    texts.add_files(&company.setup.path("state"));
    assert!(secrets.len() > 30, "{}", secrets.len());
    texts.assert_none_has(&secrets);
}
