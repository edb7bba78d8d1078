#!/usr/bin/env python3
"""Serves the files of a folder on loopback, for install_script.sh.

    file_server.py FOLDER LOG

Prints its port. LOG gets the path of each request. Below `/cut/`, an answer ends in the middle of
the file; below `/slow/`, it doesn't come.
"""

import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FOLDER, LOG = Path(sys.argv[1]), Path(sys.argv[2])


class FileHandler(BaseHTTPRequestHandler):
    """Answers one request."""

    def do_GET(self) -> None:
        """Sends the file, or what its folder stands for."""
        with LOG.open("a") as log:
            print(self.path, file=log)
        kind, name = self.path.split("/")[1:3]
        path = FOLDER / (name if kind in ("cut", "slow") else f"{kind}/{name}")
        if kind == "slow" and name != "SHA256SUMS":
            time.sleep(30)
        if not path.is_file():
            self.send_error(404)
            return
        data = path.read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        is_cut = kind == "cut" and name != "SHA256SUMS"
        self.wfile.write(data[: len(data) // 2] if is_cut else data)

    def log_message(self, *_: object) -> None:
        """Says nothing on stderr."""


server = ThreadingHTTPServer(("127.0.0.1", 0), FileHandler)
server.daemon_threads = True
print(server.server_address[1], flush=True)
server.serve_forever()
