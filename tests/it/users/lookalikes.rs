//! Members that differ only by case from one that is decided by: a server that ignores case would
//! read the other one.

use http::HeaderMap;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use crate::harness::{ERAS, Era, Gateway, McpClient, Setup, legacy, modern_meta, serve, within};

/// Methods of both eras, and members of their params. `\u017f` folds to s, and `\u212a` to k.
const REFUSED: [(&str, &str); 26] = [
    ("tools/call", r#""name":"a__echo","Name":"evil""#),
    ("tools/call", r#""NAME":"evil","name":"a__echo""#),
    ("tools/call", r#""name":"a__echo","\u004eame":"evil""#),
    ("tools/call", r#""name":"a__echo","n\u0061mE":"evil""#),
    (
        "tools/call",
        r#""name":"a__echo","arguments":{},"Arguments":{}"#,
    ),
    ("tools/call", r#""name":"a__echo","argument\u017f":{}"#),
    ("tools/call", r#""name":"a__echo","ta\u017fk":{}"#),
    ("tools/call", r#""name":"a__echo","tas\u212a":{}"#),
    ("tools/call", r#""name":"a__echo","RequestState":"x""#),
    ("tools/call", r#""name":"a__echo","InputRe\u017fponses":{}"#),
    ("tools/call", r#""name":"a__echo","_Meta":{}"#),
    ("tools/call", r#""Name":"a__echo""#),
    ("prompts/get", r#""name":"a__plain","NaMe":"evil""#),
    ("prompts/get", r#""name":"a__plain","requeststate":"x""#),
    (
        "resources/read",
        r#""uri":"mock://static/text","URI":"mock://evil""#,
    ),
    (
        "resources/read",
        r#""uri":"mock://static/text","\u0055ri":"mock://evil""#,
    ),
    (
        "completion/complete",
        r#""ref":{"type":"ref/prompt","name":"a__args"},"Ref":{}"#,
    ),
    (
        "completion/complete",
        r#""ref":{"type":"ref/prompt","name":"a__args","Name":"evil"}"#,
    ),
    (
        "completion/complete",
        r#""ref":{"type":"ref/prompt","Type":"ref/resource","name":"a__args"}"#,
    ),
    (
        "completion/complete",
        r#""ref":{"type":"ref/resource","uri":"mock://static/text","Uri":"mock://evil"}"#,
    ),
    ("tasks/get", r#""taskId":"1","TaskID":"2""#),
    ("tasks/get", r#""taskId":"1","ta\u017f\u212aId":"2""#),
    ("tasks/cancel", r#""taskId":"1","task\u0049D":"2""#),
    ("tasks/update", r#""taskId":"1","taskid":"2""#),
    ("tools/list", r#""Cursor":"2""#),
    ("resources/list", r#""_META":{}"#),
];

const REFUSED_OF_LEGACY: [(&str, &str); 5] = [
    (
        "resources/subscribe",
        r#""uri":"mock://watched","Uri":"mock://evil""#,
    ),
    (
        "resources/unsubscribe",
        r#""uri":"mock://watched","uRI":"mock://evil""#,
    ),
    ("logging/setLevel", r#""level":"info","LEVEL":"debug""#),
    ("tasks/result", r#""taskId":"1","Taskid":"2""#),
    (
        "tools/call",
        r#""name":"a__echo","_meta":{"ProgressToken":7}"#,
    ),
];

const REFUSED_OF_MODERN: [(&str, &str); 2] = [
    (
        "subscriptions/listen",
        r#""notifications":{},"Notifications":{}"#,
    ),
    (
        "subscriptions/listen",
        r#""notifications":{"ResourceSubscriptions":["mock://evil"]}"#,
    ),
];

/// Members of the message itself.
const ENVELOPE: [&str; 7] = [
    r#""Method":"tools/list""#,
    r#""METHOD":"tools/list""#,
    r#""Params":{"name":"evil"}"#,
    r#""param\u017f":{"name":"evil"}"#,
    r#""\u0050arams":{"name":"evil"}"#,
    r#""ID":2"#,
    r#""JSONRPC":"1.0""#,
];

/// A request with these members of its params, as text; `more`: members beside it.
fn body(era: Era, method: &str, params: &str, more: &str) -> String {
    let meta = if era == Era::Modern {
        format!(r#""_meta":{},"#, modern_meta())
    } else {
        String::new()
    };
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{meta}{params}}}{more}}}"#)
}

async fn over_http(client: &McpClient, method: &str, body: String) -> Value {
    let mut headers = Vec::new();
    if client.era() == Era::Modern {
        let message: Value = serde_json::from_str(&body).unwrap();
        let params = &message["params"];
        let target = params["name"]
            .as_str()
            .or(params["uri"].as_str())
            .or(params["taskId"].as_str());
        headers.push(("mcp-method", method.to_owned()));
        headers.extend(target.map(|target| ("mcp-name", target.to_owned())));
    }
    let response = client.raw("POST", &headers, body).await;
    let body = http_body_util::BodyExt::collect(response.into_body())
        .await
        .unwrap()
        .to_bytes();
    serde_json::from_slice(&body).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&body)))
}

/// Every request that is refused, of this era.
fn refused(era: Era) -> Vec<(&'static str, String)> {
    let of_era = if era == Era::Legacy {
        &REFUSED_OF_LEGACY[..]
    } else {
        &REFUSED_OF_MODERN[..]
    };
    let params = REFUSED
        .iter()
        .chain(of_era)
        .map(|(method, params)| (*method, body(era, method, params, "")));
    let call = r#""name":"a__echo""#;
    let envelope = ENVELOPE.map(|more| {
        (
            "tools/call",
            body(era, "tools/call", call, &format!(",{more}")),
        )
    });
    params.chain(envelope).collect()
}

fn assert_refused(answer: &Value, body: &str) {
    assert_eq!(answer["error"]["code"], -32602, "{body}: {answer}");
    assert_eq!(answer["id"], 1, "{body}: {answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("differs only by case"),
        "{body}: {message}"
    );
}

async fn gateway() -> (moongate_mock::MockHandle, Gateway) {
    let mock = serve(legacy()).await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    mock.reset_record();
    (mock, gateway)
}

#[tokio::test]
async fn a_member_that_a_server_may_take_for_another_is_refused_over_http() {
    let (mock, gateway) = gateway().await;
    for era in ERAS {
        let client = gateway.client(era).await;
        for (method, body) in refused(era) {
            assert_refused(&over_http(&client, method, body.clone()).await, &body);
        }
    }
    let opening =
        r#""protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{},"Capabilities":{}"#;
    let reply = gateway
        .client(Era::Legacy)
        .await
        .post(body(Era::Legacy, "initialize", opening, ""))
        .await;
    assert_eq!(reply.error()["code"], -32602);
    for method in [
        "tools/call",
        "prompts/get",
        "resources/read",
        "completion/complete",
    ] {
        assert_eq!(mock.counters().of(method), 0, "{method}");
    }
}

#[tokio::test]
async fn a_member_that_a_server_may_take_for_another_is_refused_on_a_pipe() {
    let (_mock, gateway) = gateway().await;
    let (client_in, server_out) = tokio::io::duplex(1 << 20);
    let (server_in, mut out) = tokio::io::duplex(1 << 20);
    tokio::spawn(
        gateway
            .app
            .pipe("", &HeaderMap::new())
            .unwrap()
            .serve(server_in, server_out),
    );
    let mut lines = BufReader::new(client_in).lines();
    let mut ask = async |body: &str| -> Value {
        out.write_all(format!("{body}\n").as_bytes()).await.unwrap();
        serde_json::from_str(
            &within("an answer", lines.next_line())
                .await
                .unwrap()
                .unwrap(),
        )
        .unwrap()
    };
    let opening = r#""protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}"#;
    let wrong = body(
        Era::Legacy,
        "initialize",
        &format!(r#"{opening},"ClientInfo":{{}}"#),
        "",
    );
    assert_refused(&ask(&wrong).await, &wrong);
    assert!(ask(&body(Era::Legacy, "initialize", opening, "")).await["result"].is_object());
    for era in ERAS {
        for (_, body) in refused(era) {
            assert_refused(&ask(&body).await, &body);
        }
    }
}

#[tokio::test]
async fn payloads_are_not_inspected() {
    let (mock, gateway) = gateway().await;
    let arguments = r#""arguments":{"name":1,"Name":2,"NAME":3,"uri":4,"URI":5,"_Meta":6}"#;
    for era in ERAS {
        let client = gateway.client(era).await;
        let params = format!(r#""name":"a__echo",{arguments},"others":{{"Name":1}}"#);
        let answer = over_http(&client, "tools/call", body(era, "tools/call", &params, "")).await;
        assert!(answer["result"].is_object(), "{answer}");
    }
    let client = gateway.client(Era::Legacy).await;
    let params = r#""name":"a__echo","_meta":{"name":1,"Name":2,"com.example/uri":3,"URI":4}"#;
    let answer = over_http(
        &client,
        "tools/call",
        body(Era::Legacy, "tools/call", params, ""),
    )
    .await;
    assert!(answer["result"].is_object(), "{answer}");
    let seen = mock
        .recorded_requests()
        .into_iter()
        .filter(|seen| seen.body.contains(r#""NAME":3"#))
        .count();
    assert_eq!(seen, 2, "as it was spelled");
}
