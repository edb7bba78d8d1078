// Runs a plan of checks with the official TypeScript SDK: one JSON line a check on stdout, exit code 0 or 1.
//
//   node client.mjs --url URL --plan FILE --sdk REVISION [--revision R]
//                   [--mode direct|server|aggregate] [--servers a,b] [--data DIR] [--key KEY] [--trace]
//
// --sdk picks the SDK by the newest revision it knows, --revision is what must be negotiated (by default the
// same), --mode and --servers pick the plan's steps (see plan.mjs), --data is what "{data}" stands for in it,
// --trace prints each HTTP exchange on stderr.
import fs from 'node:fs';
import { parseArgs } from 'node:util';
import { connect } from './client-sdk.mjs';
import { exposed, matches, selected, substitute } from './plan.mjs';

const { values: options } = parseArgs({
    options: {
        url: { type: 'string' },
        plan: { type: 'string' },
        sdk: { type: 'string' },
        revision: { type: 'string' },
        mode: { type: 'string', default: 'direct' },
        servers: { type: 'string', default: '' },
        data: { type: 'string', default: '' },
        key: { type: 'string' },
        trace: { type: 'boolean', default: false },
    },
});
options.revision ??= options.sdk;

const STEP_MS = 60_000;
const ALL_MS = 240_000;
const RETRY_MS = 300;
let failed = false;

function report(check, ok, detail) {
    failed ||= !ok;
    process.stdout.write(`${JSON.stringify({ check, ok, detail })}\n`);
}

function sleep(milliseconds) {
    return new Promise(resolve => setTimeout(resolve, milliseconds));
}

function within(promise, milliseconds, what) {
    let timer;
    const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error(`${what}: nothing for ${milliseconds} ms`)), milliseconds);
    });
    return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Asks again until `satisfied`, for as long as a step may take; answers the last value. */
async function until(ask, satisfied) {
    const deadline = Date.now() + STEP_MS - 5_000;
    for (;;) {
        const value = await ask();
        if (satisfied(value) || Date.now() > deadline) return value;
        await sleep(RETRY_MS);
    }
}

function expectAll(wanted, have) {
    const missing = wanted.filter(one => !have.includes(one));
    if (missing.length > 0) throw new Error(`missing ${missing.join(', ')} among ${have.length}: ${have.slice(0, 40)}`);
    return `${have.length} listed`;
}

function expectMatch(step, result) {
    const wrong = matches(step.expect ?? {}, result);
    if (wrong) throw new Error(`${wrong} in ${JSON.stringify(result).slice(0, 600)}`);
}

