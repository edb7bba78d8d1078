// One face for every release of the TypeScript SDK: 1.x (a legacy revision each) and 2.x (2026-07-28).
import { homeRequire } from './loopback.mjs';

const LEVELS_META = 'io.modelcontextprotocol/logLevel';
const INFO = { name: 'moongate-interop-typescript', version: '1.0.0' };

/** Connects with the SDK the options ask for. */
export async function connect(options, answers) {
    if (options.trace) traceFetch();
    const modern = options.sdk >= '2026';
    const load = path => homeRequire(`sdk-${options.sdk}/${path}`);
    const sdk = modern ? homeRequire('@modelcontextprotocol/client') : { ...load('client/index.js'), ...load('types.js') };
    const client = new sdk.Client(INFO, clientOptions(options));
    const face = new Face(client, sdk, modern);
    face.answer(answers, options.sdk);
    face.transport = options.transport ?? makeTransport(options, sdk, load);
    watchArrivals(face);
    await client.connect(face.transport);
    return face;
}

function clientOptions({ sdk, revision }) {
    const capabilities = { sampling: {}, roots: { listChanged: true } };
    if (sdk >= '2025-06-18') capabilities.elicitation = {};
    // The probe is what a client does that cannot know whom it talks to.
    return { capabilities, ...(sdk >= '2026' && { versionNegotiation: { mode: revision >= '2026' ? 'auto' : 'legacy' } }) };
}

function makeTransport({ url, key, sdk: revision }, sdk, load) {
    // Over stdio: the program that leads to the URL is launched, as a desktop client does.
    const command = process.env.INTEROP_STDIO;
    if (command) {
        const { StdioClientTransport } =
            revision >= '2026' ? homeRequire('@modelcontextprotocol/client/stdio') : load('client/stdio.js');
        const env = key === undefined ? undefined : { MOONGATE_KEY: key };
        return new StdioClientTransport({ command, args: ['stdio', '--url', url], env });
    }
    const headers = key === undefined ? {} : { Authorization: `Bearer ${key}` };
    const loaded = revision >= '2026' ? sdk : load('client/streamableHttp.js');
    return new loaded.StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
}

/**
 * Looks at each message on its way in: old releases do not tell which revision was negotiated, and they may hand a
 * result over before the notifications that came ahead of it.
 */
function watchArrivals(face) {
    let handler;
    Object.defineProperty(face.transport, 'onmessage', {
        get: () => handler,
        set: inner => {
            handler = inner && ((message, ...rest) => {
                face.revision ??= message.result?.protocolVersion;
                // A result that asks for something is not the call's: what the call tells goes on after the answer.
                const interim = message.result?.resultType === 'input_required';
                face.arrivals.push(message.method ?? (interim ? 'question' : 'result'));
                return inner(message, ...rest);
            });
        },
    });
}

class Face {
    /** How often the client was asked for what. */
    asked = {};
    /** Every notification that no handler of the SDK took. */
    notifications = [];
    /** The methods of all messages that came, "result" for answers, "question" for those that ask for input. */
    arrivals = [];

    constructor(client, sdk, modern) {
        Object.assign(this, { client, sdk, modern });
        client.fallbackNotificationHandler = async notification => void this.notifications.push(notification);
    }

    answer(answers, revision) {
        const handle = (kind, method, schema, result) => {
            const handler = async () => {
                this.asked[kind] = (this.asked[kind] ?? 0) + 1;
                return result;
            };
            this.client.setRequestHandler(this.modern ? method : this.sdk[schema], handler);
        };
        handle('sampling', 'sampling/createMessage', 'CreateMessageRequestSchema', answers.sampling);
        handle('roots', 'roots/list', 'ListRootsRequestSchema', { roots: answers.roots });
        if (revision < '2025-06-18') return;
        handle('elicitation', 'elicitation/create', 'ElicitRequestSchema', answers.elicitation);
    }

    about() {
        const revision = this.client.getNegotiatedProtocolVersion?.() ?? this.revision;
        return { revision, session: this.transport.sessionId, server: this.client.getServerVersion() };
    }

    /** Walks the pages of a list; past what a cache of the SDK may hold. */
    async list(method, field) {
        const items = [];
        let cursor;
        for (let page = 0; page < 50; page++) {
            const result = await this.client[method](cursor ? { cursor } : undefined, ...(this.modern ? [{ cacheMode: 'refresh' }] : []));
            items.push(...result[field]);
            cursor = result.nextCursor;
            if (!cursor) return items;
        }
        throw new Error(`${method} has no last page`);
    }

    async toolNames() {
        return (await this.list('listTools', 'tools')).map(tool => tool.name);
    }

    async promptNames() {
        return (await this.list('listPrompts', 'prompts')).map(prompt => prompt.name);
    }

    async resourceUris() {
        return (await this.list('listResources', 'resources')).map(resource => resource.uri);
    }

    async templateUris() {
        return (await this.list('listResourceTemplates', 'resourceTemplates')).map(template => template.uriTemplate);
    }

    call(name, args, requestOptions) {
        const params = { name, arguments: args ?? {}, ...(this.logLevel && { _meta: { [LEVELS_META]: this.logLevel } }) };
        return this.modern ? this.client.callTool(params, requestOptions) : this.client.callTool(params, undefined, requestOptions);
    }

    read(uri) {
        return this.client.readResource({ uri });
    }

    prompt(name, args) {
        return this.client.getPrompt({ name, ...(args && { arguments: args }) });
    }

    complete(ref, argument) {
        return this.client.complete({ ref, argument });
    }

    ping() {
        return this.client.ping();
    }

    /** Legacy sessions set a level; modern requests carry it. */
    async wantLogs(level) {
        if (this.about().revision >= '2026') this.logLevel = level;
        else await this.client.setLoggingLevel(level);
    }

    /** Legacy sessions are told unasked; modern clients listen. */
    async subscribe(list) {
        if (this.about().revision >= '2026') await this.client.listen({ [`${list}ListChanged`]: true });
    }

    async close() {
        if (this.transport.sessionId) await this.transport.terminateSession?.();
        await this.client.close();
    }
}

function traceFetch() {
    const real = globalThis.fetch;
    globalThis.fetch = async (url, init = {}) => {
        const headers = Object.fromEntries(new Headers(init.headers));
        const line = { method: init.method ?? 'GET', url: String(url), headers, body: init.body };
        process.stderr.write(`> ${JSON.stringify(line)}\n`);
        const response = await real(url, init);
        const answer = { of: `${line.method} ${String(init.body).slice(0, 60)}`, status: response.status, headers: Object.fromEntries(response.headers) };
        process.stderr.write(`< ${JSON.stringify(answer)}\n`);
        return response;
    };
}
