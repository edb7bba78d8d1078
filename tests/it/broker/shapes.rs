//! Shapes of ten clients, as observed on a date: what they publish or register, their redirect
//! addresses, and what they request.
//!
//! Owns the data. Does not send anything (`client.rs`). Invariant: the texts are those of the real
//! clients, except that a document's host is on loopback.

/// Client as it was seen.
#[derive(Debug)]
pub(super) struct ClientShape {
    pub(super) name: &'static str,
    /// Date, and where it was written down.
    pub(super) seen: &'static str,
    pub(super) identity: ShapeIdentity,
    /// Address at which it waits for the answer.
    pub(super) redirect: &'static str,
    /// Scope that it asks for, if any.
    pub(super) scope: Option<&'static str>,
    /// Parameters that it adds to the request for a login.
    pub(super) more: &'static [(&'static str, &'static str)],
}

/// Way in which a client says what it is.
#[derive(Debug)]
pub(super) enum ShapeIdentity {
    /// Client document.
    Document {
        id: &'static str,
        text: &'static str,
    },
    /// Registration, with this body.
    Registration(&'static str),
}

pub(super) const CLAUDE_CODE: ClientShape = ClientShape {
    name: "Claude Code",
    seen: "2026-06-02, anthropics/claude-code #64705",
    identity: ShapeIdentity::Document {
        id: "https://claude.ai/oauth/claude-code-client-metadata",
        text: r#"{
            "client_id": "https://claude.ai/oauth/claude-code-client-metadata",
            "client_name": "Claude Code",
            "client_uri": "https://claude.ai",
            "redirect_uris": ["http://localhost/callback", "http://127.0.0.1/callback"],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none"
        }"#,
    },
    redirect: "http://localhost:55611/callback",
    scope: Some("mcp offline_access"),
    more: &[],
};

pub(super) const CLAUDE_AI: ClientShape = ClientShape {
    name: "claude.ai",
    seen: "2026-08-31, brendanlong/lion-reader #1519",
    identity: ShapeIdentity::Document {
        id: "https://claude.ai/oauth/mcp-oauth-client-metadata",
        text: r#"{
            "client_id": "https://claude.ai/oauth/mcp-oauth-client-metadata",
            "client_name": "Claude",
            "client_uri": "https://claude.ai",
            "redirect_uris": [
                "https://claude.ai/api/mcp/auth_callback",
                "https://claude.com/api/mcp/auth_callback"
            ],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none"
        }"#,
    },
    redirect: "https://claude.ai/api/mcp/auth_callback",
    scope: Some("mcp offline_access"),
    more: &[("prompt", "consent")],
};

pub(super) const CHATGPT: ClientShape = ClientShape {
    name: "ChatGPT",
    seen: "2026-05-15, Altinity/altinity-mcp #118",
    identity: ShapeIdentity::Document {
        id: "https://chatgpt.com/oauth/kDmjx77UnKOM/client.json",
        text: r#"{
            "client_id": "https://chatgpt.com/oauth/kDmjx77UnKOM/client.json",
            "client_uri": "https://chatgpt.com/",
            "client_name": "ChatGPT",
            "redirect_uris": ["https://chatgpt.com/connector/oauth/kDmjx77UnKOM"],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "private_key_jwt",
            "token_endpoint_auth_methods_supported": ["none", "private_key_jwt"],
            "token_endpoint_auth_signing_alg": "RS256",
            "jwks_uri": "https://chatgpt.com/oauth/jwks.json"
        }"#,
    },
    redirect: "https://chatgpt.com/connector/oauth/kDmjx77UnKOM",
    scope: Some("mcp"),
    more: &[],
};

pub(super) const VS_CODE: ClientShape = ClientShape {
    name: "VS Code",
    seen: "2026-09, vscode.dev/oauth/client-metadata.json",
    identity: ShapeIdentity::Document {
        id: "https://vscode.dev/oauth/client-metadata.json",
        text: r#"{
            "client_id": "https://vscode.dev/oauth/client-metadata.json",
            "client_name": "Visual Studio Code",
            "application_type": "native",
            "redirect_uris": ["http://127.0.0.1:33418/", "https://vscode.dev/redirect"],
            "grant_types": [
                "authorization_code",
                "refresh_token",
                "urn:ietf:params:oauth:grant-type:device_code"
            ],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none"
        }"#,
    },
    redirect: "https://vscode.dev/redirect",
    scope: None,
    more: &[],
};

