//! Routes of the API, each declared once.
//!
//! Owns method, path, role and description of each. Does not answer requests. Invariant: `openapi.json` describes exactly
//! these routes, since it is made of them. A server called `preview` has the routes of `/servers/{name}`.

use std::sync::Arc;

use axum::routing::{MethodRouter, delete, get, patch, post};
use axum::{Extension, Router};

use crate::admin_state::AdminState;
use crate::query_map::DeclaredQuery;
use crate::{
    calls, config_change, config_view, connect, doctor, endpoint_cost, events, explain, keys, new_servers, openapi,
    popular, search, server_actions, server_items, server_preview, sessions, signin_routes, status, try_call,
};
use moongate_access::auth::AdminRole;

/// Route of the API.
pub(super) struct ApiRoute {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// Role that it needs: without keys, a request from this machine. `None`: it takes keys, so it needs none.
    pub(super) role: Option<AdminRole>,
    pub(super) summary: &'static str,
    /// Query parameters, each with its meaning.
    pub(super) query: &'static [(&'static str, &'static str)],
    /// Members of the body, each with its JSON type and its meaning. None without a body.
    pub(super) body: &'static [(&'static str, &'static str, &'static str)],
    /// Status of an answer without an error.
    pub(super) done: u16,
    /// True if it edits the config's file, so that it takes `If-Match` and has the errors of edits.
    pub(super) is_edit: bool,
    handler: fn() -> MethodRouter<Arc<AdminState>>,
}

impl ApiRoute {
    const fn view(
        method: &'static str,
        path: &'static str,
        summary: &'static str,
        handler: fn() -> MethodRouter<Arc<AdminState>>,
    ) -> Self {
        ApiRoute {
            method,
            path,
            role: Some(AdminRole::View),
            summary,
            query: &[],
            body: &[],
            done: 200,
            is_edit: false,
            handler,
        }
    }

    const fn operate(
        method: &'static str,
        path: &'static str,
        summary: &'static str,
        handler: fn() -> MethodRouter<Arc<AdminState>>,
    ) -> Self {
        ApiRoute { role: Some(AdminRole::Operate), ..ApiRoute::view(method, path, summary, handler) }
    }

    const fn open(
        method: &'static str,
        path: &'static str,
        summary: &'static str,
        handler: fn() -> MethodRouter<Arc<AdminState>>,
    ) -> Self {
        ApiRoute { role: None, ..ApiRoute::view(method, path, summary, handler) }
    }

    const fn body(self, body: &'static [(&'static str, &'static str, &'static str)]) -> Self {
        ApiRoute { body, ..self }
    }

    const fn edit(self) -> Self {
        ApiRoute { is_edit: true, ..self }
    }

    const fn creates(self) -> Self {
        ApiRoute { done: 201, ..self }
    }

    const fn query(self, query: &'static [(&'static str, &'static str)]) -> Self {
        ApiRoute { query, ..self }
    }
}

