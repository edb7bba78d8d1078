//! Definitions as servers write them, and what becomes of them in each era.

use bytes::Bytes;
use moongate_jsonrpc::json::ValueChange;

use super::*;

fn item(json: &str) -> Arc<JsonObject> {
    Arc::new(JsonObject::parse(Bytes::copy_from_slice(json.as_bytes())).unwrap())
}

/// Returns the definition for clients of both eras.
fn definition(checked: &CheckedDefinition, given: &Arc<JsonObject>) -> Arc<JsonObject> {
    checked.mended.clone().unwrap_or_else(|| given.clone())
}

fn mended(kind: ItemKind, json: &str) -> String {
    let checked =
        check_definition(kind, &item(json)).unwrap_or_else(|reason| panic!("{json}: {reason}"));
    assert!(!checked.mends.is_empty(), "{json}");
    String::from_utf8(checked.mended.unwrap().bytes().to_vec()).unwrap()
}

/// Returns a tool as legacy clients get it, with the reasons.
fn legacy(json: &str) -> (String, Vec<String>) {
    let given = item(json);
    let checked = check_definition(ItemKind::Tools, &given).unwrap();
    let LegacyForm::Mended(mend) = &checked.legacy else {
        panic!("{json}: {:?}", checked.legacy)
    };
    let listed = mend
        .apply(ItemKind::Tools, &definition(&checked, &given).to_raw())
        .unwrap();
    (
        String::from_utf8(listed.bytes().to_vec()).unwrap(),
        mend.reasons.clone(),
    )
}

