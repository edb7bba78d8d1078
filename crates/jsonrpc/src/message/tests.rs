//! Tests of `message.rs`.

use proptest::prelude::*;

use super::*;
use crate::json::tests::{members, object_text, space, string, value};

fn parse(text: &str) -> Result<RpcMessage, MalformedMessage> {
    RpcMessage::parse(&Bytes::copy_from_slice(text.as_bytes()))
}

fn read(text: &str) -> RpcMessage {
    parse(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

fn written(write: impl FnOnce(&mut BytesMut)) -> String {
    String::from_utf8(encode_with(0, write).to_vec()).unwrap()
}

/// Generates an id in any allowed form.
fn id() -> impl Strategy<Value = String> {
    prop_oneof![
        string().prop_map(|(_, spelling)| spelling),
        any::<i64>().prop_map(|n| n.to_string()),
        "[1-9][0-9]{20,40}"
    ]
}

proptest! {
    #[test]
    fn requests_round_trip(id in id(), (name, method) in string(), members in members(),
        s in space()) {
        let params = object_text(&members);
        // The members come in any order.
        let text = format!(r#"{s}{{"params":{s}{params},"x-more":[1.0],"id":{s}{id},"method":{method},{s}"jsonrpc":"2.0"}}"#);
        let RpcMessage::Request(request) = read(&text) else { panic!("no request: {text}") };
        prop_assert_eq!(&request.id.raw().bytes()[..], id.as_bytes());
        prop_assert_eq!(request.method.as_str(), name);
        let out = written(|out| write_request(out, &request.id, &request.method, &request.params));
        prop_assert!(out.contains(&format!(r#""id":{id},"#)), "{}", out);
        if members.first().is_some_and(|(_, key, ..)| !key.contains('\\')) {
            prop_assert!(out.ends_with(&format!(r#","params":{params}}}"#)), "{}", out);
        }
        let RpcMessage::Request(again) = read(&out) else { panic!("no request: {out}") };
        prop_assert_eq!(again.id, request.id);
        prop_assert_eq!(again.method, request.method);
        prop_assert_eq!(again.params, request.params);
    }

    #[test]
    fn notifications_round_trip((name, method) in string(), members in members()) {
        let text = format!(r#"{{"jsonrpc":"2.0","method":{method},"params":{}}}"#,
            object_text(&members));
        let RpcMessage::Notification(notification) = read(&text) else { panic!("no notification: \
            {text}") };
        prop_assert_eq!(notification.method.as_str(), name);
        let out = written(|out| write_notification(out, &notification.method,
            &notification.params));
        let RpcMessage::Notification(again) = read(&out) else { panic!("no notification: {out}") };
        prop_assert_eq!(again.method, notification.method);
        prop_assert_eq!(again.params, notification.params);
    }

    #[test]
    fn results_round_trip(id in id(), members in members()) {
        let text = format!(r#"{{"id":{id},"result":{},"jsonrpc":"2.0"}}"#, object_text(&members));
        let RpcMessage::Response(RpcResponse { id: Some(read_id),
            outcome: Ok(result) }) = read(&text) else { panic!("{text}") };
        let out = written(|out| write_result(out, &read_id, &result));
        prop_assert!(out.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"#)), "{}",
            out);
        let RpcMessage::Response(again) = read(&out) else { panic!("{out}") };
        prop_assert_eq!(again.id, Some(read_id));
        prop_assert_eq!(again.outcome, Ok(result));
    }

    #[test]
    fn errors_round_trip(id in id(), code in any::<i64>(), (message, spelling) in string(),
        data in value()) {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"data":{data},"message":{spelling},"code":{code}}}}}"#);
        let RpcMessage::Response(RpcResponse { id: Some(read_id),
            outcome: Err(error) }) = read(&text) else { panic!("{text}") };
        prop_assert_eq!(error.code, code);
        prop_assert_eq!(error.message.as_str(), message.as_str());
        // As everywhere in JSON-RPC, `null` counts as absent.
        let held = error.data.as_ref().map_or("null".as_bytes(), |data| &data.bytes()[..]);
        prop_assert_eq!(held, data.as_bytes());
        let out = written(|out| write_error(out, Some(&read_id), &error));
        let RpcMessage::Response(again) = read(&out) else { panic!("{out}") };
        prop_assert_eq!(again.id, Some(read_id));
        prop_assert_eq!(again.outcome, Err(error));
    }

    #[test]
    fn a_member_that_is_there_twice_is_refused(at in 0..4_usize, id in id()) {
        let all = [r#""jsonrpc":"2.0""#.to_owned(), format!(r#""id":{id}"#),
            r#""method":"a""#.to_owned(), r#""params":{}"#.to_owned()];
        let once = all.join(",");
        let single = format!("{{{once}}}");
        prop_assert!(parse(&single).is_ok(), "{}", single);
        let twice = format!("{{{once},{}}}", all[at]);
        prop_assert!(matches!(parse(&twice), Err(MalformedMessage::Shape { .. })), "{}", twice);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64),
        text in value()) {
        let _ = RpcPayload::parse(&Bytes::from(bytes), 4);
        let _ = RpcPayload::parse(&Bytes::from(text), 4);
    }
}

#[test]
fn a_request_with_an_invalid_id_is_refused() {
    let long = format!("\"{}\"", "x".repeat(ID_BYTES_MAX));
    for id in ["null", "1.0", "1e3", "true", "[1]", "{}", "-", &long] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"a"}}"#);
        assert!(parse(&text).is_err(), "{}", &text[..text.len().min(80)]);
    }
}

#[test]
fn a_message_has_one_meaning() {
    for members in [
        r#""id":1,"result":{},"error":{"code":1,"message":""}"#,
        r#""id":1,"method":"a","result":{}"#,
        r#""id":1,"method":"a","error":{"code":1,"message":""}"#,
        r#""id":1"#,
        r#""id":1,"method":"a","params":[1]"#,
        r#""id":1,"result":7"#,
        r#""id":1,"error":{"message":"no code"}"#,
        r#""id":1,"error":{"code":1,"code":2,"message":""}"#,
    ] {
        let text = format!(r#"{{"jsonrpc":"2.0",{members}}}"#);
        let Err(MalformedMessage::Shape { id, .. }) = parse(&text) else {
            panic!("{text}")
        };
        assert_eq!(id, Some(RequestId::number(1)), "{text}");
    }
    for version in [r#""1.0""#, "2.0", "null"] {
        assert!(parse(&format!(r#"{{"jsonrpc":{version},"id":1,"method":"a"}}"#)).is_err());
    }
}

/// Reads an error response. Returns true if it has an id.
fn has_id(id: &str) -> Result<bool, MalformedMessage> {
    parse(&format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-1,"message":"x"}}}}"#
    ))
    .map(|message| message.id().is_some())
}

#[test]
fn an_answer_has_a_legal_id_or_none() {
    for id in ["{}", "[1]", "1.5", "true"] {
        assert!(has_id(id).is_err(), "{id}");
    }
    assert!(!has_id("null").unwrap() && has_id("7").is_ok() && has_id("\"7\"").is_ok());
}