/// All routes of the API.
pub(super) const ROUTES: &[ApiRoute] = &[
    ApiRoute::view("GET", "/api/v1/openapi.json", "This description of the API.", || get(openapi::openapi)),
    ApiRoute::open("POST", "/api/v1/signin", "Trades a key or a ticket for a cookie.", || post(signin_routes::sign_in))
        .body(&[("key", "string", "A key of admin.keys."), ("ticket", "string", "A ticket, in place of a key.")]),
    ApiRoute::open("POST", "/api/v1/signout", "Ends the session of a cookie.", || post(signin_routes::sign_out)),
    ApiRoute::view("POST", "/api/v1/tickets", "Makes a ticket, which signs a browser in once.", || {
        post(signin_routes::make_ticket)
    }),
    ApiRoute::view("GET", "/api/v1/me", "Name and role of the key that a request has.", || get(signin_routes::me)),
    ApiRoute::view("GET", "/api/v1/status", "The state of every server, and why.", || get(status::status)),
    ApiRoute::view("GET", "/api/v1/events", "Changes as they happen, as an event stream.", || get(events::events)),
    ApiRoute::operate("POST", "/api/v1/servers", "Adds servers to the config, as one edit.", || {
        post(new_servers::add_servers)
    })
    .edit()
    .creates()
    .body(&[
        ("servers", "object", "Settings of each server, by its name."),
        ("from", "object", "A source as for the preview, in place of `servers`."),
        ("only", "array", "Names of the servers to take from the source."),
        ("names", "object", "Other names for them."),
    ]),
    ApiRoute::operate("POST", PREVIEW_PATH, "Shows what adding servers would do, and writes nothing.", || {
        post(server_preview::preview)
    })
    .body(&[
        ("text", "string", "A client's config, a server.json, command lines, or a URL."),
        ("url", "string", "Address of a server."),
        ("headers", "object", "Headers for it."),
        ("popular", "string", "Name of a server of /api/v1/popular."),
        ("args", "array", "Its arguments."),
        ("probe", "boolean", "Whether to connect once."),
    ]),
    ApiRoute::view("GET", "/api/v1/servers/{name}", "The state of one server.", || get(status::server)),
    ApiRoute::operate(
        "PATCH",
        "/api/v1/servers/{name}",
        "Switches a server or tools, or sets keys, in the config.",
        || patch(config_change::patch_server),
    )
    .edit()
    .body(&[
        ("enabled", "boolean", "Whether the server is on."),
        ("tools", "object", "`on` and `off`: names of tools, as the server has them."),
        ("set", "object", "Keys of its entry, with new values. Null removes a key."),
    ]),
    ApiRoute::operate("DELETE", "/api/v1/servers/{name}", "Removes a server from the config.", || {
        delete(config_change::remove_server)
    })
    .edit(),
    ApiRoute::view("GET", "/api/v1/servers/{name}/items", "Tools, resources and prompts of a server.", || {
        get(server_items::items)
    }),
    ApiRoute::view("GET", "/api/v1/search", "Tools that a model would find at an endpoint.", || get(search::search))
        .query(&[
            ("q", "What the tool should do, in a few words."),
            ("endpoint", "Name of a view or server. Default: all servers."),
            ("limit", "Maximum number of tools."),
        ]),
    ApiRoute::view("GET", "/api/v1/calls", "Recent calls, newest first: names and sizes, never values.", || {
        get(calls::calls)
    })
    .query(&[
        ("limit", "Maximum number of calls."),
        ("server", "Only calls of this server."),
        ("state", "Only calls in this state."),
    ]),
    ApiRoute::operate("POST", "/api/v1/calls/{id}/cancel", "Cancels a running call.", || post(calls::cancel)),
    ApiRoute::view("GET", "/api/v1/sessions", "Sessions of clients, with ids of our own.", || get(sessions::sessions)),
    ApiRoute::operate("DELETE", "/api/v1/sessions/{id}", "Ends a session.", || delete(sessions::end)),
    ApiRoute::view("GET", "/api/v1/clients", "Clients that can use the gateway, and those that do.", || {
        get(connect::clients)
    }),
    ApiRoute::view("GET", "/api/v1/connect", "The steps that connect a client.", || get(connect::connect)).query(&[
        ("client", "Id of the client."),
        ("endpoint", "Name or path of the endpoint; all servers without it."),
    ]),
    ApiRoute::view("GET", "/api/v1/config", "The files of the config, without secrets, and its last reload.", || {
        get(config_view::config)
    }),
    ApiRoute::operate("POST", "/api/v1/config/undo", "Restores the file as it was before the last edit.", || {
        post(config_change::undo)
    })
    .edit()
    .body(&[("etag", "string", "Contents that the file is expected to have.")]),
    ApiRoute::view(
        "GET",
        "/api/v1/keys",
        "Keys of clients and operators, each with the first digits of its hash.",
        || get(keys::keys),
    ),
    ApiRoute::operate(
        "POST",
        "/api/v1/keys",
        "Makes a key, shows it once, and writes its hash into the config.",
        || post(keys::make_key),
    )
    .edit()
    .creates()
    .body(&[
        ("name", "string", "Name of the key."),
        ("list", "string", "`clients` (default) or `operators`."),
        ("role", "string", "`view` or `operate`, for operators."),
        ("views", "array", "Views and servers that the key opens."),
        ("tools", "array", "Patterns of tools that it may call."),
        ("rate", "string", "Calls in a time, such as 100/min."),
        ("expires", "string", "Date or time at which it ends."),
    ]),
    ApiRoute::operate("DELETE", "/api/v1/keys/{name}", "Removes a key from the config.", || delete(keys::remove_key))
        .edit()
        .query(&[
            ("list", "`clients` (default) or `operators`."),
            ("closed", "`true`: without another key of a client, nobody may use the endpoint (`auth.required`)."),
        ]),
    ApiRoute::view("GET", "/api/v1/explain", "Whether a principal may call a tool, and which rules decide.", || {
        get(explain::explain)
    })
    .query(&[
        ("principal", "Name of the key; `anybody` if there are no keys."),
        ("tool", "Name of the tool, as clients of the endpoint see it."),
        ("endpoint", "Name of a view or server; none for `/mcp`."),
    ]),
    ApiRoute::view("GET", "/api/v1/popular", "Servers that need no more than their name to be added.", || {
        get(popular::popular)
    }),
    ApiRoute::view("GET", "/api/v1/context", "Cost of an endpoint's tools in every conversation.", || {
        get(endpoint_cost::context)
    })
    .query(&[("endpoint", "Name or path of a view or server. Default: all servers.")]),
    ApiRoute::view("GET", "/api/v1/doctor", "What is wrong with the config, this machine and its servers.", || {
        get(doctor::doctor)
    }),
    ApiRoute::view("GET", "/api/v1/plan", "The changes that a reload would make.", || get(server_actions::plan)),
    ApiRoute::operate("POST", "/api/v1/reload", "Reads the config again and applies it.", || {
        post(server_actions::reload)
    }),
    ApiRoute::operate("POST", "/api/v1/servers/{name}/restart", "Starts a server anew.", || {
        post(server_actions::restart)
    }),
    ApiRoute::operate("POST", "/api/v1/servers/{name}/refresh", "Asks a server for its lists again.", || {
        post(server_actions::refresh)
    }),
    ApiRoute::operate("POST", "/api/v1/try", "Calls a tool as an operator, and streams its events.", || {
        post(try_call::start)
    })
    .body(&[
        ("server", "string", "Name of the server."),
        ("tool", "string", "Name of the tool, as the server has it."),
        ("arguments", "object", "Arguments of the call."),
    ]),
    ApiRoute::operate("POST", "/api/v1/try/{id}/answer", "Answers a server that asks during such a call.", || {
        post(try_call::answer)
    })
    .body(&[
        ("ask", "string", "Id of the question."),
        ("action", "string", "`accept`, `decline` or `cancel`."),
        ("content", "object", "What the person entered."),
    ]),
    ApiRoute::operate("DELETE", "/api/v1/try/{id}", "Cancels such a call.", || delete(try_call::cancel)),
];

/// Path of the preview, and of a server called so.
const PREVIEW_PATH: &str = "/api/v1/servers/preview";

/// Adds the routes to a router.
pub(super) fn mount(router: Router<Arc<AdminState>>) -> Router<Arc<AdminState>> {
    // The router prefers a path without a name in it, and would refuse all methods but that of the preview.
    let of_server = get(status::server).patch(config_change::patch_server).delete(config_change::remove_server);
    let router = router.route(PREVIEW_PATH, of_server);
    ROUTES.iter().fold(router, |router, route| {
        let declared = Extension(DeclaredQuery(route.query));
        router.route(route.path, (route.handler)().route_layer(declared))
    })
}

#[cfg(test)]
mod tests {
    use super::ROUTES;
    use crate::access::OPEN_ROUTES;

    #[test]
    fn only_sign_in_and_sign_out_need_no_key() {
        for route in ROUTES {
            assert_eq!(route.role.is_none(), OPEN_ROUTES.contains(&route.path), "{} {}", route.method, route.path);
        }
        assert!(OPEN_ROUTES.iter().all(|path| ROUTES.iter().any(|route| route.path == *path)));
    }
}