#[test]
fn a_bad_schema_is_repaired_or_left_out_alone() {
    let repaired = [
        (r#"{"name":"a"}"#, r#"{"type":"object"}"#),
        (r#"{"name":"a","inputSchema":null}"#, r#"{"type":"object"}"#),
        (r#"{"name":"a","inputSchema":{}}"#, r#"{"type":"object"}"#),
        (
            r#"{"name":"a","inputSchema":{"properties":{"x":{}}}}"#,
            r#"{"properties":{"x":{}},"type":"object"}"#,
        ),
        (
            r#"{"name":"a","inputSchema":{"type":"object","anyOf":[{}]}}"#,
            r#"{"type":"object","anyOf":[{}]}"#,
        ),
    ];
    for (given, schema) in repaired {
        let given = item(given);
        let checked = check_definition(ItemKind::Tools, &given).unwrap();
        assert_eq!(
            definition(&checked, &given)
                .get("inputSchema")
                .unwrap()
                .bytes(),
            schema.as_bytes()
        );
    }
    let deep = format!(
        r#"{{"name":"a","inputSchema":{}{}}}"#,
        r#"{"x":"#.repeat(500),
        "1".to_owned() + &"}".repeat(500)
    );
    let wrong = [
        r#"{"inputSchema":{"type":"object"}}"#,
        r#"{"name":"","inputSchema":{}}"#,
        r#"{"name":7,"inputSchema":{}}"#,
        r#"{"name":"a","inputSchema":[]}"#,
        r#"{"name":"a","inputSchema":"object"}"#,
        r#"{"name":"a","inputSchema":{"type":"string"}}"#,
        r#"{"name":"a","inputSchema":{"type":["object","null"]}}"#,
        r#"{"name":"a","inputSchema":{"type":"object","type":"object"}}"#,
        &deep,
    ];
    for given in wrong {
        assert!(
            check_definition(ItemKind::Tools, &item(given)).is_err(),
            "{}",
            &given[..given.len().min(80)]
        );
    }
}

#[test]
fn what_clients_take_is_not_touched() {
    let many = (0..2000)
        .map(|n| format!(r#""p{n}":{{}}"#))
        .collect::<Vec<_>>()
        .join(",");
    let many =
        format!(r#"{{"name":"a","inputSchema":{{"type":"object","properties":{{{many}}}}}}}"#);
    let tools = [
        r#"{ "name" : "a", "inputSchema": {"type": "object", "maximum": 1e400}, "x": null }"#,
        r#"{"name":"a","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"x":{"pattern":"(?<=a)b"}}}}"#,
        r#"{"name":"a","description":"\ud83d\ude00","inputSchema":{"type":"object"},"annotations":{},"_meta":{"a":null},"icons":[]}"#,
        &many,
    ];
    for given in tools {
        let given = item(given);
        let checked = check_definition(ItemKind::Tools, &given).unwrap();
        assert!(
            checked.mended.is_none() && checked.mends.is_empty(),
            "{given:?}"
        );
        assert_eq!(checked.legacy, LegacyForm::Same, "{given:?}");
    }
}

/// Members of a tool, and what they become. An empty text means that the member is dropped.
const MENDED_TOOLS: [(&str, &str); 13] = [
    (r#""description":null"#, ""),
    (r#""title":7"#, r#""title":"7""#),
    (r#""_meta":[]"#, ""),
    (
        r#""annotations":{"title":null,"readOnlyHint":"true","x":null}"#,
        r#""annotations":{"readOnlyHint":true,"x":null}"#,
    ),
    (
        r#""annotations":{"idempotentHint":0,"openWorldHint":"perhaps"}"#,
        r#""annotations":{"idempotentHint":false}"#,
    ),
    (r#""annotations":"none""#, ""),
    (
        r#""icons":["https://example.com/a.png"]"#,
        r#""icons":[{"src":"https://example.com/a.png"}]"#,
    ),
    (
        r#""icons":{"src":"a","sizes":"any","theme":"blue"}"#,
        r#""icons":[{"src":"a","sizes":["any"]}]"#,
    ),
    (r#""icons":[null,{"sizes":[]}]"#, ""),
    (
        r#""execution":{"taskSupport":"sometimes"}"#,
        r#""execution":{}"#,
    ),
    (r#""outputSchema":[]"#, ""),
    (
        r#""outputSchema":{"$schema":null,"type":"array"}"#,
        r#""outputSchema":{"type":"array"}"#,
    ),
    (r#""description":"\ud800""#, r#""description":"\ufffd""#),
];

/// Other definitions, and what they become.
const MENDED_ITEMS: [(ItemKind, &str, &str); 6] = [
    (
        ItemKind::Resources,
        r#"{"uri":"x:y"}"#,
        r#"{"uri":"x:y","name":"x:y"}"#,
    ),
    (
        ItemKind::Resources,
        r#"{"uri":"x:y","name":3,"size":"10"}"#,
        r#"{"uri":"x:y","name":"3","size":10}"#,
    ),
    (
        ItemKind::Resources,
        r#"{"uri":"x:y","name":"a","size":1.5,"mimeType":null}"#,
        r#"{"uri":"x:y","name":"a"}"#,
    ),
    (
        ItemKind::Templates,
        r#"{"uriTemplate":"x:{y}","name":"a","annotations":{"audience":"user","priority":7,"lastModified":"today"}}"#,
        r#"{"uriTemplate":"x:{y}","name":"a","annotations":{"audience":["user"]}}"#,
    ),
    (
        ItemKind::Prompts,
        r#"{"name":"a","arguments":{}}"#,
        r#"{"name":"a"}"#,
    ),
    (
        ItemKind::Prompts,
        r#"{"name":"a","arguments":["b",{"name":"c","required":"yes","title":null}]}"#,
        r#"{"name":"a","arguments":[{"name":"b"},{"name":"c","required":true}]}"#,
    ),
];

#[test]
fn members_with_a_clear_meaning_are_mended() {
    let rest = r#","inputSchema":{"type":"object"}}"#;
    for (given, expected) in MENDED_TOOLS {
        let expected = if expected.is_empty() {
            String::new()
        } else {
            format!(",{expected}")
        };
        let given = mended(ItemKind::Tools, &format!(r#"{{"name":"a",{given}{rest}"#));
        assert_eq!(given, format!(r#"{{"name":"a"{expected}{rest}"#));
    }
    for (kind, given, expected) in MENDED_ITEMS {
        assert_eq!(mended(kind, given), expected);
    }
}

#[test]
fn what_has_no_clear_meaning_is_left_out() {
    for (kind, given) in [
        (ItemKind::Prompts, r#"{"name":"a","arguments":"b"}"#),
        (
            ItemKind::Prompts,
            r#"{"name":"a","arguments":[{"description":"b"}]}"#,
        ),
        (ItemKind::Prompts, r#"{"name":"a","arguments":[[]]}"#),
        (ItemKind::Resources, r#"{"name":"a"}"#),
        (ItemKind::Templates, r#"{"uri":"x:y","name":"a"}"#),
    ] {
        assert!(check_definition(kind, &item(given)).is_err(), "{given}");
    }
}

#[test]
fn what_only_legacy_clients_refuse_changes_only_for_them() {
    let cases = [
        (
            r#""inputSchema":{"type":"object","properties":[]}"#,
            r#""inputSchema":{"type":"object","properties":{}}"#,
        ),
        (
            r#""inputSchema":{"type":"object","properties":{"a":true,"b":false,"c":"string","d":{"x":true}},"required":"a"}"#,
            r#""inputSchema":{"type":"object","properties":{"a":{},"b":{"not":{}},"c":{"type":"string"},"d":{"x":true}},"required":["a"]}"#,
        ),
        (
            r##""inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"x":{"$ref":"#/$defs/y"}}}"##,
            r#""inputSchema":{"type":"object"}"#,
        ),
    ];
    for (given, expected) in cases {
        let (listed, reasons) = legacy(&format!(r#"{{"name":"a",{given}}}"#));
        assert_eq!(
            listed,
            format!(r#"{{"name":"a",{expected}}}"#),
            "{reasons:?}"
        );
    }
    let left_out = [
        (
            ItemKind::Tools,
            r#"{"name":"a","inputSchema":{"type":"object","properties":{"a":7}}}"#,
        ),
        (ItemKind::Resources, r#"{"uri":"no url","name":"a"}"#),
    ];
    for (kind, given) in left_out {
        let checked = check_definition(kind, &item(given)).unwrap();
        assert!(
            checked.mends.is_empty() && matches!(checked.legacy, LegacyForm::LeftOut(_)),
            "{given}"
        );
    }
}

#[test]
fn an_output_schema_is_judged_as_legacy_clients_are_listed_it() {
    let members: Vec<String> = (0..2000).map(|n| format!(r#""x{n}":0"#)).collect();
    let many = format!(r#"{{"type":"array",{}}}"#, members.join(","));
    let dropped = [
        // At the root it is right, and below another one it is not.
        r#"{"$async":true,"type":"array"}"#,
        r##"{"items":{"$ref":"#"},"$async":true}"##,
        r#"{"anyOf":[{"pattern":"("}]}"#,
        // Neither can be wrapped.
        r#"{"type":"array","items":{},"items":{}}"#,
        &many,
    ];
    let rest = r#"{"name":"a","inputSchema":{"type":"object"}"#;
    for schema in dropped {
        let (listed, reasons) = legacy(&format!(r#"{rest},"outputSchema":{schema}}}"#));
        assert_eq!(listed, format!("{rest}}}"), "{reasons:?}");
    }
    let kept = [
        r#"{"$async":true,"type":"object"}"#,
        r##"{"type":"array","items":{"$ref":"#"}}"##,
        r#"{"items":{}}"#,
    ];
    for schema in kept {
        let checked = check_definition(
            ItemKind::Tools,
            &item(&format!(r#"{rest},"outputSchema":{schema}}}"#)),
        )
        .unwrap();
        assert_eq!(checked.legacy, LegacyForm::Same, "{schema}");
    }
}

#[test]
fn a_list_for_legacy_clients_judges_no_output_schema_again() {
    let tool = r#"{"name":"a","inputSchema":{"type":"object","properties":[]},"outputSchema":{"type":"object"}}"#;
    let checked = check_definition(ItemKind::Tools, &item(tool)).unwrap();
    let LegacyForm::Mended(mend) = checked.legacy else {
        panic!("{:?}", checked.legacy)
    };
    // Judged again, this one would be dropped.
    let other = tool.replace(r#"{"type":"object"}"#, r#"{"type":"object","pattern":"("}"#);
    let listed = mend.apply(ItemKind::Tools, &item(&other).to_raw()).unwrap();
    assert_eq!(
        String::from_utf8_lossy(listed.bytes()),
        other.replace("[]", "{}")
    );
}

#[test]
fn reasons_are_short_and_few() {
    let many: Vec<String> = (0..500)
        .map(|n| format!(r#""{}{n}":true"#, "p".repeat(500)))
        .collect();
    let given = format!(
        r#"{{"name":"a","inputSchema":{{"type":"object","properties":{{{}}}}}}}"#,
        many.join(",")
    );
    let (_, reasons) = legacy(&given);
    assert!(
        reasons.len() == 5 && reasons.iter().all(|reason| reason.len() < 200),
        "{reasons:?}"
    );
    assert_eq!(reasons[4], "and 496 more");
}

/// Verdicts of ajv 8.20 on schemas, with the options of the TypeScript SDK 1.
const AJV_VERDICTS: &[(bool, &str)] = &[
    (
        false,
        r##"{"properties":{"x":{"$ref":"#/$defs/a"}},"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"type":"object"}"##,
    ),
    (
        true,
        r##"{"properties":{"x":{"$ref":"#/$defs/a~1b"}},"$defs":{"a/b":{}},"type":"object"}"##,
    ),
    (
        true,
        r##"{"properties":{"x":{"$ref":"#/$defs/a%20b"}},"$defs":{"a b":{}},"type":"object"}"##,
    ),
    (
        true,
        r##"{"properties":{"x":{"$ref":"#/properties/y/anyOf/0"},"y":{"anyOf":[{"type":"string"}]}},"type":"object"}"##,
    ),
    (
        false,
        r##"{"properties":{"x":{"$ref":"https://example.com/other.json"}},"type":"object"}"##,
    ),
    (
        true,
        r##"{"$id":"https://example.com/s","properties":{"x":{"$ref":"s#/definitions/y"}},"definitions":{"y":{}},"type":"object"}"##,
    ),
    (
        true,
        r##"{"definitions":{"unused":{"type":"nonsense"}},"type":"object"}"##,
    ),
    (
        false,
        r##"{"definitions":{"used":{"type":"nonsense"}},"properties":{"x":{"$ref":"#/definitions/used"}},"type":"object"}"##,
    ),
    (
        false,
        r##"{"properties":{"x":{"exclusiveMinimum":true,"minimum":0}},"type":"object"}"##,
    ),
    (
        false,
        r##"{"properties":{"x":{"enum":[]}},"type":"object"}"##,
    ),
    (
        true,
        r##"{"properties":{"x":{"type":"string","nullable":true}},"type":"object"}"##,
    ),
    (
        false,
        r##"{"properties":{"x":{"nullable":true}},"type":"object"}"##,
    ),
    (
        false,
        r##"{"properties":{"x":{"id":"x"}},"type":"object"}"##,
    ),
    (
        true,
        r##"{"properties":{"id":{"type":"string"}},"type":"object"}"##,
    ),
    (
        true,
        r##"{"properties":{"x":{"format":"no-such-format"}},"type":"object"}"##,
    ),
    (true, r##"{"patternProperties":{"(":{}},"type":"object"}"##),
    (
        false,
        r##"{"patternProperties":{"(":{"type":"string"}},"type":"object"}"##,
    ),
    (
        false,
        r##"{"patternProperties":{"(":{}},"additionalProperties":{"type":"string"},"type":"object"}"##,
    ),
    (
        false,
        r##"{"properties":{"x":{"properties":{"y":null}}},"type":"object"}"##,
    ),
    (
        false,
        r##"{"properties":{"x":{"items":5}},"type":"object"}"##,
    ),
    (
        true,
        r##"{"properties":{"x":{"if":{"pattern":"("}}},"type":"object"}"##,
    ),
    (
        false,
        r##"{"properties":{"x":{"if":{"pattern":"("},"then":{"type":"string"}}},"type":"object"}"##,
    ),
    (
        false,
        r##"{"properties":{"x":{"$anchor":"1x"}},"type":"object"}"##,
    ),
    (
        false,
        r##"{"properties":{"x":{"$id":"a"},"y":{"$id":"a"}},"type":"object"}"##,
    ),
    (
        false,
        r##"{"properties":{"x":{"$id":"a","$ref":"#/definitions/k","definitions":{"k":{}}}},"type":"object"}"##,
    ),
    (
        false,
        r##"{"properties":{"x":{"type":"array","items":{"$id":"a","$ref":"#/definitions/k","definitions":{"k":{}}}}},"type":"object"}"##,
    ),
    (
        true,
        r##"{"$id":"a","$ref":"#/definitions/k","definitions":{"k":{}},"type":"object"}"##,
    ),
    (
        true,
        r##"{"properties":{"x":{"$id":"a","$ref":"b#/definitions/k"},"y":{"$id":"b","definitions":{"k":{}}}},"type":"object"}"##,
    ),
    (
        false,
        r##"{"properties":{"x":{"$ref":"a#/definitions/k"},"z":{"$id":"a","$ref":"b"},"y":{"$id":"b","definitions":{"k":{}}}},"type":"object"}"##,
    ),
    (
        true,
        r##"{"properties":{"x":{"default":{"$id":7}}},"type":"object"}"##,
    ),
    (
        true,
        r##"{"unevaluatedProperties":7,"prefixItems":"x","$dynamicRef":1,"type":"object"}"##,
    ),
    (
        true,
        r##"{"properties":{"x":{"anyOf":[true,{"pattern":"("}]}},"type":"object"}"##,
    ),
    (
        false,
        r##"{"properties":{"x":{"oneOf":[true,{"pattern":"("}]}},"type":"object"}"##,
    ),
    (false, r##"{"required":"x","type":"object"}"##),
    (true, r##"{"required":[1],"type":"object"}"##),
];

/// Returns true if legacy clients get this output schema.
fn is_kept(schema: &str) -> bool {
    let raw = RawJson::parse(Bytes::copy_from_slice(schema.as_bytes())).unwrap();
    output_schema::for_legacy(&raw, &mut MendNotes::default()) != ValueChange::Drop
}

#[test]
fn output_schemas_are_compiled_as_ajv_compiles_them() {
    for (compiles, schema) in AJV_VERDICTS {
        assert_eq!(is_kept(schema), *compiles, "{schema}");
    }
    // References in a row, as deep as the compiler's stack allows, and deeper.
    for (length, compiles) in [(150, true), (2000, false)] {
        let links = (0..length).map(|n| {
            format!(
                r##""a{n}":{{"properties":{{"x":{{"$ref":"#/$defs/a{}"}}}}}}"##,
                n + 1
            )
        });
        let links = links.collect::<Vec<_>>().join(",");
        let schema = format!(
            r##"{{"type":"object","$ref":"#/$defs/a0","$defs":{{{links},"a{length}":{{}}}}}}"##
        );
        assert_eq!(is_kept(&schema), compiles, "{length}");
    }
}

/// Returns what legacy clients miss of an output schema, and why.
fn dropped_for(schema: &str) -> Option<String> {
    assert!(
        schema.len() <= output_schema::SCHEMA_MAX && schema.len() > output_schema::SCHEMA_MAX / 2
    );
    let raw = RawJson::parse(Bytes::copy_from_slice(schema.as_bytes())).unwrap();
    let mut notes = MendNotes::default();
    let is_dropped = output_schema::for_legacy(&raw, &mut notes) == ValueChange::Drop;
    is_dropped.then(|| notes.into_texts().join(";"))
}

fn listed_refs(reference: &str, count: usize) -> String {
    vec![format!(r#"{{"$ref":"{reference}"}}"#); count].join(",")
}

#[test]
fn the_largest_output_schemas_take_linear_work() {
    // Many references to one schema with many members that have no rules.
    let unknown = (0..35_000)
        .map(|n| format!(r#""a{n}":0"#))
        .collect::<Vec<_>>()
        .join(",");
    let refs = listed_refs("#/x", 35_000);
    let target = format!(r#"{{"type":"object","x":{{{unknown}}},"allOf":[{refs}]}}"#);
    let lone = format!(
        r##"{{"type":"object","x":{{{unknown},"$ref":"#/y"}},"y":{{"type":"object"}},"allOf":[{refs}]}}"##
    );
    // Many references to a reference with a long way.
    let keys: Vec<String> = (0..100)
        .map(|n| format!("{n}{}", "k".repeat(3000)))
        .collect();
    let nested = keys
        .iter()
        .rev()
        .fold(r#"{"type":"object"}"#.to_owned(), |inner, key| {
            format!(r#"{{"{key}":{inner}}}"#)
        });
    let way = keys.join("/");
    let refs = listed_refs("#/a", 20_000);
    let long_way = format!(
        r##"{{"type":"object","n":{nested},"a":{{"$ref":"#/n/{way}"}},"allOf":[{refs}]}}"##
    );
    // Many references that are resolved against a long identifier.
    let host = "\u{4e00}\u{4e07}".repeat(100);
    let refs = listed_refs("b", 50_000);
    let based = format!(
        r#"{{"type":"object","$id":"http://{host}/a","definitions":{{"b":{{"$id":"b","type":"object"}}}},"allOf":[{refs}]}}"#
    );
    // Groups that could each be the name of all that follows.
    let names: Vec<String> = (0..240)
        .map(|n| format!(r#"{{"pattern":"{n}{}"}}"#, "(?<".repeat(1300)))
        .collect();
    let names = format!(
        r#"{{"type":"object","if":{{"allOf":[{}]}}}}"#,
        names.join(",")
    );
    for schema in [target, lone, long_way, based, names] {
        assert_eq!(dropped_for(&schema), None, "{}", &schema[..80]);
    }
}

#[test]
fn an_output_schema_that_takes_too_many_steps_is_dropped() {
    // One schema within fifty resources is compiled once for each of them.
    let part = format!(
        r#"{{"allOf":[{}]}}"#,
        vec![r#"{"type":"string","minLength":1}"#; 25_000].join(",")
    );
    let resources = (0..50).rev().fold(part, |inner, n| {
        format!(r#"{{"$id":"r{n}","properties":{{"definitions":{inner}}}}}"#)
    });
    let refs: Vec<String> = (0..50)
        .map(|n| {
            let way = "/properties/definitions".repeat(50 - n);
            format!(r#"{{"$ref":"r{n}#{way}"}}"#)
        })
        .collect();
    let resources = format!(
        r#"{{"type":"object","x":{resources},"allOf":[{}]}}"#,
        refs.join(",")
    );
    // Properties are the dearest part of patterns.
    let many: Vec<String> = (0..250)
        .map(|n| format!(r#"{{"pattern":"{n}{}"}}"#, r"\\p{Any}".repeat(400)))
        .collect();
    let properties = format!(r#"{{"type":"object","anyOf":[{}]}}"#, many.join(","));
    for schema in [resources, properties] {
        let reason = dropped_for(&schema).unwrap_or_default();
        assert!(
            reason.contains("steps to compile: dropped"),
            "{reason} {}",
            &schema[..80]
        );
    }
}
