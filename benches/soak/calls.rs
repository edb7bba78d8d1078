//! Each kind of call, and how its answer is checked.

use crate::client::{Answer, Client, Event, Stream};
use crate::judge::{Outcome, judge};
use crate::soak::SoakRun;
use crate::world::{SERVERS, ServerCarrier, ServerFate, ServerSpec};
use anyhow::Result;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Larger than what is copied or sent in one piece.
const LARGE: usize = 20_000;

/// Whether a tool's result is this text.
fn says(wanted: &str) -> impl Fn(&Value) -> bool {
    move |result| result["content"][0]["text"] == wanted
}

/// What came of an exchange that may have broken.
fn seen(
    answer: &Result<Answer>,
    id: u64,
    wanted: &str,
    is_right: impl Fn(&Value) -> bool,
) -> Outcome {
    match answer {
        Ok(answer) => judge(answer, id, wanted, is_right),
        Err(error) => Outcome::Lost(format!("{error:#}")),
    }
}

/// A server that this client may call: children of single sessions are for clients with sessions.
pub(crate) fn any(soak: &SoakRun, client: &Client, few: bool) -> &'static ServerSpec {
    soak.server(|spec| match spec.how {
        ServerCarrier::Own => few && !client.is_modern(),
        _ => spec.name != "asks",
    })
}

/// The tool gives back what it is given, byte for byte.
pub(crate) async fn echo(soak: &SoakRun, client: &mut Client, spec: &ServerSpec, large: bool) {
    let mut nonce = soak.nonce(client.key);
    if large {
        nonce.push_str(&"é".repeat(LARGE / 2));
    }
    let arguments = json!({"nonce": nonce});
    let wanted = arguments.to_string();
    let request = client.call(&format!("{}__echo", spec.name), arguments, None);
    let began = Instant::now();
    let answer = client.exchange(&request.bytes).await;
    soak.called(
        if large { "large calls" } else { "echoes" },
        spec.name,
        began,
        seen(&answer, request.id, &wanted, says(&wanted)),
    );
}

/// Three steps of progress come before the answer, on one stream.
pub(crate) async fn steps(soak: &SoakRun, client: &mut Client, spec: &ServerSpec) {
    let nonce = soak.nonce(client.key);
    let request = client.call(
        &format!("{}__steps", spec.name),
        json!({"nonce": nonce}),
        Some(&nonce),
    );
    let began = Instant::now();
    let answer = client.exchange(&request.bytes).await;
    let mut outcome = seen(&answer, request.id, &nonce, says(&nonce));
    if let (Outcome::Right, Ok(answer)) = (&outcome, &answer) {
        soak.tally(|tally| tally.add("answers as event streams", u64::from(answer.streamed)));
        outcome = progress(&answer.messages, &nonce);
    }
    soak.called("calls with progress", spec.name, began, outcome);
}

/// Progress is this call's own and never goes back. Less than all of it is allowed: it is not
/// promised.
fn progress(messages: &[Value], token: &str) -> Outcome {
    let mut last = 0;
    for message in messages
        .iter()
        .filter(|message| message["method"] == "notifications/progress")
    {
        let done = message["params"]["progress"].as_u64().unwrap_or(0);
        if message["params"]["progressToken"] != token || done <= last || done > 3 {
            return Outcome::Wrong(format!("progress of {token}: {message}"));
        }
        last = done;
    }
    Outcome::Right
}

/// The connection breaks in the middle, and the client comes back for the rest.
pub(crate) async fn resumed(soak: &SoakRun, client: &mut Client, spec: &ServerSpec) {
    let nonce = soak.nonce(client.key);
    let request = client.call(
        &format!("{}__steps", spec.name),
        json!({"nonce": nonce}),
        Some(&nonce),
    );
    let began = Instant::now();
    let outcome = match interrupted(soak, client, &request.bytes).await {
        Ok((status, messages)) => {
            let answer = Answer {
                status,
                messages,
                ..Answer::default()
            };
            match judge(&answer, request.id, &nonce, says(&nonce)) {
                Outcome::Right => progress(&answer.messages, &nonce),
                other => other,
            }
        }
        Err(error) => Outcome::Lost(format!("over a broken connection: {error:#}")),
    };
    soak.called("calls over a broken connection", spec.name, began, outcome);
}

