//! Routes of the API, each declared once.
//!
//! Owns each route's method, path, role, types and description. Does not answer requests.
//! Invariant: `openapi.json` describes exactly these routes, because a test generates it from them.
//! A server called `preview` keeps the routes of `/servers/{name}`.

use std::sync::Arc;

use axum::routing::{MethodRouter, delete, get, patch, post};
use axum::{Extension, Router};

use crate::admin_state::AdminState;
use crate::query_map::DeclaredQuery;
use crate::route_types::{Described, RouteTypes};
use crate::{
    calls, config_change, config_view, connect, doctor, endpoint_cost, event_stream, explain, keys,
    new_servers, openapi, operator_actions, people, popular, search, server_items, server_login,
    server_preview, sessions, sign_in_handlers, status, try_call,
};
use moongate_access::auth::AdminRole;
use moongate_api::{
    ActionReport, CallList, ChangeReport, ClientList, ConfigView, ConnectSteps, EndpointCost,
    FindingList, GatewayStatus, KeyLists, KeyRemovalReport, LoginRequest, LoginStart, LogoutReport,
    NewKey, NewKeyReport, NewServers, PeopleList, PlacedRule, PlanReport, PopularList,
    PreviewRequest, RefreshReport, ReloadReport, RestartReport, RevokeReport, ServerItems,
    ServerPatch, ServerPreview, ServerStatus, SessionList, SignInRequest, SignInTicket,
    SignOutReport, SignedInOperator, ToolExplanation, ToolSearch, TryReply, TryRequest,
    UndoRequest,
};

