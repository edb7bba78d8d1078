"""A server of revision 2026-07-28 on the official Python SDK 2.x, for the interop tests.

    python server.py stdio | http      (http: a free loopback port, printed on stderr; ends with its stdin)

The same tools as server.mjs, so that one plan checks both.
"""

import os
import socket
import sys
import threading
from typing import Annotated

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, ListRoots, Resolve, Sample
from mcp_types import (
    CallToolResult,
    Completion,
    CreateMessageResult,
    ListRootsResult,
    PromptReference,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel

CITIES = ["Lisbon", "London", "Lyon", "Oslo"]
server = MCPServer("interop-python", version="1.0.0", instructions="A server for interop tests.")
cancelled = 0


class Sum(BaseModel):
    sum: int


class Who(BaseModel):
    name: str


@server.tool(description="Adds two numbers")
async def add(a: int, b: int) -> Annotated[CallToolResult, Sum]:
    return CallToolResult(content=[TextContent(type="text", text=str(a + b))], structured_content={"sum": a + b})


@server.tool(description="Counts, with progress", structured_output=False)
async def count(steps: int, ctx: Context, milliseconds: int = 20) -> str:
    global cancelled
    try:
        for progress in range(1, steps + 1):
            await anyio.sleep(milliseconds / 1000)
            await ctx.report_progress(progress, steps)
    except anyio.get_cancelled_exc_class():
        cancelled += 1
        raise
    return f"counted to {steps}"


@server.tool(description="How many counts were cancelled", structured_output=False)
async def cancellations() -> str:
    return str(cancelled)


@server.tool(description="Logs a line", structured_output=False)
async def log(ctx: Context) -> str:
    await ctx.warning("a line from the log tool", logger_name="interop")
    return "logged"


@server.tool(description="Fails", structured_output=False)
async def fail() -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text="it broke")], is_error=True)


@server.tool(description="Adds a tool", structured_output=False)
async def grow(name: str, ctx: Context) -> str:
    async def grown() -> str:
        return name

    server.add_tool(grown, name=name, description="Appeared while the server ran", structured_output=False)
    await ctx.notify_tools_changed()
    return f"grew {name}"


async def ask_who() -> Elicit[Who]:
    return Elicit("Who are you?", Who)


async def ask_model() -> Sample:
    said = TextContent(type="text", text="Say something")
    return Sample([SamplingMessage(role="user", content=said)], max_tokens=50)


async def ask_roots() -> ListRoots:
    return ListRoots()


@server.tool(description="Asks the user for a name", structured_output=False)
async def ask(who: Annotated[Who, Resolve(ask_who)]) -> str:
    return f"hello {who.name}"


@server.tool(description="Asks the client for a completion", structured_output=False)
async def sample(said: Annotated[CreateMessageResult, Resolve(ask_model)]) -> str:
    return f"model said {said.content}"


@server.tool(description="Asks the client for its roots", structured_output=False)
async def roots(listed: Annotated[ListRootsResult, Resolve(ask_roots)]) -> str:
    return " ".join(str(root.uri) for root in listed.roots)


@server.resource("interop-py://greeting", mime_type="text/plain")
async def greeting() -> str:
    return "hello from python"


@server.resource("interop-py://item/{id}", mime_type="text/plain")
async def item(id: str) -> str:
    return f"item {id}"


@server.prompt(description="A trip")
async def visit(city: str) -> str:
    return f"Plan a visit to {city}."


@server.completion()
async def complete(ref, argument, context):
    if isinstance(ref, PromptReference) and argument.name == "city":
        return Completion(values=[city for city in CITIES if city.startswith(argument.value)])
    return None


def serve_http() -> None:
    import uvicorn

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}", file=sys.stderr, flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    serve_http() if sys.argv[1:] == ["http"] else server.run("stdio")