/// Reads until the first event with an id, leaves, and reads the rest.
async fn interrupted(
    soak: &SoakRun,
    client: &mut Client,
    bytes: &[u8],
) -> Result<(u16, Vec<Value>)> {
    let mut stream = client.stream(bytes).await?;
    let (mut messages, mut last) = (Vec::new(), None);
    let mut status = stream.status();
    if !stream.is_stream() {
        return Ok((status, vec![stream.whole().await?]));
    }
    let mut broke = false;
    loop {
        let events = stream.next().await?;
        let ended = events.is_empty();
        for Event { id, message } in events {
            last = id.or(last);
            messages.extend(message);
        }
        let answered = messages
            .iter()
            .any(|message| message.get("method").is_none());
        if ended || answered {
            return Ok((status, messages));
        }
        if let (Some(last), false) = (&last, broke) {
            broke = true;
            soak.add("streams resumed");
            let get = client.get(Some(last));
            drop(stream);
            sleep(Duration::from_millis(soak.dice(10))).await;
            stream = client.stream(&get).await?;
            status = stream.status();
        }
    }
}

/// The server asks, the client answers, and its answer is what comes back.
pub(crate) async fn asked(soak: &SoakRun, client: &mut Client, spec: &ServerSpec) {
    let nonce = soak.nonce(client.key);
    let began = Instant::now();
    let outcome = match client.is_modern() {
        true => rounds(client, spec, &nonce).await,
        false => dialogue(client, spec, &nonce).await,
    };
    let outcome = outcome.unwrap_or_else(|error| Outcome::Lost(format!("{error:#}")));
    soak.called("questions", spec.name, began, outcome);
}

fn accepted(nonce: &str) -> Value {
    json!({"action": "accept", "content": {"name": nonce}})
}

/// Whether the text of a result is the JSON of what was answered.
fn gives(nonce: &str) -> impl Fn(&Value) -> bool {
    move |result| {
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        serde_json::from_str::<Value>(text).is_ok_and(|back| back == accepted(nonce))
    }
}

async fn rounds(client: &mut Client, spec: &ServerSpec, nonce: &str) -> Result<Outcome> {
    let tool = format!("{}__elicit", spec.name);
    let mut params = json!({"name": tool, "arguments": {"message": nonce}});
    for _ in 0..3 {
        let request = client.request("tools/call", Some(&tool), params.clone());
        let answer = client.exchange(&request.bytes).await?;
        let result = answer
            .messages
            .last()
            .map(|message| &message["result"])
            .unwrap_or(&Value::Null);
        if result["resultType"] != "input_required" {
            return Ok(judge(&answer, request.id, nonce, gives(nonce)));
        }
        let mut answers = json!({});
        for (key, question) in result["inputRequests"].as_object().into_iter().flatten() {
            if question["params"]["message"] != nonce {
                return Ok(Outcome::Wrong(format!(
                    "asked {question} instead of {nonce}"
                )));
            }
            answers[key] = accepted(nonce);
        }
        params["inputResponses"] = answers;
        params["requestState"] = result["requestState"].clone();
    }
    Ok(Outcome::Wrong("asked again and again".to_owned()))
}

async fn dialogue(client: &mut Client, spec: &ServerSpec, nonce: &str) -> Result<Outcome> {
    let request = client.call(
        &format!("{}__elicit", spec.name),
        json!({"message": nonce}),
        None,
    );
    let mut stream = client.stream(&request.bytes).await?;
    let mut messages = Vec::new();
    if !stream.is_stream() {
        messages.push(stream.whole().await?);
    }
    loop {
        let events = stream.next().await?;
        if events.is_empty() {
            break;
        }
        for message in events.into_iter().filter_map(|event| event.message) {
            if message["method"] == "elicitation/create" {
                if message["params"]["message"] != nonce {
                    return Ok(Outcome::Wrong(format!(
                        "asked {message} instead of {nonce}"
                    )));
                }
                let reply = client.reply(&message["id"], &accepted(nonce));
                let told = client.exchange(&reply).await?;
                if told.status != 202 {
                    return Ok(Outcome::Wrong(format!("the client's answer: {told:?}")));
                }
            }
            messages.push(message);
        }
    }
    let answer = Answer {
        status: stream.status(),
        messages,
        ..Answer::default()
    };
    Ok(judge(&answer, request.id, nonce, gives(nonce)))
}

