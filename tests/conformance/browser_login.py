"""Logs in as a person does: runs `moongate login`, opens the address that it prints, and reads the page at the end.

The suite's authorization server asks nothing. It redirects to the address where the command waits.
"""

import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

# How long the command may take to print the address, to exchange the code, and to check the server.
LOGIN_SECONDS = 25
# What the page says after a login that worked.
LOGGED_IN = "<h1>You are logged in</h1>"
# How often somebody would try again. The suite allows three authorization requests.
LOGINS_MAX = 2


def browse(address):
    """Opens an address, follows its redirects, and returns the last page, even that of an error."""
    # A proxy of the environment does not reach this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(address, timeout=LOGIN_SECONDS) as response:
            return response.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode(errors="replace")


class LoginCommand:
    """`moongate login`, running. Its stdin stays open, as in a terminal."""

    def __init__(self, config):
        self.program = subprocess.Popen(
            [os.environ["MOONGATE"], "login", "upstream", "--no-browser", "--config", str(config)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        self.lines = []
        self.reader = threading.Thread(target=self.follow, daemon=True)
        self.reader.start()

    def follow(self):
        for line in self.program.stdout:
            print(f"login: {line}", end="", file=sys.stderr)
            self.lines.append(line.strip())

    def address(self):
        """Waits for the address. None: the command ended without one."""
        deadline = time.monotonic() + LOGIN_SECONDS
        while time.monotonic() < deadline:
            found = [line for line in list(self.lines) if line.startswith("http") and "response_type=code" in line]
            if found:
                return found[0]
            if not self.reader.is_alive():
                return None
            time.sleep(0.02)
        return None

    def run(self):
        """Goes through the login. Returns true if the command says that the server works with it."""
        try:
            address = self.address()
            if address is None:
                return False
            page = browse(address)
            if LOGGED_IN not in page:
                print(f"login: the browser ends on: {page}", file=sys.stderr)
                return False
            return self.program.wait(LOGIN_SECONDS) == 0
        except (OSError, subprocess.TimeoutExpired) as error:
            print(f"login: {error}", file=sys.stderr)
            return False
        finally:
            # A refused answer leaves it waiting for another one.
            self.program.kill()
            self.program.wait()


def log_in(config):
    """Logs in, and once more if the server refuses the new login."""
    for _ in range(LOGINS_MAX):
        if LoginCommand(config).run():
            return
    raise SystemExit("the login does not work")
