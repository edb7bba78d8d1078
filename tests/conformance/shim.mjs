// Lets the suite, which knows the fixture's tools and prompts by their own names, run against an endpoint where they
// have a prefix: `node shim.mjs TARGET PREFIX`. Listens on 127.0.0.1, says where on stderr, ends with its stdin.
//
// Only names change, in both directions; messages, headers, statuses and the ends of streams pass as they come. Host
// and Origin pass unchanged when they are foreign, so that the endpoint judges them itself.
import http from 'node:http';

const [target, prefix] = [new URL(process.argv[2]), process.argv[3]];

const exposed = name => (typeof name === 'string' ? prefix + name : name);
const local = name => (typeof name === 'string' && name.startsWith(prefix) ? name.slice(prefix.length) : name);

/** What a client sends: names of tools and prompts get the prefix. */
function outward({ method, params }) {
    if (method === 'tools/call' || method === 'prompts/get') params.name = exposed(params.name);
    if (method === 'completion/complete' && params.ref.type === 'ref/prompt') params.ref.name = exposed(params.ref.name);
}

/** What a client gets: names in lists lose it. */
function inward({ result }) {
    for (const item of [...(result?.tools ?? []), ...(result?.prompts ?? [])]) item.name = local(item.name);
}

/** JSON with `change` applied to each message in it; text that is none of ours stays as it is. */
function mapped(text, change) {
    let parsed;
    try {
        parsed = JSON.parse(text);
    } catch {
        return text;
    }
    if (typeof parsed !== 'object' || parsed === null) return text;
    try {
        for (const message of Array.isArray(parsed) ? parsed : [parsed]) change(message);
    } catch {
        return text; // malformed on purpose
    }
    return JSON.stringify(parsed);
}

const read = async stream => Buffer.concat(await stream.toArray()).toString();

function headersFor(request, port, length) {
    const headers = { ...request.headers };
    const own = new RegExp(`^(localhost|127\\.0\\.0\\.1):${port}$`);
    if (own.test(headers.host)) headers.host = target.host;
    if (own.test(headers.origin?.replace(/^https?:\/\//, ''))) headers.origin = `http://${target.host}`;
    if (['tools/call', 'prompts/get'].includes(headers['mcp-method'])) headers['mcp-name'] = exposed(headers['mcp-name']);
    if (headers['mcp-name'] === undefined) delete headers['mcp-name'];
    delete headers['transfer-encoding'];
    if (length > 0) headers['content-length'] = String(length);
    return headers;
}

/** Passes events on line by line: a `data` line is a whole message here. */
async function events(from, to) {
    let rest = '';
    for await (const chunk of from.setEncoding('utf8')) {
        const lines = (rest + chunk).split('\n');
        rest = lines.pop();
        for (const line of lines) to.write(`${line.startsWith('data:') ? `data: ${mapped(line.slice(5), inward)}` : line}\n`);
    }
    to.end(rest);
}

const server = http.createServer(async (request, response) => {
    const body = mapped(await read(request), outward);
    const headers = headersFor(request, server.address().port, Buffer.byteLength(body));
    const options = { host: target.hostname, port: target.port, path: target.pathname, method: request.method, headers };
    const onward = http.request(options, async answer => {
        const { 'content-length': _, 'transfer-encoding': __, ...kept } = answer.headers;
        response.writeHead(answer.statusCode, kept);
        response.flushHeaders();
        try {
            if (kept['content-type']?.includes('text/event-stream')) await events(answer, response);
            else response.end(mapped(await read(answer), inward));
        } catch {
            response.destroy();
        }
    });
    onward.on('error', error => (response.headersSent ? response.destroy() : response.writeHead(502).end(String(error))));
    response.on('close', () => onward.destroy());
    onward.end(body);
});
server.listen(0, '127.0.0.1', () => process.stderr.write(`listening on http://127.0.0.1:${server.address().port}\n`));
process.stdin.on('end', () => process.exit(0)).resume();
