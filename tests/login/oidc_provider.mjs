// A server's authorization server that we did not write, npm `oidc-provider`, with the MCP server that it guards.
//
//   node oidc_provider.mjs TARGET LIFE      TARGET: URL of the server behind it; LIFE: seconds that an access token lives
//   node oidc_provider.mjs company ADDRESS  a company's login, for a gateway whose redirect address is ADDRESS
//
// Listens on 127.0.0.1, says where on stderr, and ends with its stdin. LOGIN_HOME is where setup.sh installed the
// package. Clients register themselves, tokens are for one resource, and refresh tokens are used once: one that comes
// back ends its login. As a company's login it has one client, the gateway, and registers nobody. Nobody is asked
// anything: whoever opens the page has logged in and agreed.
//
// `GET /test/state` says what it has seen.
import http from 'node:http';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const company = process.argv[2] === 'company' ? { redirect: process.argv[3] } : undefined;
const target = company ? undefined : new URL(process.argv[2]);
const life = Number(process.argv[3]);
const entry = path.join(process.env.LOGIN_HOME, 'npm/node_modules/oidc-provider/lib/index.js');
const { Provider, errors } = await import(pathToFileURL(entry));

const PERSON = 'ann';
const SCOPE = 'tools';
const COMPANY_SCOPES = ['email', 'groups'];

/** What it has seen. Refresh tokens are in the order in which they were given. */
const seen = { registrations: 0, logins: 0, refreshes: 0, refusals: 0, reuses: 0, revocations: 0, tokens: [] };

let issuer, resource, metadata, provider, handle;

function configuration() {
    return company ? companyConfiguration() : serverConfiguration();
}

/** One client with a secret, whose ID tokens say who somebody is and in which groups. */
function companyConfiguration() {
    const claims = { email: 'ann@example.com', email_verified: true, groups: ['staff', 'all'] };
    return {
        routes: { authorization: '/authorize' },
        scopes: ['openid', 'offline_access', ...COMPANY_SCOPES],
        claims: { openid: ['sub'], email: ['email', 'email_verified'], groups: ['groups'] },
        // Claims are in the ID token, as with most companies' logins, and not at the userinfo endpoint alone.
        conformIdTokenClaims: false,
        clients: [{
            client_id: 'moongate',
            client_secret: 'secret-of-the-gateway-0123456789',
            redirect_uris: [company.redirect],
            grant_types: ['authorization_code', 'refresh_token'],
            response_types: ['code'],
        }],
        cookies: { keys: ['for the tests'] },
        interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
        findAccount: (_, id) => ({ accountId: id, claims: async () => ({ sub: id, ...claims }) }),
        issueRefreshToken: async (_, client) => client.grantTypeAllowed('refresh_token'),
        expiresWithSession: async () => false,
        rotateRefreshToken: true,
        features: { devInteractions: { enabled: false } },
    };
}

function serverConfiguration() {
    return {
        routes: { authorization: '/authorize' },
        scopes: ['openid', 'offline_access', SCOPE],
        clientAuthMethods: ['none'],
        cookies: { keys: ['for the tests'] },
        interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
        findAccount: (_, id) => ({ accountId: id, claims: async () => ({ sub: id }) }),
        issueRefreshToken: async (_, client) => client.grantTypeAllowed('refresh_token'),
        expiresWithSession: async () => false,
        rotateRefreshToken: true,
        features: {
            devInteractions: { enabled: false },
            registration: { enabled: true },
            revocation: { enabled: true },
            resourceIndicators: {
                enabled: true,
                useGrantedResource: async () => true,
                getResourceServerInfo: async (_, indicator) => {
                    if (indicator !== resource) throw new errors.InvalidTarget();
                    return { scope: SCOPE, audience: resource, accessTokenTTL: life, accessTokenFormat: 'opaque' };
                },
            },
        },
    };
}

function watch() {
    provider.on('registration_create.success', () => { seen.registrations += 1; });
    provider.on('grant.revoked', () => { seen.revocations += 1; });
    provider.on('grant.success', ({ body, oidc }) => {
        seen[oidc.params.grant_type === 'refresh_token' ? 'refreshes' : 'logins'] += 1;
        seen.tokens.push({ client_id: oidc.client.clientId, refresh_token: body.refresh_token });
    });
    provider.on('grant.error', (_, error) => {
        seen.refusals += 1;
        if (error.error_detail === 'refresh token already used') seen.reuses += 1;
        process.stderr.write(`refused: ${error.message}: ${error.error_detail}\n`);
    });
    provider.on('server_error', (_, error) => process.stderr.write(`broken: ${error.stack}\n`));
}

/** Logs the person in, and agrees to everything, as the page of a real one does after a few clicks. */
async function agree(request, response) {
    const { params } = await provider.interactionDetails(request, response);
    const grant = new provider.Grant({ accountId: PERSON, clientId: params.client_id });
    if (company) {
        grant.addOIDCScope(['openid', 'offline_access', ...COMPANY_SCOPES].join(' '));
    } else {
        grant.addOIDCScope(`openid offline_access ${SCOPE}`);
        grant.addResourceScope(resource, SCOPE);
    }
    const result = { login: { accountId: PERSON }, consent: { grantId: await grant.save() } };
    await provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
}

function json(response, status, body) {
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

/** Passes a request on if it has a token for this resource that is still good. */
async function guard(request, response) {
    const [, token] = /^Bearer (\S+)$/.exec(request.headers.authorization ?? '') ?? [];
    const found = token && await provider.AccessToken.find(token);
    if (found?.aud === resource) return forward(request, response);
    const why = token ? ', error="invalid_token"' : '';
    response.writeHead(401, { 'www-authenticate': `Bearer resource_metadata="${issuer}${metadata}", scope="${SCOPE}"${why}` }).end();
}

function forward(request, response) {
    const headers = { ...request.headers, host: target.host };
    const onward = http.request(target, { method: request.method, headers }, answer => {
        const { connection: _, 'keep-alive': __, 'transfer-encoding': ___, ...kept } = answer.headers;
        response.writeHead(answer.statusCode, kept);
        response.flushHeaders();
        answer.on('error', () => response.destroy()).pipe(response);
    });
    onward.on('error', () => response.destroy());
    response.on('close', () => onward.destroy());
    request.pipe(onward);
}

async function answer(request, response) {
    const { pathname } = new URL(request.url, issuer);
    if (target && pathname === target.pathname) return guard(request, response);
    if (target && pathname === metadata) return json(response, 200, { resource, authorization_servers: [issuer], scopes_supported: [SCOPE] });
    if (pathname.startsWith('/interaction/')) return agree(request, response);
    if (pathname === '/test/state') return json(response, 200, seen);
    return handle(request, response);
}

const server = http.createServer((request, response) => {
    answer(request, response).catch(error => {
        process.stderr.write(`broken: ${error.stack}\n`);
        if (response.headersSent) response.destroy();
        else response.writeHead(500).end();
    });
});
server.listen(0, '127.0.0.1', () => {
    issuer = `http://127.0.0.1:${server.address().port}`;
    if (target) {
        resource = `${issuer}${target.pathname}`;
        metadata = `/.well-known/oauth-protected-resource${target.pathname}`;
    }
    provider = new Provider(issuer, configuration());
    handle = provider.callback();
    watch();
    process.stderr.write(`listening on ${issuer}\n`);
});
process.stdin.on('end', () => process.exit(0)).resume();
