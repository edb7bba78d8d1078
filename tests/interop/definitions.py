"""Lists definitions with the official Python SDK, as definitions.mjs does: the same options, the same lines."""

import argparse
import json
import sys
from contextlib import asynccontextmanager

import anyio
import client_sdk

ANSWERS = {
    "sampling": {"role": "assistant", "content": {"type": "text", "text": ""}, "model": "none"},
    "roots": [],
    "elicitation": {"action": "decline"},
}
LISTS = {
    "tools": "list_tools",
    "prompts": "list_prompts",
    "resources": "list_resources",
    "resourceTemplates": "list_resource_templates",
}
CAPABILITIES = {"tools": {}, "prompts": {}, "resources": {}}


class ListingServer:
    """A server in this process that lists whatever it is given."""

    def __init__(self, options):
        self.options, self.kind, self.texts = options, "tools", []

    def result(self, method):
        modern = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        if method == "initialize":
            info = {"name": "definitions", "version": "1.0.0"}
            return json.dumps({"protocolVersion": self.options.revision, "capabilities": CAPABILITIES, "serverInfo": info})
        if method == "server/discover":
            return json.dumps({**modern, "supportedVersions": [self.options.revision], "capabilities": CAPABILITIES})
        head = json.dumps(modern)[1:-1] + "," if self.options.revision >= "2026" else ""
        return f'{{{head}"{self.kind}":[{",".join(self.texts)}]}}'

    def parse(self, text):
        """The message, parsed as the SDK parses a body."""
        from mcp.shared.message import SessionMessage

        try:
            if self.options.sdk >= "2026":
                from mcp_types.jsonrpc import jsonrpc_message_adapter

                return SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
            from mcp.types import JSONRPCMessage

            return SessionMessage(JSONRPCMessage.model_validate_json(text))
        except ValueError as error:
            return error

    @asynccontextmanager
    async def transport(self):
        to_client, reads = anyio.create_memory_object_stream(8)
        writes, from_client = anyio.create_memory_object_stream(8)

        async def serve():
            async for sent in from_client:
                message = getattr(sent.message, "root", sent.message)
                if getattr(message, "id", None) is None:
                    continue
                text = f'{{"jsonrpc":"2.0","id":{json.dumps(message.id)},"result":{self.result(message.method)}}}'
                answer = self.parse(text)
                if isinstance(answer, ValueError):
                    # The SDK would wait for ever.
                    error = {"code": -32700, "message": f"unreadable: {answer}"}
                    answer = self.parse(json.dumps({"jsonrpc": "2.0", "id": message.id, "error": error}))
                await to_client.send(answer)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            yield reads, writes
            tasks.cancel_scope.cancel()


def report(line):
    sys.stdout.write(json.dumps(line) + "\n")


async def listed(face, kind):
    try:
        with anyio.fail_after(30):
            return {"listed": await face.pages(LISTS[kind], "resourceTemplates" if kind == "resourceTemplates" else kind)}
    except Exception as error:  # noqa: BLE001
        return {"refused": str(error)[:2000] or repr(error)}


async def main(options):
    with open(options.definitions, encoding="utf-8") as file:
        definitions = json.load(file)
    server = ListingServer(options)
    options.transport = server.transport()
    async with client_sdk.connect(options, ANSWERS) as face:
        for number, item in enumerate(definitions["items"]):
            server.kind, server.texts = item["kind"], [definitions["good"][item["kind"]], item["text"]]
            found = await listed(face, item["kind"])
            whole = len(found.get("listed", [])) == 2
            report({"item": number, **({"listed": found["listed"][1]} if whole else {"refused": found.get("refused", "left out")})})
    options.transport = None
    for path in filter(None, options.paths.split(",")):
        place = argparse.Namespace(**{**vars(options), "url": options.url + ("" if path == "/" else path)})
        async with client_sdk.connect(place, ANSWERS) as face:
            for kind in LISTS:
                report({"path": path, "kind": kind, **(await listed(face, kind))})


parser = argparse.ArgumentParser()
for name in ["sdk", "revision", "definitions", "url", "paths", "key"]:
    parser.add_argument(f"--{name}", default="" if name == "paths" else None)
arguments = parser.parse_args()
arguments.revision = arguments.revision or arguments.sdk
anyio.run(main, arguments)
