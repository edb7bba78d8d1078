// A server of revision 2026-07-28 on the official TypeScript SDK v2, for the interop tests.
//
//   node server.mjs stdio | http      (http: a free loopback port, printed by loopback.mjs)
//
// The same tools as server.py, so that one plan checks both.
import { createServer } from 'node:http';
import { homeRequire, untilStdinCloses } from './loopback.mjs';

const { McpServer, ResourceTemplate, acceptedContent, completable, createMcpHandler, inputRequired, inputResponse } =
    homeRequire('@modelcontextprotocol/server');
const { serveStdio } = homeRequire('@modelcontextprotocol/server/stdio');
const { toNodeHandler } = homeRequire('@modelcontextprotocol/node');
const { z } = homeRequire('zod');

const cities = ['Lisbon', 'London', 'Lyon', 'Oslo'];
const grown = [];
let cancelled = 0;
let changed = server => server.sendToolListChanged();

const text = value => ({ content: [{ type: 'text', text: value }] });

function registerGrown(server, name) {
    server.registerTool(name, { description: 'Appeared while the server ran' }, async () => text(name));
}

/** Waits, unless the caller cancels first. */
function pause(signal, milliseconds) {
    return new Promise((resolve, reject) => {
        const timer = setTimeout(resolve, milliseconds);
        signal.addEventListener('abort', () => {
            clearTimeout(timer);
            reject(new Error('cancelled'));
        });
    });
}

function registerInputTools(server) {
    server.registerTool('ask', { description: 'Asks the user for a name' }, async ctx => {
        const answer = acceptedContent(ctx.mcpReq.inputResponses, 'who', z.object({ name: z.string() }));
        if (answer) return text(`hello ${answer.name}`);
        const requestedSchema = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] };
        const who = inputRequired.elicit({ message: 'Who are you?', requestedSchema });
        return inputRequired({ inputRequests: { who }, requestState: 'state of ask' });
    });
    server.registerTool('sample', { description: 'Asks the client for a completion' }, async ctx => {
        const answer = inputResponse(ctx.mcpReq.inputResponses, 'said');
        if (answer.kind === 'sampling') return text(`model said ${JSON.stringify(answer.result.content)}`);
        const messages = [{ role: 'user', content: { type: 'text', text: 'Say something' } }];
        return inputRequired({ inputRequests: { said: inputRequired.createMessage({ messages, maxTokens: 50 }) } });
    });
    server.registerTool('roots', { description: 'Asks the client for its roots' }, async ctx => {
        const answer = inputResponse(ctx.mcpReq.inputResponses, 'roots');
        if (answer.kind === 'roots') return text(answer.roots.map(root => root.uri).join(' '));
        return inputRequired({ inputRequests: { roots: inputRequired.listRoots() } });
    });
}

function registerTools(server) {
    server.registerTool(
        'add',
        {
            description: 'Adds two numbers',
            inputSchema: z.object({ a: z.number(), b: z.number() }),
            outputSchema: z.object({ sum: z.number() }),
            annotations: { readOnlyHint: true },
        },
        async ({ a, b }) => ({ content: [{ type: 'text', text: String(a + b) }], structuredContent: { sum: a + b } }),
    );
    // Only 2026-07-28 allows this output. The SDK wraps it for clients of earlier revisions.
    server.registerTool(
        'rows',
        { description: 'Returns rows', outputSchema: z.array(z.number()) },
        async () => ({ content: [{ type: 'text', text: '[1,2]' }], structuredContent: [1, 2] }),
    );
    const steps = z.object({ steps: z.number().int().positive(), milliseconds: z.number().default(20) });
    server.registerTool('count', { description: 'Counts, with progress', inputSchema: steps }, async (args, ctx) => {
        const progressToken = ctx.mcpReq._meta?.progressToken;
        try {
            for (let progress = 1; progress <= args.steps; progress++) {
                await pause(ctx.mcpReq.signal, args.milliseconds);
                if (progressToken === undefined) continue;
                const params = { progressToken, progress, total: args.steps };
                await ctx.mcpReq.notify({ method: 'notifications/progress', params });
            }
        } catch (error) {
            cancelled++;
            throw error;
        }
        return text(`counted to ${args.steps}`);
    });
    server.registerTool('cancellations', { description: 'How many counts were cancelled' }, async () => text(`${cancelled}`));
    server.registerTool('log', { description: 'Logs a line' }, async ctx => {
        await ctx.mcpReq.log('warning', 'a line from the log tool', 'interop');
        return text('logged');
    });
    server.registerTool('fail', { description: 'Fails' }, async () => ({ ...text('it broke'), isError: true }));
    server.registerTool('grow', { description: 'Adds a tool', inputSchema: z.object({ name: z.string() }) }, async ({ name }) => {
        if (!grown.includes(name)) {
            grown.push(name);
            changed(server, name);
        }
        return text(`grew ${name}`);
    });
    registerInputTools(server);
}

function build() {
    const server = new McpServer(
        { name: 'interop-typescript', version: '1.0.0' },
        { capabilities: { logging: {}, tools: { listChanged: true } }, instructions: 'A server for interop tests.' },
    );
    registerTools(server);
    for (const name of grown) registerGrown(server, name);
    server.registerResource('greeting', 'interop-ts://greeting', { mimeType: 'text/plain' }, async uri => ({
        contents: [{ uri: uri.href, mimeType: 'text/plain', text: 'hello from typescript' }],
    }));
    const template = new ResourceTemplate('interop-ts://item/{id}', { list: undefined });
    server.registerResource('item', template, { mimeType: 'text/plain' }, async (uri, { id }) => ({
        contents: [{ uri: uri.href, mimeType: 'text/plain', text: `item ${id}` }],
    }));
    const city = completable(z.string(), value => cities.filter(name => name.startsWith(value)));
    server.registerPrompt('visit', { description: 'A trip', argsSchema: z.object({ city }) }, ({ city: name }) => ({
        messages: [{ role: 'user', content: { type: 'text', text: `Plan a visit to ${name}.` } }],
    }));
    return server;
}

if (process.argv[2] === 'http') {
    const handler = createMcpHandler(build);
    // Each request has a server of its own here, so the change is published to the subscriptions instead.
    changed = () => handler.notify.toolsChanged();
    createServer(toNodeHandler(handler)).listen(0);
    untilStdinCloses();
} else {
    changed = (server, name) => registerGrown(server, name);
    serveStdio(build);
}