pub(super) const COPILOT_CLI: ClientShape = ClientShape {
    name: "Copilot CLI",
    seen: "2026-09-09, github/copilot-cli #4793",
    identity: ShapeIdentity::Document {
        id: "https://github.com/copilot/cli/client-metadata.json",
        text: r#"{
            "client_id": "https://github.com/copilot/cli/client-metadata.json",
            "client_name": "GitHub Copilot CLI",
            "application_type": "native",
            "redirect_uris": ["http://127.0.0.1:33418/"],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none"
        }"#,
    },
    // Not the port of its own document.
    redirect: "http://127.0.0.1:60005/",
    scope: None,
    more: &[],
};

pub(super) const CURSOR: ClientShape = ClientShape {
    name: "Cursor",
    seen: "2026-09, five addresses at once since Cursor 3.20",
    identity: ShapeIdentity::Registration(
        r#"{
            "client_name": "Cursor",
            "redirect_uris": [
                "https://www.cursor.com/agents/mcp/oauth/callback",
                "https://www.cursor.com/bot/mcp/oauth/callback",
                "cursor://anysphere.cursor-mcp/oauth/callback",
                "http://localhost:8787/callback",
                "grokbot://mcp/oauth/callback"
            ],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "application_type": "native"
        }"#,
    ),
    redirect: "cursor://anysphere.cursor-mcp/oauth/callback",
    scope: None,
    more: &[],
};

pub(super) const CODEX: ClientShape = ClientShape {
    name: "Codex",
    seen: "2026-09, chatgpt.com/oauth/codex/client.json",
    identity: ShapeIdentity::Document {
        id: "https://chatgpt.com/oauth/codex/client.json",
        text: r#"{
            "client_id": "https://chatgpt.com/oauth/codex/client.json",
            "client_name": "Codex",
            "application_type": "native",
            "redirect_uris": ["http://127.0.0.1/callback", "http://localhost/callback"],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none"
        }"#,
    },
    redirect: "http://127.0.0.1:1455/callback",
    scope: Some("openid profile email"),
    more: &[],
};

pub(super) const GEMINI_CLI: ClientShape = ClientShape {
    name: "Gemini CLI",
    seen: "2026-09, packages/core/src/mcp/oauth-provider.ts",
    identity: ShapeIdentity::Registration(
        r#"{
            "client_name": "Gemini CLI MCP Client",
            "redirect_uris": ["http://localhost:7777/oauth/callback"],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "scope": ""
        }"#,
    ),
    redirect: "http://localhost:7777/oauth/callback",
    scope: None,
    more: &[],
};

pub(super) const OPENCODE: ClientShape = ClientShape {
    name: "OpenCode",
    // Its document has other paths than it uses, so it registers.
    seen: "2026-09-07, anomalyco/opencode #47737",
    identity: ShapeIdentity::Registration(
        r#"{
            "client_name": "OpenCode",
            "client_uri": "https://opencode.ai",
            "redirect_uris": ["http://127.0.0.1:19876/mcp/oauth/callback"],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none"
        }"#,
    ),
    redirect: "http://127.0.0.1:19876/mcp/oauth/callback",
    scope: None,
    more: &[],
};

pub(super) const INSPECTOR: ClientShape = ClientShape {
    name: "Inspector",
    seen: "2026-09, modelcontextprotocol/inspector",
    identity: ShapeIdentity::Registration(
        r#"{
            "client_name": "MCP Inspector",
            "client_uri": "https://github.com/modelcontextprotocol/inspector",
            "redirect_uris": ["http://localhost:6274/oauth/callback"],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "scope": "mcp offline_access"
        }"#,
    ),
    redirect: "http://localhost:6274/oauth/callback",
    scope: Some("mcp offline_access"),
    more: &[("prompt", "consent")],
};

/// All ten.
pub(super) const SHAPES: [ClientShape; 10] = [
    CLAUDE_CODE,
    CLAUDE_AI,
    CHATGPT,
    VS_CODE,
    COPILOT_CLI,
    CURSOR,
    CODEX,
    GEMINI_CLI,
    OPENCODE,
    INSPECTOR,
];