/** One function for each kind of step; they answer a detail or throw. */
const kinds = {
    async tools(sdk, step, name) {
        const wanted = step.expect.map(name);
        const names = await until(() => sdk.toolNames(), have => wanted.every(one => have.includes(one)));
        return expectAll(wanted, names);
    },
    async prompts(sdk, step, name) {
        return expectAll(step.expect.map(name), await sdk.promptNames());
    },
    async resources(sdk, step) {
        return expectAll(step.expect, await sdk.resourceUris());
    },
    async templates(sdk, step) {
        return expectAll(step.expect, await sdk.templateUris());
    },
    async call(sdk, step, name) {
        const asked = sdk.asked[step.asks] ?? 0;
        const result = await sdk.call(name(step.tool), step.arguments);
        expectMatch(step, result);
        if (step.asks && sdk.asked[step.asks] === asked) throw new Error(`the client was not asked for ${step.asks}`);
        return result.content?.map(block => block.type).join(' ');
    },
    async unknown(sdk, step, name) {
        const outcome = await sdk.call(name(step.tool), {}).catch(error => ({ isError: true, message: error.message }));
        if (!outcome.isError) throw new Error(`answered ${JSON.stringify(outcome)}`);
        return outcome.message ?? outcome.content?.[0]?.text;
    },
    async progress(sdk, step, name) {
        const seen = [];
        const from = sdk.arrivals.length;
        // What the SDK itself tells of a question that it answers in the middle of the call is not the server's.
        const servers = one => !one.message?.startsWith('Fulfilling input required');
        const onprogress = one => servers(one) && seen.push(one.progress);
        const result = await sdk.call(name(step.tool), step.arguments, { onprogress });
        const arrivals = sdk.arrivals.slice(from);
        expectMatch(step, result);
        const before = arrivals.slice(0, arrivals.indexOf('result')).filter(one => one === 'notifications/progress').length;
        if (before !== step.count) throw new Error(`progress before the result: ${before}; ${arrivals}`);
        // Old releases drop what is left of the progress once they have the result.
        if (seen.length === 0 || seen.some((one, index) => one !== index + 1)) throw new Error(`progress was ${seen}`);
        return seen;
    },
    async cancel(sdk, step, name) {
        const abort = new AbortController();
        const started = { onprogress: () => abort.abort('interop cancels'), signal: abort.signal };
        const outcome = await sdk.call(name(step.tool), step.arguments, started).then(
            result => ({ result }),
            error => ({ error }),
        );
        if (!outcome.error) throw new Error(`finished all the same: ${JSON.stringify(outcome.result)}`);
        if (!step.counter) return outcome.error.message;
        const counted = () => sdk.call(name(step.counter), {}).then(result => Number(result.content[0].text));
        const count = await until(counted, value => value > 0);
        if (!(count > 0)) throw new Error('the server never heard of it');
        return `the server saw ${count}`;
    },
    async read(sdk, step) {
        const result = await sdk.read(step.uri);
        expectMatch(step, result);
        return result.contents.length;
    },
    async prompt(sdk, step, name) {
        const result = await sdk.prompt(name(step.prompt), step.arguments);
        expectMatch(step, result);
        return result.messages.length;
    },
    async complete(sdk, step, name) {
        const ref = step.prompt ? { type: 'ref/prompt', name: name(step.prompt) } : { type: 'ref/resource', uri: step.uri };
        const { completion } = await sdk.complete(ref, step.argument);
        if (JSON.stringify(completion.values) !== JSON.stringify(step.expect)) throw new Error(JSON.stringify(completion));
        return completion.values;
    },
    async log(sdk, step, name) {
        await sdk.wantLogs('debug');
        const from = sdk.notifications.length;
        const logged = () => sdk.notifications.slice(from).find(one => one.method === 'notifications/message');
        await sdk.call(name(step.tool), step.arguments);
        const line = await until(async () => logged(), Boolean);
        if (step.undo) await sdk.call(name(step.tool), step.arguments);
        if (!line) throw new Error('no log notification came');
        return line.params;
    },
    async list_changed(sdk, step, name) {
        await sdk.subscribe(step.list);
        const method = `notifications/${step.list}/list_changed`;
        const from = sdk.notifications.length;
        // Asked more than once: the stream that carries notifications may open after the first call.
        const poke = async () => {
            await sdk.call(name(step.tool), substitute(step.arguments));
            await sleep(RETRY_MS * 3);
            return sdk.notifications.slice(from).some(one => one.method === method);
        };
        if (!(await until(poke, Boolean))) throw new Error(`no ${method} came`);
        return method;
    },
    async ping(sdk) {
        return sdk.ping();
    },
};

async function run() {
    const plan = JSON.parse(fs.readFileSync(options.plan, 'utf8').replaceAll('{data}', options.data));
    let sdk;
    try {
        sdk = await within(connect(options, plan.answers), STEP_MS, 'connect');
    } catch (error) {
        return report('connect', false, error.message);
    }
    const { revision, session, server } = sdk.about();
    report('connect', revision === options.revision && Boolean(server?.name), { revision, session, server });
    for (const step of selected(plan.steps, options)) {
        const check = `${step.server}: ${step.do} ${step.tool ?? step.prompt ?? step.uri ?? ''}`.trim();
        try {
            report(check, true, await within(kinds[step.do](sdk, step, name => exposed(options, step, name)), STEP_MS, check));
        } catch (error) {
            report(check, false, error.message);
        }
    }
    await within(sdk.close(), STEP_MS, 'close').then(
        () => report('close', true),
        error => report('close', false, error.message),
    );
}

await within(run(), ALL_MS, 'the whole plan').catch(error => report('plan', false, error.message));
process.exit(failed ? 1 : 0);