/// The client does not want the answer any more, and says so as its revision does.
pub(crate) async fn cancelled(soak: &SoakRun, client: &mut Client, spec: &ServerSpec) {
    let request = client.call(&format!("{}__sleep", spec.name), json!({"ms": 400}), None);
    let began = Instant::now();
    let patience = Duration::from_millis(5 + soak.dice(30));
    if client.is_modern() {
        // To leave is to cancel.
        let _ = tokio::time::timeout(patience, client.stream(&request.bytes)).await;
        return soak.called("cancelled calls", spec.name, began, Outcome::Right);
    }
    let cancel = client.notification("notifications/cancelled", &json!({"requestId": request.id}));
    let (address, revision, key) = (client.address, client.revision, client.key);
    let canceller = async {
        sleep(patience).await;
        let mut other = Client::new(address, revision, key);
        other.exchange(&cancel).await.map(|answer| answer.status)
    };
    let (answer, status) = tokio::join!(client.exchange(&request.bytes), canceller);
    let outcome = match (answer, status) {
        (_, Err(error)) => Outcome::Lost(format!("the cancellation: {error:#}")),
        (_, Ok(status)) if status != 202 => {
            Outcome::Wrong(format!("a cancellation is answered with HTTP {status}"))
        }
        // There is nothing to say to a cancelled call.
        (Ok(answer), _) if answer.messages.is_empty() => Outcome::Right,
        (answer, _) => {
            // It came first, or too late.
            soak.add("cancellations that missed");
            seen(&answer, request.id, "slept 400 ms", says("slept 400 ms"))
        }
    };
    soak.called("cancelled calls", spec.name, began, outcome);
}

/// A tool that nobody has is an error that names it, and nothing else.
pub(crate) async fn nothing(soak: &SoakRun, client: &mut Client) {
    let tool = soak.nonce(client.key);
    let request = client.call(&tool, json!({}), None);
    let began = Instant::now();
    let answer = client.exchange(&request.bytes).await;
    let outcome = match seen(&answer, request.id, "an error", |_| false) {
        Outcome::Failed(why) if why == format!("Unknown tool: {tool}") => Outcome::Right,
        other => other,
    };
    soak.called("calls of nothing", "pipe", began, outcome);
}

/// The list has every server that is always there, each tool once.
pub(crate) async fn list(soak: &SoakRun, client: &mut Client) {
    let request = client.request("tools/list", None, json!({}));
    let began = Instant::now();
    let answer = client.exchange(&request.bytes).await;
    let outcome = seen(&answer, request.id, "all servers", |result| {
        let tools = result["tools"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let mut names: Vec<&str> = tools
            .iter()
            .filter_map(|tool| tool["name"].as_str())
            .collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        let mut always = SERVERS
            .iter()
            .filter(|spec| spec.fate == ServerFate::Calm)
            .map(|spec| format!("{}__echo", spec.name));
        count == names.len() && always.all(|name| names.binary_search(&name.as_str()).is_ok())
    });
    soak.called("lists", "pipe", began, outcome);
}

/// A resource of this server's, whose text is the nonce.
pub(crate) async fn read(soak: &SoakRun, client: &mut Client, spec: &ServerSpec) {
    let nonce = soak.nonce(client.key);
    let uri = format!("soak://{}/{nonce}", spec.name);
    let request = client.request("resources/read", Some(&uri), json!({"uri": uri}));
    let began = Instant::now();
    let answer = client.exchange(&request.bytes).await;
    let outcome = seen(&answer, request.id, &nonce, |result| {
        result["contents"][0]["text"] == nonce
    });
    soak.called("reads", spec.name, began, outcome);
}

/// A prompt of this server's, whose text is the nonce.
pub(crate) async fn prompt(soak: &SoakRun, client: &mut Client, spec: &ServerSpec) {
    let nonce = soak.nonce(client.key);
    let name = format!("{}__say", spec.name);
    let request = client.request(
        "prompts/get",
        Some(&name),
        json!({"name": name, "arguments": {"nonce": nonce}}),
    );
    let began = Instant::now();
    let answer = client.exchange(&request.bytes).await;
    let outcome = seen(&answer, request.id, &nonce, |result| {
        result["messages"][0]["content"]["text"] == nonce
    });
    soak.called("prompts", spec.name, began, outcome);
}

impl Stream {
    /// The message of an answer in one piece.
    pub(crate) async fn whole(&mut self) -> Result<Value> {
        let body = self.body().await?;
        Ok(serde_json::from_slice(body)
            .unwrap_or_else(|_| json!({"no JSON": String::from_utf8_lossy(body)})))
    }
}
