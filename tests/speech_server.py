"""A real HTTP server that speaks OpenAI's audio API and hears `tests.tones`; a program too, for tests that kill it."""

import argparse
import base64
import hashlib
import io
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from tests.tones import RATE, listen

MODEL = "tones.en"
ROOT = Path(__file__).resolve().parents[1]


@dataclass
class Heard:
    """A request that was answered with a text."""

    path: str
    form: dict[str, Any]
    samples: np.ndarray
    container: str
    authorization: str | None

    @property
    def seconds(self):
        return len(self.samples) / RATE


@dataclass
class Fault:
    """What a request is answered with instead of a text; or nothing, when the connection is to break."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    breaks: bool = False


class SpeechServer:
    """Serves in threads of its own until closed.

    ``faults`` are given out one a request, in order; ``judge`` sees each clip and may return a fault as well; ``hold``
    keeps answers back until it is set; ``delay`` is slept before each answer.
    """

    def __init__(
        self, models=(MODEL,), *, port=0, language="en", judge: Callable | None = None, log: Path | None = None
    ):
        self.models = list(models)
        self.language = language
        self.judge = judge
        self.delay = 0.0
        self.hold = threading.Event()
        self.hold.set()
        self.faults: deque[Fault] = deque()
        self.verbose = True
        self.heard: list[Heard] = []
        self.arrivals: list[float] = []
        self.gone = 0
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()
        self._log = log
        self._connections: list[socket.socket] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format, *args):  # noqa: A002
                pass

            def do_GET(self):
                server.answer(self, 200, {"object": "list", "data": [{"id": name} for name in server.models]})

            def do_POST(self):
                server.post(self)

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def process_request(self, request, client_address):
                server._connections.append(request)
                super().process_request(request, client_address)

            def handle_error(self, request, client_address):
                pass

        self._server = Server(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def port(self):
        return self._server.server_port

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.hold.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def answer(self, handler, status, document, headers=()):
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        handler.send_response(status)
        for name, value in dict(headers).items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def post(self, handler):
        data = handler.rfile.read(int(handler.headers["Content-Length"]))
        with self._lock:
            self.arrivals.append(time.monotonic())
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            fault = self.faults.popleft() if self.faults else None
        try:
            heard = _read(handler, data)
            time.sleep(self.delay)
            self.hold.wait(20)
            if _is_gone(handler):
                self.gone += 1
                return
            fault = fault or (self.judge(heard) if self.judge is not None else None)
            if fault is None:
                self._reply(handler, heard)
            elif fault.breaks:
                handler.close_connection = True
                handler.connection.close()
            else:
                self.answer(handler, fault.status, fault.body, fault.headers)
        finally:
            with self._lock:
                self._at_once -= 1

    def _reply(self, handler, heard):
        words = listen(heard.samples)
        text = " ".join(name for _, _, name in words)
        self.heard.append(heard)
        if "messages" in heard.form:
            choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            document = {"object": "chat.completion", "choices": [choice]}
        elif heard.form["response_format"] == "json":
            document = {"text": text}
        elif not self.verbose:
            self.answer(handler, 400, {"error": {"message": "Currently do not support verbose_json", "code": 400}})
            return
        else:
            parts = [
                {"start": start, "end": end, "text": f" {name}", "avg_logprob": -0.1, "no_speech_prob": 0.01}
                for start, end, name in words
            ]
            language = heard.form.get("language") or self.language
            document = {"text": text, "language": language, "duration": heard.seconds, "segments": parts}
        self.answer(handler, 200, document)
        if self._log is not None:
            digest = hashlib.sha256(heard.samples.tobytes()).hexdigest()
            with self._lock, self._log.open("a") as file:
                file.write(digest + "\n")


def _is_gone(handler):
    """Return whether the client has closed the connection."""
    handler.connection.setblocking(False)
    with suppress(BlockingIOError):
        return handler.connection.recv(1) == b""
    handler.connection.setblocking(True)
    return False


def _read(handler, data):
    if handler.path.endswith("/chat/completions"):
        form = json.loads(data)
        audio = next(part["input_audio"] for part in form["messages"][0]["content"] if part["type"] == "input_audio")
        file, container = base64.b64decode(audio["data"]), audio["format"]
    else:
        head = f"Content-Type: {handler.headers['Content-Type']}\r\n\r\n".encode()
        form, file, container = {}, b"", ""
        for part in BytesParser().parsebytes(head + data).get_payload():
            name = part.get_param("name", header="content-disposition")
            if name == "file":
                file, container = part.get_payload(decode=True), part.get_filename().rpartition(".")[2]
            else:
                form[name] = part.get_payload(decode=True).decode()
    samples, rate = soundfile.read(io.BytesIO(file), dtype="float32")
    assert rate == RATE
    return Heard(handler.path, form, samples, container, handler.headers.get("Authorization"))


@contextmanager
def serving_process(*arguments):
    """Run a server in a process of its own; yields its process and its address."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tests.speech_server", "--port", str(port), *map(str, arguments)]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        yield process, f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--delay", type=float, default=0.0)
    arguments = parser.parse_args()
    server = SpeechServer([arguments.model], port=arguments.port, log=arguments.log)
    server.delay = arguments.delay
    threading.Event().wait()


if __name__ == "__main__":
    main()
