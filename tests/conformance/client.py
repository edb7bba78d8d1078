"""The gateway as the client under test: the suite runs `client.py URL`, where URL is the suite's own server.

Starts the gateway with that server behind it, drives it from downstream with the Python SDK as the scenario says, and
ends it. MOONGATE is the program, REFERENCE the directory of the SDK's reference client, whose handlers are used wherever
they go on after a call that fails as it should.
"""

import asyncio
import json
import os
import pathlib
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.environ["REFERENCE"])
import client as reference  # noqa: E402

# How long the gateway may take to listen, and to connect.
START_SECONDS = 20
# How long a scenario may take.
RUN_SECONDS = 30


async def tried(what):
    """Awaits a call whose failure is part of the scenario; says so on stderr."""
    try:
        return await what
    except Exception as error:
        print(f"driver: {type(error).__name__}: {error}", file=sys.stderr)
        return None


async def request_metadata(url):
    """Every capability declared; the tool that is called is in no list."""
    async with reference.Client(
        url,
        mode=reference.client_mode(),
        sampling_callback=reference.stub_sampling_callback,
        list_roots_callback=reference.stub_list_roots_callback,
        elicitation_callback=reference.default_elicitation_callback,
    ) as client:
        await client.list_tools()
        await tried(client.call_tool("add_numbers", {"a": 5, "b": 3}))


async def standard_headers(url):
    """One call, one read, one prompt, each whatever became of the one before."""
    async with reference.Client(url, mode=reference.client_mode()) as client:
        tools = (await client.list_tools()).tools
        resources = (await client.list_resources()).resources
        prompts = (await client.list_prompts()).prompts
        assert tools and resources and prompts, "the gateway hides what the server lists"
        for tool in tools:
            await tried(client.call_tool(tool.name, reference._stub_required_args(tool.input_schema)))
        for resource in resources:
            await tried(client.read_resource(resource.uri))
        for prompt in prompts:
            await tried(client.get_prompt(prompt.name))


OWN = {"request-metadata": request_metadata, "http-standard-headers": standard_headers}


def start(upstream, directory):
    """Starts the gateway; gives it and the URL of the server's own endpoint once the server is connected."""
    config = directory / "moongate.json"
    gateway = {"listen": "127.0.0.1:0", "admin": False, "drain": "1s"}
    config.write_text(json.dumps({"gateway": gateway, "servers": {"upstream": {"url": upstream}}}))
    program = subprocess.Popen(
        [os.environ["MOONGATE"], "serve", "--config", str(config)],
        stdin=subprocess.DEVNULL, stdout=sys.stderr, stderr=subprocess.PIPE, text=True,
    )
    lines = queue.Queue()

    def follow():
        for line in program.stderr:
            print(line, end="", file=sys.stderr)
            lines.put(line)
        lines.put("")

    threading.Thread(target=follow, daemon=True).start()
    deadline = time.monotonic() + START_SECONDS
    url, connected = None, False
    while not (url and connected):
        line = lines.get(timeout=max(deadline - time.monotonic(), 0.001))
        assert line, "the gateway ended"
        listening = re.search(r"http://127\.0\.0\.1:\d+/mcp", line)
        url = url or listening and f"{listening[0]}/upstream"
        connected = connected or "connected server=\"upstream\"" in line
    return program, url


def main():
    scenario, upstream = os.environ["MCP_CONFORMANCE_SCENARIO"], sys.argv[-1]
    handler = OWN.get(scenario) or reference.HANDLERS[scenario]
    with tempfile.TemporaryDirectory() as directory:
        program, url = start(upstream, pathlib.Path(directory))
        try:
            asyncio.run(asyncio.wait_for(handler(url), RUN_SECONDS))
        finally:
            program.send_signal(signal.SIGTERM)
            status = program.wait(10)
    assert status == 0, f"the gateway ended with {status}"


if __name__ == "__main__":
    main()
