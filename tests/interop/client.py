"""Runs a plan of checks with the official Python SDK: one JSON line a check on stdout, exit code 0 or 1.

    python client.py --url URL --plan FILE --sdk REVISION [--revision R] [--mode direct|server|aggregate]
                     [--servers a,b] [--data DIR] [--key KEY]

The twin of client.mjs (see there for the options, and plan.mjs for the plan); the SDK is whichever release the
interpreter has, and --sdk says the newest revision that one knows.
"""

import argparse
import json
import os
import sys
import time
import traceback

import anyio
from client_sdk import connect, plain

STEP_SECONDS = 60
ALL_SECONDS = 240
RETRY_SECONDS = 0.3


def options():
    parser = argparse.ArgumentParser()
    for name in ("url", "plan", "sdk", "revision", "servers", "data", "key"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--mode", default="direct")
    parsed = parser.parse_args()
    parsed.revision = parsed.revision or parsed.sdk
    return parsed


def selected(steps, chosen):
    wanted = [name for name in (chosen.servers or "").split(",") if name]
    return [
        step
        for step in steps
        if (not wanted or step["server"] in wanted)
        and chosen.mode in step.get("modes", [chosen.mode])
        and step.get("since", "") <= chosen.revision <= step.get("until", "9999")
    ]


def check(holds, otherwise):
    if not holds:
        raise AssertionError(str(otherwise)[:700])


def substitute(arguments):
    unique = f"{os.getpid()}-{time.monotonic_ns() % 1_000_000_000}"
    return json.loads(json.dumps(arguments or {}).replace("{unique}", unique))


def expect_match(step, result):
    expect, result = step.get("expect", {}), plain(result)
    whole, blocks = json.dumps(result, ensure_ascii=False), result.get("content") or []
    for part in expect.get("contains", []):
        check(json.dumps(part, ensure_ascii=False)[1:-1] in whole, f"no {part!r} in {whole}")
    if "text" in expect:
        check(blocks and blocks[0].get("text") == expect["text"], f"the text is not {expect['text']!r}: {whole}")
    if "types" in expect:
        check([block["type"] for block in blocks] == expect["types"], whole)
    if "structured" in expect:
        check(result.get("structuredContent") == expect["structured"], whole)
    check(bool(expect.get("isError")) == bool(result.get("isError")), f"isError is {result.get('isError')}: {whole}")


class Checks:
    """One method for each kind of step; they answer a detail or raise."""

    def __init__(self, sdk, mode):
        self.sdk, self.mode = sdk, mode

    def name(self, step, name):
        return f"{step['server']}__{name}" if self.mode == "aggregate" else name

    async def until(self, ask, satisfied):
        deadline = anyio.current_time() + STEP_SECONDS - 5
        while True:
            value = await ask()
            if satisfied(value) or anyio.current_time() > deadline:
                return value
            await anyio.sleep(RETRY_SECONDS)

    def expect_all(self, wanted, have):
        check(not set(wanted) - set(have), f"missing {sorted(set(wanted) - set(have))} among {len(have)}: {have[:40]}")
        return f"{len(have)} listed"

    async def tools(self, step):
        wanted = [self.name(step, name) for name in step["expect"]]
        return self.expect_all(wanted, await self.until(self.sdk.tool_names, lambda have: set(wanted) <= set(have)))

    async def prompts(self, step):
        return self.expect_all([self.name(step, name) for name in step["expect"]], await self.sdk.prompt_names())

    async def resources(self, step):
        return self.expect_all(step["expect"], await self.sdk.resource_uris())

    async def templates(self, step):
        return self.expect_all(step["expect"], await self.sdk.template_uris())

    async def call(self, step):
        asked = self.sdk.asked.get(step.get("asks"), 0)
        result = await self.sdk.call(self.name(step, step["tool"]), step.get("arguments"))
        expect_match(step, result)
        if "asks" in step:
            check(self.sdk.asked.get(step["asks"], 0) > asked, f"the client was not asked for {step['asks']}")
        return " ".join(block.type for block in result.content)

    async def unknown(self, step):
        try:
            result = plain(await self.sdk.call(self.name(step, step["tool"]), {}))
        except Exception as error:
            return str(error)
        check(result.get("isError"), f"answered {result}")
        return result["content"][0].get("text")

    async def progress(self, step):
        seen = []

        async def note(progress, total, message):
            seen.append(progress)

        result = await self.sdk.call(self.name(step, step["tool"]), step.get("arguments"), note)
        before = list(seen)
        expect_match(step, result)
        check(before == list(range(1, step["count"] + 1)), f"progress before the result: {before}")
        return before

    async def cancel(self, step):
        await self.sdk.call_and_cancel(self.name(step, step["tool"]), step.get("arguments"))
        if "counter" not in step:
            return "cancelled"

        async def counted():
            result = await self.sdk.call(self.name(step, step["counter"]), {})
            return int(result.content[0].text)

        count = await self.until(counted, lambda value: value > 0)
        check(count > 0, "the server never heard of it")
        return f"the server saw {count}"

    async def read(self, step):
        result = await self.sdk.read(step["uri"])
        expect_match(step, result)
        return len(result.contents)

    async def prompt(self, step):
        result = await self.sdk.prompt(self.name(step, step["prompt"]), step.get("arguments"))
        expect_match(step, result)
        return len(result.messages)

    async def complete(self, step):
        values = await self.sdk.complete(self.name(step, step["prompt"]), step["argument"])
        check(values == step["expect"], values)
        return values

    async def log(self, step):
        await self.sdk.want_logs("debug")
        start = len(self.sdk.logs)
        await self.sdk.call(self.name(step, step["tool"]), step.get("arguments"))

        async def logged():
            return self.sdk.logs[start:]

        lines = await self.until(logged, bool)
        if step.get("undo"):
            await self.sdk.call(self.name(step, step["tool"]), step.get("arguments"))
        check(lines, "no log notification came")
        return plain(lines[0])

    async def list_changed(self, step):
        async with self.sdk.subscribed(step["list"]):
            start = len(self.sdk.changes)

            async def poke():
                # Asked more than once: the stream that carries notifications may open after the first call.
                await self.sdk.call(self.name(step, step["tool"]), substitute(step.get("arguments")))
                await anyio.sleep(RETRY_SECONDS * 3)
                return step["list"] in self.sdk.changes[start:]

            check(await self.until(poke, bool), f"no {step['list']}/list_changed came")
        return step["list"]

    async def ping(self, step):
        return plain(await self.sdk.ping())


failed = False


def report(name, ok, detail=None):
    global failed
    failed = failed or not ok
    print(json.dumps({"check": name, "ok": ok, "detail": detail}, default=str), flush=True)


def reason(error):
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


async def run(chosen):
    with open(chosen.plan, encoding="utf-8") as file:
        plan = json.loads(file.read().replace("{data}", chosen.data or ""))
    async with connect(chosen, plan["answers"]) as sdk:
        about = sdk.about()
        report("connect", about["revision"] == chosen.revision and bool(about["server"]), about)
        checks = Checks(sdk, chosen.mode)
        for step in selected(plan["steps"], chosen):
            name = f"{step['server']}: {step['do']} {step.get('tool', step.get('prompt', step.get('uri', '')))}".strip()
            try:
                with anyio.fail_after(STEP_SECONDS):
                    report(name, True, await getattr(checks, step["do"])(step))
            except Exception as error:
                report(name, False, reason(error))
    report("close", True)


async def main(chosen):
    try:
        with anyio.fail_after(ALL_SECONDS):
            await run(chosen)
    except Exception as error:
        traceback.print_exc()
        report("plan", False, reason(error))


anyio.run(main, options())
sys.stdout.flush()
sys.exit(1 if failed else 0)