/// Route of the API.
// The binary serves a file that tests make of the descriptions.
#[cfg_attr(not(test), expect(dead_code))]
pub(super) struct ApiRoute {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// Role that it needs: without keys, a request from this machine. `None`: it takes keys, so it
    /// needs none.
    pub(super) role: Option<AdminRole>,
    pub(super) summary: &'static str,
    /// Query parameters, each with its meaning.
    pub(super) query: &'static [(&'static str, &'static str)],
    pub(super) types: RouteTypes,
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
            types: RouteTypes::NONE,
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
        ApiRoute {
            role: Some(AdminRole::Operate),
            ..ApiRoute::view(method, path, summary, handler)
        }
    }

    const fn open(
        method: &'static str,
        path: &'static str,
        summary: &'static str,
        handler: fn() -> MethodRouter<Arc<AdminState>>,
    ) -> Self {
        ApiRoute {
            role: None,
            ..ApiRoute::view(method, path, summary, handler)
        }
    }

    /// Names the type of the body.
    const fn takes<T: Described>(self) -> Self {
        ApiRoute {
            types: self.types.with_body::<T>(),
            ..self
        }
    }

    /// Names the type of the answer.
    const fn gives<T: Described>(self) -> Self {
        ApiRoute {
            types: self.types.with_answer::<T>(),
            ..self
        }
    }

    const fn edit(self) -> Self {
        ApiRoute {
            is_edit: true,
            ..self
        }
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
    ApiRoute::view(
        "GET",
        "/api/v1/openapi.json",
        "This description of \
        the API.",
        || get(openapi::openapi),
    ),
    ApiRoute::open(
        "POST",
        "/api/v1/signin",
        "Exchanges a key or a ticket for a cookie.",
        || post(sign_in_handlers::sign_in),
    )
    .takes::<SignInRequest>()
    .gives::<SignedInOperator>(),
    ApiRoute::open(
        "POST",
        "/api/v1/signout",
        "Ends the session of a \
        cookie.",
        || post(sign_in_handlers::sign_out),
    )
    .gives::<SignOutReport>(),
    ApiRoute::view(
        "POST",
        "/api/v1/tickets",
        "Creates a ticket that signs a browser in once.",
        || post(sign_in_handlers::make_ticket),
    )
    .gives::<SignInTicket>(),
    ApiRoute::view(
        "GET",
        "/api/v1/me",
        "Name and role of the key that sent the request.",
        || get(sign_in_handlers::me),
    )
    .gives::<SignedInOperator>(),
    ApiRoute::view(
        "GET",
        "/api/v1/status",
        "The state of every server, \
        and why.",
        || get(status::status),
    )
    .gives::<GatewayStatus>(),
    ApiRoute::view(
        "GET",
        "/api/v1/events",
        "Changes as they happen, as an event \
        stream.",
        || get(event_stream::events),
    ),
    ApiRoute::operate(
        "POST",
        "/api/v1/servers",
        "Adds servers to the config, as one edit.",
        || post(new_servers::add_servers),
    )
    .edit()
    .creates()
    .takes::<NewServers>()
    .gives::<ChangeReport>(),
    ApiRoute::operate(
        "POST",
        PREVIEW_PATH,
        "Shows what adding servers would do, without writing anything.",
        || post(server_preview::preview),
    )
    .takes::<PreviewRequest>()
    .gives::<ServerPreview>(),
    ApiRoute::view(
        "GET",
        "/api/v1/servers/{name}",
        "The state of one \
        server.",
        || get(status::server),
    )
    .gives::<ServerStatus>(),
    ApiRoute::operate(
        "PATCH",
        "/api/v1/servers/{name}",
        "Switches a server or tools, or sets keys, in the config.",
        || patch(config_change::patch_server),
    )
    .edit()
    .takes::<ServerPatch>()
    .gives::<ChangeReport>(),
    ApiRoute::operate(
        "DELETE",
        "/api/v1/servers/{name}",
        "Removes a server from the config.",
        || delete(config_change::remove_server),
    )
    .edit()
    .gives::<ChangeReport>(),
    ApiRoute::view(
        "GET",
        "/api/v1/servers/{name}/items",
        "Tools, resources and prompts of a \
        server.",
        || get(server_items::items),
    )
    .gives::<ServerItems>(),
    ApiRoute::view(
        "GET",
        "/api/v1/search",
        "Tools that a model would find at an \
        endpoint.",
        || get(search::search),
    )
    .query(&[
        ("q", "What the tool should do, in a few words."),
        (
            "endpoint",
            "Name of a view or server. Default: all servers.",
        ),
        ("limit", "Maximum number of tools."),
    ])
    .gives::<ToolSearch>(),
    ApiRoute::view(
        "GET",
        "/api/v1/calls",
        "Recent calls, newest first: names and sizes, never \
        values.",
        || get(calls::calls),
    )
    .query(&[
        ("limit", "Maximum number of calls."),
        ("server", "Only calls of this server."),
        ("state", "Only calls in this state."),
    ])
    .gives::<CallList>(),
    ApiRoute::operate(
        "POST",
        "/api/v1/calls/{id}/cancel",
        "Cancels a running \
        call.",
        || post(calls::cancel),
    )
    .gives::<ActionReport>(),
    ApiRoute::view(
        "GET",
        "/api/v1/sessions",
        "Client sessions, with the gateway's own ids.",
        || get(sessions::sessions),
    )
    .gives::<SessionList>(),
    ApiRoute::operate("DELETE", "/api/v1/sessions/{id}", "Ends a session.", || {
        delete(sessions::end)
    })
    .gives::<ActionReport>(),
    ApiRoute::view(
        "GET",
        "/api/v1/people",
        "People's logins, with the client that acts for each.",
        || get(people::people),
    )
    .gives::<PeopleList>(),
    ApiRoute::operate(
        "DELETE",
        "/api/v1/people/{who}",
        "Ends a login by its id, or all logins of a person by name.",
        || delete(people::revoke),
    )
    .gives::<RevokeReport>(),
    ApiRoute::view(
        "GET",
        "/api/v1/clients",
        "Clients that can use the gateway, and those \
        that do.",
        || get(connect::clients),
    )
    .gives::<ClientList>(),
    ApiRoute::view(
        "GET",
        "/api/v1/connect",
        "The steps that connect a \
        client.",
        || get(connect::connect),
    )
    .query(&[
        ("client", "Id of the client."),
        (
            "endpoint",
            "Name or path of the endpoint. Default: all servers.",
        ),
    ])
    .gives::<ConnectSteps>(),
    ApiRoute::view(
        "GET",
        "/api/v1/config",
        "The config files, without secrets, and the last reload.",
        || get(config_view::config),
    )
    .gives::<ConfigView>(),
    ApiRoute::operate(
        "POST",
        "/api/v1/config/undo",
        "Restores the file as it was before the \
        last edit.",
        || post(config_change::undo),
    )
    .edit()
    .takes::<UndoRequest>()
    .gives::<ChangeReport>(),
    ApiRoute::view(
        "GET",
        "/api/v1/keys",
        "Client and operator keys, each with the first digits of its hash.",
        || get(keys::keys),
    )
    .gives::<KeyLists>(),
    ApiRoute::operate(
        "POST",
        "/api/v1/keys",
        "Creates a key, shows it once and writes its hash into the config.",
        || post(keys::make_key),
    )
    .edit()
    .creates()
    .takes::<NewKey>()
    .gives::<NewKeyReport>(),
    ApiRoute::operate(
        "DELETE",
        "/api/v1/keys/{name}",
        "Removes a key from the \
        config.",
        || delete(keys::remove_key),
    )
    .edit()
    .query(&[
        ("list", "`clients` (default) or `operators`."),
        (
            "closed",
            "`true`: if no client key is left, nobody may use the endpoint (`auth.required`).",
        ),
    ])
    .gives::<KeyRemovalReport>(),
    ApiRoute::view(
        "GET",
        "/api/v1/explain",
        "Whether a principal may call a tool, and which rules \
        decide.",
        || get(explain::explain),
    )
    .query(&[
        (
            "principal",
            "Name of the key; `anybody` if there are no keys; `role:` and the name of a role; the \
             name or id of a person.",
        ),
        (
            "tool",
            "Name of the tool, as clients of the endpoint see it.",
        ),
        ("endpoint", "Name of a view or server; none for `/mcp`."),
    ])
    .gives::<ToolExplanation<PlacedRule>>(),
    ApiRoute::view(
        "GET",
        "/api/v1/popular",
        "Servers that can be added by name alone.",
        || get(popular::popular),
    )
    .gives::<PopularList>(),
    ApiRoute::view(
        "GET",
        "/api/v1/context",
        "Cost of an endpoint's tools in every \
        conversation.",
        || get(endpoint_cost::context),
    )
    .query(&[(
        "endpoint",
        "Name or path of a view or server. Default: all servers.",
    )])
    .gives::<EndpointCost>(),
    ApiRoute::view(
        "GET",
        "/api/v1/doctor",
        "What is wrong with the config, this machine and its \
        servers.",
        || get(doctor::doctor),
    )
    .gives::<FindingList>(),
    ApiRoute::view(
        "GET",
        "/api/v1/plan",
        "The changes that a reload \
        would make.",
        || get(operator_actions::plan),
    )
    .gives::<PlanReport>(),
    ApiRoute::operate(
        "POST",
        "/api/v1/reload",
        "Reads the config again and applies it.",
        || post(operator_actions::reload),
    )
    .gives::<ReloadReport>(),
    ApiRoute::operate(
        "POST",
        "/api/v1/servers/{name}/restart",
        "Restarts a server.",
        || post(operator_actions::restart),
    )
    .gives::<RestartReport>(),
    ApiRoute::operate(
        "POST",
        "/api/v1/servers/{name}/refresh",
        "Requests a server's lists again.",
        || post(operator_actions::refresh),
    )
    .gives::<RefreshReport>(),
    ApiRoute::operate(
        "POST",
        "/api/v1/servers/{name}/login",
        "Starts a login at a server, and returns the address to open.",
        || post(server_login::log_in),
    )
    .takes::<LoginRequest>()
    .gives::<LoginStart>(),
    ApiRoute::operate(
        "POST",
        "/api/v1/servers/{name}/logout",
        "Revokes and forgets the login at a server.",
        || post(server_login::log_out),
    )
    .gives::<LogoutReport>(),
    ApiRoute::operate(
        "POST",
        "/api/v1/try",
        "Calls a tool as an operator and streams its events.",
        || post(try_call::start),
    )
    .takes::<TryRequest>(),
    ApiRoute::operate(
        "POST",
        "/api/v1/try/{id}/answer",
        "Answers a server's question during such a call.",
        || post(try_call::answer),
    )
    .takes::<TryReply>()
    .gives::<ActionReport>(),
    ApiRoute::operate(
        "DELETE",
        "/api/v1/try/{id}",
        "Cancels such a \
        call.",
        || delete(try_call::cancel),
    )
    .gives::<ActionReport>(),
];

