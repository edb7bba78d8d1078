"""The gateway as the client under test: the suite runs `client.py URL`, where URL is the suite's own server.

Starts the gateway with that server behind it, drives it from downstream with the Python SDK as the scenario says, and
ends it. In the scenarios of authorization, it logs in first (`browser_login.py`). MOONGATE is the program, REFERENCE
the directory of the SDK's reference client, whose handlers are used wherever they go on after a call that fails as it
should.
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
import urllib.parse
import urllib.request

import browser_login

sys.path.insert(0, os.environ["REFERENCE"])
import client as reference  # noqa: E402

# How long the gateway may take to listen, and to connect.
START_SECONDS = 20
# How long a scenario may take.
RUN_SECONDS = 30
# How long the gateway may take to notice a login.
NOTICE_SECONDS = 10
# The client document that the suite expects where the authorization server takes one. Nobody fetches it.
CLIENT_DOCUMENT = "https://conformance-test.local/client-metadata.json"


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


async def call_first_tool(url):
    """Lists and calls: one of them needs a login, or both."""
    async with reference.Client(url, mode=reference.client_mode()) as client:
        tools = (await client.list_tools()).tools
        assert tools, "the gateway hides what the server lists"
        result = await client.call_tool(tools[0].name, {})
        assert not result.is_error, result


def call_with_login(config, url):
    """Calls, and logs in again if the call needs more than the login gave. The gateway notices that by itself."""
    try:
        return within_time(call_first_tool(url))
    except Exception as error:
        print(f"driver: {type(error).__name__}: {error}", file=sys.stderr)
    browser_login.log_in(config)
    deadline = time.monotonic() + NOTICE_SECONDS
    while True:
        try:
            return within_time(call_first_tool(url))
        except Exception:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.2)


def within_time(what):
    return asyncio.run(asyncio.wait_for(what, RUN_SECONDS))


OWN = {"request-metadata": request_metadata, "http-standard-headers": standard_headers}


def drive(scenario, config, url):
    """Drives the gateway as a scenario says."""
    if needs_person(scenario):
        call_with_login(config, url)
    elif needs_login(scenario):
        within_time(call_first_tool(url))
    else:
        handler = OWN.get(scenario) or reference.HANDLERS[scenario]
        within_time(handler(url))


def needs_login(scenario):
    return scenario.startswith("auth/")


def needs_person(scenario):
    return needs_login(scenario) and not scenario.startswith("auth/client-credentials")


def issuer_of(upstream):
    """Returns the authorization server of a server, as a person would read it in its metadata."""
    server = urllib.parse.urlsplit(upstream)
    path = f"/.well-known/oauth-protected-resource{server.path}"
    # A proxy of the environment does not reach this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(server._replace(path=path).geturl(), timeout=RUN_SECONDS) as response:
        return json.load(response)["authorization_servers"][0]


def auth_of(scenario, upstream):
    """Returns `servers.upstream.auth`: what a person would have to write there."""
    if scenario == "auth/basic-cimd":
        return {"client_id_url": CLIENT_DOCUMENT}
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    if not needs_person(scenario):
        issuer = issuer_of(upstream)
        auth = {"type": "client_credentials", "client_id": context["client_id"], "issuer": issuer}
        if "client_secret" in context:
            return {**auth, "client_secret": context["client_secret"]}
        # The suite takes no other audience.
        return {**auth, "private_key": context["private_key_pem"], "audience": issuer}
    return {key: context[key] for key in ("client_id", "client_secret") if key in context}


def write_config(scenario, upstream, directory):
    """Writes the config for a scenario. Returns its path."""
    config = {
        "gateway": {"listen": "127.0.0.1:0", "admin": False, "drain": "1s"},
        "servers": {"upstream": {"url": upstream}},
    }
    if needs_login(scenario):
        config["gateway"]["state_dir"] = str(directory / "state")
        # The suite's authorization server is on another port than its server.
        config["egress"] = {"allow": ["localhost"]}
        auth = auth_of(scenario, upstream)
        if auth:
            config["servers"]["upstream"]["auth"] = auth
    path = directory / "moongate.json"
    path.write_text(json.dumps(config))
    return path


def start(config):
    """Starts the gateway; gives it and the URL of the server's own endpoint once the server is connected."""
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
    try:
        return program, await_connection(lines)
    except BaseException:
        program.kill()
        raise


def await_connection(lines):
    """Waits until the gateway listens and its server is connected. Returns the URL of the server's own endpoint."""
    deadline = time.monotonic() + START_SECONDS
    url, connected = None, False
    while not (url and connected):
        line = lines.get(timeout=max(deadline - time.monotonic(), 0.001))
        assert line, "the gateway ended"
        listening = re.search(r"http://127\.0\.0\.1:\d+/mcp", line)
        url = url or listening and f"{listening[0]}/upstream"
        connected = connected or "connected server=\"upstream\"" in line
    return url


def main():
    scenario, upstream = os.environ["MCP_CONFORMANCE_SCENARIO"], sys.argv[-1]
    with tempfile.TemporaryDirectory() as directory:
        config = write_config(scenario, upstream, pathlib.Path(directory))
        if needs_person(scenario):
            browser_login.log_in(config)
        program, url = start(config)
        try:
            drive(scenario, config, url)
        finally:
            program.send_signal(signal.SIGTERM)
            status = program.wait(10)
    assert status == 0, f"the gateway ended with {status}"


if __name__ == "__main__":
    main()
