//! A gateway whose config is changed through its admin API.

use moongate_mock::MockHandle;
use serde_json::Value;

use super::{HttpClient, HttpReply, Process, Setup, legacy, only, serve, until};

/// Type of a body that is accepted.
pub(crate) const JSON: (&str, &str) = ("content-type", "application/json");

/// Key of the operator `ann`.
const OPERATOR_KEY: &str = "key-of-the-operator-ann-0123456789";

/// Gateway as a process, with the file that it reads.
pub(crate) struct EditedGateway {
    pub(crate) gateway: Process,
    pub(crate) setup: Setup,
}

impl EditedGateway {
    pub(crate) async fn start(setup: Setup) -> EditedGateway {
        EditedGateway::with(setup.lasting()).await
    }

    /// Starts a gateway with the key of an operator, who may write programs if `allow_commands` is
    /// on.
    pub(crate) async fn with_key(setup: Setup) -> EditedGateway {
        let key = format!("name = \"ann\"\nkey = {OPERATOR_KEY:?}\nrole = \"operate\"");
        let mut edited = EditedGateway::start(setup.with("admin.keys", &key)).await;
        edited.gateway.admin_key = Some(OPERATOR_KEY.to_owned());
        edited
    }

    /// Starts the gateway at the addresses that the config has.
    pub(crate) async fn with(setup: Setup) -> EditedGateway {
        let gateway = setup.program().await;
        // Printed after the first address, which is what the start waits for.
        until("the admin listener is named", async || {
            gateway.log().contains("page on ").then_some(())
        })
        .await;
        EditedGateway { gateway, setup }
    }

    /// Starts a gateway whose server `a` is ready and has one tool, `echo`. The server ends with
    /// its handle.
    pub(crate) async fn with_echo() -> (MockHandle, EditedGateway) {
        let server = serve(only(legacy(), &["echo"])).await;
        let edited = EditedGateway::start(Setup::new().http("a", &server.url)).await;
        edited.ready("a").await;
        (server, edited)
    }

    /// Text of the file as it is.
    pub(crate) fn text(&self) -> String {
        std::fs::read_to_string(self.setup.path("moongate.toml")).unwrap()
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> HttpReply {
        let key = self
            .gateway
            .admin_key
            .as_ref()
            .map(|key| format!("Bearer {key}"));
        let key: Vec<(&str, &str)> = key
            .iter()
            .map(|key| ("authorization", key.as_str()))
            .collect();
        let headers = [&[JSON], &key[..], headers].concat();
        let url = format!("{}/api/v1{path}", self.gateway.admin_url().await);
        HttpClient::new()
            .send(method, &url, &headers, body.to_string())
            .await
    }

    pub(crate) async fn patch(&self, server: &str, body: Value) -> HttpReply {
        self.send("PATCH", &format!("/servers/{server}"), &[], &body)
            .await
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.gateway.admin(&format!("/api/v1{path}")).await.json()
    }

    pub(crate) async fn ready(&self, server: &str) {
        until("the server is ready", || async {
            let status = self.gateway.status(server).await;
            (status["state"] == "ready" && status["tools_on"].as_u64() > Some(0)).then_some(())
        })
        .await;
    }

    /// Waits until the server has this state.
    pub(crate) async fn state(&self, server: &str, state: &str) -> Value {
        until(&format!("{server} is {state}"), || async {
            let status = self.gateway.status(server).await;
            (status["state"] == state).then_some(status)
        })
        .await
    }
}
