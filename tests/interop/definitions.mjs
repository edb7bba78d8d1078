// Lists definitions with the official TypeScript SDK: one JSON line a list on stdout.
//
//   node definitions.mjs --sdk REVISION [--revision R] --definitions FILE [--url URL --paths /a,/b]
//
// FILE has { good: { KIND: TEXT }, items: [{ kind, text }] }, where each text is the JSON of an item. First, each item
// is listed beside the good one of its kind, by a server in this process: { item, listed } with the item as the SDK
// has it, or { item, refused }. Then the lists of each endpoint are read: { path, kind, listed } or { path, kind, refused }.
import fs from 'node:fs';
import { parseArgs } from 'node:util';
import { connect } from './client-sdk.mjs';

const { values: options } = parseArgs({
    options: {
        sdk: { type: 'string' },
        revision: { type: 'string' },
        definitions: { type: 'string' },
        url: { type: 'string' },
        paths: { type: 'string', default: '' },
    },
});
options.revision ??= options.sdk;

const ANSWERS = { sampling: {}, roots: [], elicitation: {} };
const LISTS = {
    tools: ['listTools', 'tools/list'],
    prompts: ['listPrompts', 'prompts/list'],
    resources: ['listResources', 'resources/list'],
    resourceTemplates: ['listResourceTemplates', 'resources/templates/list'],
};
const SERVER_INFO = { name: 'definitions', version: '1.0.0' };
const CAPABILITIES = { tools: {}, prompts: {}, resources: {} };

/** A server that lists whatever it is given. */
class ListingServer {
    listed = { kind: 'tools', texts: [] };

    async start() {}

    async close() {
        this.onclose?.();
    }

    async send(message) {
        if (message.id === undefined) return;
        const answer = `{"jsonrpc":"2.0","id":${JSON.stringify(message.id)},"result":${this.result(message)}}`;
        queueMicrotask(() => this.onmessage?.(JSON.parse(answer)));
    }

    result({ method }) {
        const modern = '"resultType":"complete","ttlMs":0,"cacheScope":"private"';
        if (method === 'initialize') {
            return JSON.stringify({ protocolVersion: options.revision, capabilities: CAPABILITIES, serverInfo: SERVER_INFO });
        }
        if (method === 'server/discover') {
            return `{${modern},"supportedVersions":["${options.revision}"],"capabilities":${JSON.stringify(CAPABILITIES)}}`;
        }
        const { kind, texts } = this.listed;
        return `{${options.revision >= '2026' ? `${modern},` : ''}"${kind}":[${texts.join(',')}]}`;
    }
}

function report(line) {
    process.stdout.write(`${JSON.stringify(line)}\n`);
}

async function listed(face, kind) {
    try {
        return { listed: await face.list(LISTS[kind][0], kind) };
    } catch (error) {
        return { refused: String(error.message).slice(0, 2000) };
    }
}

const { good, items } = JSON.parse(fs.readFileSync(options.definitions, 'utf8'));
// What the SDK says about schemas goes to stderr.
console.log = console.info = console.debug = console.warn = console.error = () => {};

const server = new ListingServer();
const direct = await connect({ ...options, transport: server }, ANSWERS);
for (const [item, { kind, text }] of items.entries()) {
    // A client keeps what it compiled by `$id`, so that such a schema is not compiled again in another tool.
    const isFresh = text.includes('"$id"');
    const own = isFresh ? new ListingServer() : server;
    const face = isFresh ? await connect({ ...options, transport: own }, ANSWERS) : direct;
    own.listed = { kind, texts: [good[kind], text] };
    const { listed: all, refused } = await listed(face, kind);
    report({ item, ...(all && all.length === 2 ? { listed: all[1] } : { refused: refused ?? 'left out' }) });
}
for (const path of options.paths.split(',').filter(Boolean)) {
    const face = await connect({ ...options, url: `${options.url}${path === '/' ? '' : path}` }, ANSWERS);
    for (const kind of Object.keys(LISTS)) report({ path, kind, ...(await listed(face, kind)) });
    await face.close();
}
// Not before all lines are written.
process.stdout.write('', () => process.exit(0));
