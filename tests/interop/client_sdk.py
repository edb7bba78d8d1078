"""One face for every release of the Python SDK: 1.x (a legacy revision each) and 2.x (2026-07-28)."""

import contextlib
import os
from contextlib import asynccontextmanager

import anyio
from mcp import types

NAME = "moongate-interop-python"


def plain(model):
    """A result as JSON spells it."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


@asynccontextmanager
async def connect(options, answers):
    """Connects with the release at hand."""
    face = Face(options, answers)
    headers = {"Authorization": f"Bearer {options.key}"} if options.key else {}
    opened = connect_modern(options, face, headers) if options.sdk >= "2026" else connect_legacy(options, face, headers)
    async with opened:
        yield face


def launched(options):
    """Over stdio: the program that leads to the URL is launched, as a desktop client does."""
    from mcp.client.stdio import StdioServerParameters, stdio_client

    env = {"MOONGATE_KEY": options.key} if options.key else None
    command, args = os.environ["INTEROP_STDIO"], ["stdio", "--url", options.url]
    return stdio_client(StdioServerParameters(command=command, args=args, env=env))


@asynccontextmanager
async def connect_legacy(options, face, headers):
    from mcp.client.session import ClientSession
    from mcp.client.streamable_http import streamablehttp_client

    callbacks = face.callbacks()
    callbacks["client_info"] = types.Implementation(name=NAME, version="1.0.0")
    opened = launched(options) if os.environ.get("INTEROP_STDIO") else streamablehttp_client(options.url, headers=headers)
    opened = getattr(options, "transport", None) or opened
    finished = False
    try:
        async with opened as (reads, writes, *rest):
            session_id = rest[0] if rest else lambda: None
            async with ClientSession(reads, writes, **callbacks) as session:
                initialized = await session.initialize()
                face.session, face.client, face.session_id = session, session, session_id
                face.revision, face.server = initialized.protocolVersion, initialized.serverInfo
                yield
                finished = True
    except BaseExceptionGroup as group:
        # Release 1.x closes the session before it stops reading: what a server still says in between (a call that was
        # cancelled may go on) finds a stream that is closed, or closes meanwhile, in the SDK itself. Nothing else is
        # forgiven, and not before the end.
        late = (anyio.ClosedResourceError, anyio.BrokenResourceError)
        if not finished or group.split(late)[1] is not None:
            raise


@asynccontextmanager
async def connect_modern(options, face, headers):
    import httpx2
    from mcp.client.client import Client
    from mcp.client.streamable_http import streamable_http_client

    callbacks = face.callbacks()
    callbacks["client_info"] = types.Implementation(name=NAME, version="1.0.0")
    mode = "auto" if options.revision >= "2026" else "legacy"
    given = getattr(options, "transport", None)
    if given or os.environ.get("INTEROP_STDIO"):
        async with Client(given or launched(options), mode=mode, **callbacks) as client:
            face.session, face.client = client.session, client
            face.revision, face.server = client.protocol_version, client.server_info
            yield
        return
    # Without a timeout on reads, as the SDK's own client has: a stream may be silent for long.
    timeout = httpx2.Timeout(30, read=300)
    async with httpx2.AsyncClient(headers=headers, timeout=timeout) as http:
        transport = streamable_http_client(options.url, http_client=http)
        async with Client(transport, mode=mode, **callbacks) as client:
            face.session, face.client = client.session, client
            face.revision, face.server = client.protocol_version, client.server_info
            yield


class Face:
    """What a plan needs of the SDK."""

    def __init__(self, options, answers):
        self.options, self.answers = options, answers
        self.modern = options.sdk >= "2026"
        self.asked, self.logs, self.changes = {}, [], []
        self.session = self.client = self.server = None
        self.revision, self.session_id, self.log_level = "", lambda: None, None

    def callbacks(self):
        def asked(kind, answer):
            async def callback(context, params=None):
                self.asked[kind] = self.asked.get(kind, 0) + 1
                return answer

            return callback

        async def log(params):
            self.logs.append(params)

        async def message(incoming):
            method = getattr(getattr(incoming, "root", incoming), "method", "") or ""
            if method.endswith("/list_changed"):
                self.changes.append(method.split("/")[1])

        answers, made = self.answers, {"logging_callback": log, "message_handler": message}
        made["sampling_callback"] = asked("sampling", types.CreateMessageResult.model_validate(answers["sampling"]))
        made["list_roots_callback"] = asked("roots", types.ListRootsResult.model_validate({"roots": answers["roots"]}))
        if self.options.sdk >= "2025-06-18":
            made["elicitation_callback"] = asked("elicitation", types.ElicitResult.model_validate(answers["elicitation"]))
        return made

    def about(self):
        server = plain(self.server) if self.server else None
        return {"revision": self.revision, "session": self.session_id(), "server": server}

    async def pages(self, method, field):
        """Walks the pages of a list; past what a cache of the SDK may hold."""
        items, cursor, fresh = [], None, {"cache_mode": "refresh"} if self.modern else {}
        for _ in range(50):
            if cursor is None:
                result = await getattr(self.client, method)(**fresh)
            else:
                result = await getattr(self.client, method)(cursor=cursor, **fresh)
            items += plain(result)[field]
            cursor = getattr(result, "next_cursor" if self.modern else "nextCursor")
            if not cursor:
                return items
        raise AssertionError(f"{method} has no last page")

    async def tool_names(self):
        return [tool["name"] for tool in await self.pages("list_tools", "tools")]

    async def prompt_names(self):
        return [prompt["name"] for prompt in await self.pages("list_prompts", "prompts")]

    async def resource_uris(self):
        return [resource["uri"] for resource in await self.pages("list_resources", "resources")]

    async def template_uris(self):
        return [template["uriTemplate"] for template in await self.pages("list_resource_templates", "resourceTemplates")]

    async def call(self, name, arguments, progress=None):
        meta = {"meta": {"io.modelcontextprotocol/logLevel": self.log_level}} if self.log_level else {}
        return await self.client.call_tool(name, arguments or {}, progress_callback=progress, **meta)

    async def call_and_cancel(self, name, arguments):
        """Cancels the call at its first progress. Release 1.x tells no server by itself when a call is given up."""
        legacy_id = getattr(self.session, "_request_id", None)
        with anyio.CancelScope() as scope:

            async def cancel(progress, total, message):
                if not self.modern:
                    params = types.CancelledNotificationParams(requestId=legacy_id, reason="interop cancels")
                    cancelled = types.CancelledNotification(method="notifications/cancelled", params=params)
                    await self.session.send_notification(types.ClientNotification(cancelled))
                scope.cancel()

            await self.call(name, arguments, cancel)
            raise AssertionError("finished all the same")

    async def read(self, uri):
        return await self.client.read_resource(uri if self.modern else types.AnyUrl(uri))

    async def prompt(self, name, arguments):
        return await self.client.get_prompt(name, arguments)

    async def complete(self, prompt, argument):
        ref = types.PromptReference(type="ref/prompt", name=prompt)
        pair = {"name": argument["name"], "value": argument["value"]}
        return (await self.client.complete(ref, pair)).completion.values

    async def ping(self):
        return await self.client.send_ping()

    async def want_logs(self, level):
        """Legacy sessions set a level; modern requests carry it."""
        if self.revision >= "2026":
            self.log_level = level
        else:
            await self.client.set_logging_level(level)

    @asynccontextmanager
    async def subscribed(self, changing):
        """Legacy sessions are told unasked; modern clients listen."""
        if self.revision < "2026":
            yield
            return
        async with self.client.listen(**{f"{changing}_list_changed": True}) as subscription:
            async with anyio.create_task_group() as tasks:

                async def note():
                    async for _ in subscription:
                        self.changes.append(changing)

                tasks.start_soon(note)
                with contextlib.ExitStack() as stack:
                    stack.callback(tasks.cancel_scope.cancel)
                    yield
