//! Forms, links and refreshes of a page, as a browser without scripts finds them.
//!
//! Owns the parsing of our pages' HTML. Does not fetch. Invariant: values are those that a browser
//! would send, without entities.

/// Form of a page.
#[derive(Clone, Debug)]
pub(super) struct PageForm {
    /// Address that it is sent to, as it is written.
    pub(super) action: String,
    /// Hidden fields.
    pub(super) fields: Vec<(String, String)>,
    pub(super) buttons: Vec<FormButton>,
}

/// Button that sends a form.
#[derive(Clone, Debug)]
pub(super) struct FormButton {
    pub(super) label: String,
    /// Name and value, if it has a name.
    pub(super) field: Option<(String, String)>,
}

/// Lists the forms of a page.
pub(super) fn forms(html: &str) -> Vec<PageForm> {
    let parts = html.split("<form").skip(1);
    parts
        .map(|part| form(part.split("</form>").next().unwrap()))
        .collect()
}

fn form(part: &str) -> PageForm {
    let (head, inside) = part.split_once('>').unwrap();
    let method = attribute(head, "method").unwrap_or_default();
    assert!(method.eq_ignore_ascii_case("post"), "{head}");
    let mut form = PageForm {
        action: attribute(head, "action").unwrap_or_default(),
        fields: Vec::new(),
        buttons: Vec::new(),
    };
    for tag in tags(inside, "input") {
        let field = named_value(tag);
        match attribute(tag, "type").as_deref() {
            Some("submit") => form.buttons.push(FormButton {
                label: attribute(tag, "value").unwrap_or_default(),
                field,
            }),
            _ => form.fields.extend(field),
        }
    }
    for part in inside.split("<button").skip(1) {
        let (head, rest) = part.split_once('>').unwrap();
        let label = rest.split("</button>").next().unwrap();
        form.buttons.push(FormButton {
            label: text_of(label),
            field: named_value(head),
        });
    }
    form
}

fn named_value(tag: &str) -> Option<(String, String)> {
    let value = attribute(tag, "value").unwrap_or_default();
    Some((attribute(tag, "name")?, value))
}

/// Lists the addresses of the links of a page.
pub(super) fn links(html: &str) -> Vec<String> {
    tags(html, "a")
        .filter_map(|tag| attribute(tag, "href"))
        .collect()
}

/// Finds the address that a page opens automatically.
pub(super) fn refresh(html: &str) -> Option<String> {
    let is_refresh = |tag: &&str| {
        attribute(tag, "http-equiv").is_some_and(|value| value.eq_ignore_ascii_case("refresh"))
    };
    let tag = tags(html, "meta").find(is_refresh)?;
    refresh_address(&attribute(tag, "content")?)
}

/// Reads the value of a refresh, such as `0;url=https://example.com`.
pub(super) fn refresh_address(value: &str) -> Option<String> {
    let (_, address) = value.split_once(';')?;
    let address = address.trim();
    let start = address.get(..4)?;
    assert!(start.eq_ignore_ascii_case("url="), "{value}");
    Some(address[4..].trim_matches(['\'', '"']).to_owned())
}

/// Lists the insides of tags of a name.
fn tags<'a>(html: &'a str, name: &'static str) -> impl Iterator<Item = &'a str> {
    html.split('<').skip(1).filter_map(move |part| {
        let tag = part.strip_prefix(name)?.split('>').next()?;
        tag.starts_with(char::is_whitespace).then_some(tag)
    })
}

/// Finds the value of an attribute, which is in double quotes.
fn attribute(tag: &str, name: &str) -> Option<String> {
    let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
    Some(unescape(rest.split('"').next()?))
}

/// Returns the text of a part of a page, without its tags.
pub(super) fn text_of(html: &str) -> String {
    let mut parts = html.split('<');
    let first = parts.next().unwrap_or_default().to_owned();
    let text = parts.fold(first, |text, part| {
        text + part.split_once('>').map_or("", |(_, rest)| rest)
    });
    unescape(text.trim())
}

fn unescape(text: &str) -> String {
    let pairs = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#39;", "'"),
    ];
    let text = pairs
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    text.replace("&amp;", "&")
}

#[test]
fn a_form_is_read_as_a_browser_would() {
    let html = concat!(
        r#"<form method="post" action="/a?b=1&amp;c=2"><input type="hidden" name="r" "#,
        r#"value="x&quot;y"><button name="go" value="yes">Approve <b>it</b></button></form>"#,
        r#"<a href="https://x/?a&amp;b">x</a><meta http-equiv="refresh" content="0;url=/next">"#
    );
    let form = &forms(html)[0];
    assert_eq!(form.action, "/a?b=1&c=2");
    assert_eq!(form.fields, [("r".to_owned(), "x\"y".to_owned())]);
    assert_eq!(form.buttons[0].label, "Approve it");
    assert_eq!(links(html), ["https://x/?a&b"]);
    assert_eq!(refresh(html).as_deref(), Some("/next"));
}
