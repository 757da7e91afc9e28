"""A key server for the state of tests, which speaks as Vault's transit engine does.

Pulumi derives the key to a state from the passphrase in every command: most of the work of a small one. Behind a key
server there is nothing to derive. What is "encrypted" here can be read by anyone; it is the state of a test.
"""

import json
import threading
from base64 import b64encode
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import yaml

MARK = "vault:v1:"


class _Transit(BaseHTTPRequestHandler):
    def do_PUT(self) -> None:
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "ciphertext" in given:
            answer = {"plaintext": given["ciphertext"].removeprefix(MARK)}
        else:
            answer = {"ciphertext": MARK + given["plaintext"]}
        body = json.dumps({"data": answer}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@cache
def url() -> str:
    """Where the server of this process is; it ends with the process."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Transit)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def use(stack_file: Path) -> dict[str, str]:
    """Give a stack's key to the server, and return the variables with which Pulumi finds it."""
    settings = yaml.safe_load(stack_file.read_text())
    settings.pop("encryptionsalt", None)
    key = MARK + b64encode(bytes(32)).decode()
    stack_file.write_text(
        yaml.safe_dump(
            settings
            | {
                "secretsprovider": "hashivault://tests",
                "encryptedkey": b64encode(key.encode()).decode(),
            }
        )
    )
    return {"VAULT_SERVER_URL": url(), "VAULT_SERVER_TOKEN": "none"}