/// Path of the preview, and of a server called so.
const PREVIEW_PATH: &str = "/api/v1/servers/preview";

/// Adds the routes to a router.
pub(super) fn mount(router: Router<Arc<AdminState>>) -> Router<Arc<AdminState>> {
    // The router prefers a path without a name in it, and would refuse all methods but that of the
    // preview.
    let of_server = get(status::server)
        .patch(config_change::patch_server)
        .delete(config_change::remove_server);
    let router = router.route(PREVIEW_PATH, of_server);
    ROUTES.iter().fold(router, |router, route| {
        let declared = Extension(DeclaredQuery(route.query));
        router.route(route.path, (route.handler)().route_layer(declared))
    })
}

#[cfg(test)]
mod tests {
    use moongate_access::auth::AdminRole;

    use super::ROUTES;
    use crate::key_check::OPEN_ROUTES;

    #[test]
    fn whoever_logs_a_server_in_or_out_may_operate() {
        for path in [
            "/api/v1/servers/{name}/login",
            "/api/v1/servers/{name}/logout",
        ] {
            let found: Vec<_> = ROUTES.iter().filter(|route| route.path == path).collect();
            let [route] = found[..] else {
                panic!("{path} is declared once");
            };
            assert_eq!(route.method, "POST", "{path}");
            assert_eq!(route.role, Some(AdminRole::Operate), "{path}");
        }
    }

    #[test]
    fn viewers_see_people_and_only_operators_end_their_logins() {
        let of_people = ROUTES.iter().filter(|route| route.path.contains("/people"));
        let roles: Vec<_> = of_people.map(|route| (route.method, route.role)).collect();
        let expected = [
            ("GET", Some(AdminRole::View)),
            ("DELETE", Some(AdminRole::Operate)),
        ];
        assert_eq!(roles, expected);
    }

    #[test]
    fn only_sign_in_and_sign_out_need_no_key() {
        for route in ROUTES {
            assert_eq!(
                route.role.is_none(),
                OPEN_ROUTES.contains(&route.path),
                "{} {}",
                route.method,
                route.path
            );
        }
        assert!(
            OPEN_ROUTES
                .iter()
                .all(|path| ROUTES.iter().any(|route| route.path == *path))
        );
    }
}
