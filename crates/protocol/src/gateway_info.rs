//! Gateway's own `Implementation`, as clients and servers see it.
//!
//! Owns its name, version and icon. Does not read the config. Invariant: servers get it without a
//! title of the config.

use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};

/// Returns the gateway's own `Implementation`, for servers and clients.
pub fn gateway_info() -> RawJson {
    const JSON: &str = concat!(
        r#"{"name":"moongate","title":"Moongate","version":""#,
        env!("CARGO_PKG_VERSION"),
        r#""}"#
    );
    RawJson::literal(JSON)
}

/// Returns the gateway's `Implementation` for the endpoint of a server with a title or an icon in
/// the config.
///
/// 2025-11-25/basic/index.mdx, `icons`: "Icons are represented as an array of `Icon` objects".
pub fn gateway_info_with(title: Option<&str>, icon: Option<&str>) -> RawJson {
    let own = gateway_info();
    let Some(mut info) = own
        .as_object()
        .filter(|_| title.is_some() || icon.is_some())
    else {
        return own;
    };
    if let Some(title) = title {
        info.set(ByteString::literal("title"), RawJson::string(title));
    }
    if let Some(icon) = icon {
        info.set(
            ByteString::literal("icons"),
            RawJson::array(
                [JsonObject::new()
                    .with("src", RawJson::string(icon))
                    .to_raw()]
                .iter(),
            ),
        );
    }
    info.to_raw()
}
