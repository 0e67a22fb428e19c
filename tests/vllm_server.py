"""A real vLLM server as a process of its own, to be asked, killed and started again."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path

from tests.vllm_models import build_tiny_en

START_SECONDS = 420  # two cores take 40 s for it when nothing else is at work
MODEL = "tiny.en"


def stock_folder(folder):
    """Return tiny.en in the folder's parent with a tokenizer on which vLLM's own endpoint works; kept between runs."""
    return build_tiny_en(folder.with_name(f"{folder.name}-stock"), stock_prompt=True)


class VllmServer:
    """Serves a folder's model under the name tiny.en, on CPU in float32."""

    def __init__(self, folder, log, *arguments, **environment):
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self.log = Path(log)
        self._environment = {
            **os.environ,
            "TORCH_COMPILE_DISABLE": "1",  # compiling costs a minute and saves nothing in a few clips
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # or all servers of a machine share its first core
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            **environment,
        }
        self._command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
        self._command += ["--served-model-name", MODEL, "--max-model-len", "448", "--enforce-eager"]
        self._command += ["--dtype", "float32", "--max-num-seqs", "8", "--host", "127.0.0.1", "--port", str(self.port)]
        self._command += arguments
        self._process = None

    def __enter__(self):
        self.start()
        try:
            self.wait()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_):
        self.kill()

    def start(self):
        with self.log.open("a") as file:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdout=file, stderr=file, start_new_session=True
            )

    def wait(self):
        """Wait until it answers."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise RuntimeError(f"vLLM ended with {self._process.returncode}:\n{self.tail()}")
            if self.is_healthy(5):
                return
            time.sleep(0.5)
        raise RuntimeError(f"vLLM did not start within {START_SECONDS} s:\n{self.tail()}")

    def is_healthy(self, seconds):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=seconds) as answer:
                return answer.status == 200
        except (OSError, urllib.error.URLError):
            return False

    def kill(self):
        """End it and its engine at once."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def answered(self):
        """Return how many transcriptions it has answered with status 200, by its log."""
        return self.log.read_text(errors="replace").count('POST /v1/audio/transcriptions HTTP/1.1" 200')

    def tail(self):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])
