// How a plan file is read: which of its steps apply, under which names, and what an answer must hold.
//
// A plan is {"answers": what the client answers when asked, "steps": [...]}. A step has "do" (its kind), "server",
// what the kind needs, "expect", and where it applies: "modes" (direct: at the server itself; server: at the
// gateway's endpoint of that server; aggregate: at the gateway's endpoint of all), "since" and "until" (revisions).

/** The steps that apply, in order. */
export function selected(steps, { mode, revision, servers }) {
    const wanted = servers.split(',').filter(Boolean);
    return steps.filter(
        step =>
            (wanted.length === 0 || wanted.includes(step.server)) &&
            (step.modes ?? [mode]).includes(mode) &&
            revision >= (step.since ?? '') &&
            revision <= (step.until ?? '9999'),
    );
}

/** The name under which the endpoint exposes a tool or a prompt of the step's server. */
export function exposed({ mode }, step, name) {
    return mode === 'aggregate' ? `${step.server}__${name}` : name;
}

/** The arguments with "{unique}" replaced by a word that no other call used. */
export function substitute(args) {
    const unique = `${process.pid}-${process.hrtime.bigint() % 1_000_000_000n}`;
    return JSON.parse(JSON.stringify(args ?? {}).replaceAll('{unique}', unique));
}

/** What is wrong with a result; nothing if it holds what is expected. */
export function matches(expect, result) {
    const whole = JSON.stringify(result);
    const blocks = result.content ?? [];
    for (const part of expect.contains ?? []) {
        // As JSON spells it inside of a string.
        if (!whole.includes(JSON.stringify(part).slice(1, -1))) return `no ${JSON.stringify(part)}`;
    }
    if (expect.text !== undefined && blocks[0]?.text !== expect.text) return `the text is not ${JSON.stringify(expect.text)}`;
    const types = blocks.map(block => block.type).join(' ');
    if (expect.types !== undefined && types !== expect.types.join(' ')) return `the blocks are ${types}`;
    const structured = JSON.stringify(result.structuredContent);
    if (expect.structured !== undefined && structured !== JSON.stringify(expect.structured)) return 'other structured content';
    if ((expect.isError ?? false) !== (result.isError ?? false)) return `isError is ${result.isError}`;
    return undefined;
}
