"""Addresses in requests: what is read, what is refused, and that what is refused is never touched."""

import base64
import io
import os
import ssl
import subprocess
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import soundfile

from engine_bridge.addresses import choose_address, is_public
from engine_bridge.errors import MediaError
from engine_bridge.media import MediaPolicy, open_media

HERE = MediaPolicy(allow_private_addresses=True, deadline_seconds=20)


def wav(seconds=0.5):
    file = io.BytesIO()
    soundfile.write(file, np.full(round(16_000 * seconds), 0.25, np.float32), 16_000, format="WAV")
    return file.getvalue()


@contextmanager
def web(answers, context=None):
    """Serve a function from path to (status, headers, body or pieces of one); yields the port and what was asked."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format, *args):  # noqa: A002
            pass

        def do_GET(self):
            asked.append((self.path, dict(self.headers)))
            status, headers, body = answers(self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if isinstance(body, bytes):
                self.send_header("Content-Length", str(len(body)))
                body = [body]
            self.end_headers()
            for piece in body:
                self.wfile.write(piece)
                self.wfile.flush()

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request, client_address):
            pass

    server = Server(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.server_port, asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def read(url, policy=HERE, **more):
    with open_media(url, policy, **more) as source, source.open() as file:
        return file.read()


def local(host, port):
    return ["127.0.0.1"]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr("engine_bridge.engines.http_balance.FIRST_PAUSE", 0.02)


def test_a_recording_is_fetched():
    with web(lambda path: (200, {}, wav())) as (port, asked):
        assert read(f"http://127.0.0.1:{port}/a.wav?token=1") == wav()
    assert asked[0][0] == "/a.wav?token=1"
    assert asked[0][1]["Host"] == f"127.0.0.1:{port}"


def test_the_source_is_named_without_secrets():
    with (
        web(lambda path: (200, {}, wav())) as (port, _),
        open_media(f"http://127.0.0.1:{port}/a.wav?token=1", HERE) as it,
    ):
        assert it.name == repr(f"http://127.0.0.1:{port}/a.wav")


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fd00::1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "2001:0:7f00:1::",
    ],
)
def test_what_is_not_public_is_not_reached(address):
    assert not is_public(address)
    with pytest.raises(MediaError, match="public"):
        choose_address("innocent.example", 80, allow_private=False, resolver=lambda host, port: [address])


def test_public_addresses_are():
    assert is_public("8.8.8.8")
    assert is_public("2606:4700::1111")
    assert choose_address("a.example", 80, allow_private=False, resolver=lambda *_: ["8.8.8.8"]) == "8.8.8.8"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0x7f.1", "2130706433", "[::1]", "127.1"])
def test_every_spelling_of_this_machine_is_refused_and_not_told(host):
    with web(lambda path: (200, {}, wav())) as (port, asked):
        with pytest.raises(MediaError) as refusal:
            read(f"http://{host}:{port}/a.wav", MediaPolicy())
        assert not asked
    assert host == "127.0.0.1" or "127.0.0.1" not in str(refusal.value)


def test_one_private_address_among_public_ones_is_refused():
    with pytest.raises(MediaError, match="public"):
        read("http://a.example/a.wav", MediaPolicy(), resolver=lambda *_: ["8.8.8.8", "10.0.0.1"])


def test_the_name_is_resolved_once_for_each_connection():
    answers = iter([["127.0.0.1"]])
    with web(lambda path: (200, {}, wav())) as (port, asked):
        assert read(f"http://media.test:{port}/a.wav", resolver=lambda *_: next(answers)) == wav()
    assert asked[0][1]["Host"] == f"media.test:{port}"


def test_only_the_allowed_domains_are_asked():
    policy = MediaPolicy(allowed_domains=("Media.Test",), allow_private_addresses=True)
    with web(lambda path: (200, {}, wav())) as (port, asked):
        assert read(f"http://media.test:{port}/a.wav", policy, resolver=local) == wav()
        with pytest.raises(MediaError, match=r"'other.test'"):
            read(f"http://other.test:{port}/a.wav", policy, resolver=local)
        with pytest.raises(MediaError, match=r"'xmedia.test'"):
            read(f"http://xmedia.test:{port}/a.wav", policy, resolver=local)
    assert len(asked) == 1


def test_a_redirect_on_the_same_host_is_followed_and_a_circle_ends():
    with web(lambda path: (302, {"Location": "/b"}, b"") if path == "/a" else (200, {}, wav())) as (port, _):
        assert read(f"http://127.0.0.1:{port}/a") == wav()
    with (
        web(lambda path: (302, {"Location": "/a"}, b"")) as (port, asked),
        pytest.raises(MediaError, match="redirect too many"),
    ):
        read(f"http://127.0.0.1:{port}/a")
    assert len(asked) == HERE.max_redirects + 1


@pytest.mark.parametrize("target", ["http://other.test/a", "file:///etc/passwd", "http://169.254.169.254/latest/"])
def test_a_redirect_elsewhere_is_refused(target):
    with (
        web(lambda path: (302, {"Location": target}, b"")) as (port, _),
        pytest.raises(MediaError, match=r"another host|no web address"),
    ):
        read(f"http://media.test:{port}/a", resolver=local)


def test_a_redirect_to_an_allowed_domain_is_looked_at_again():
    policy = MediaPolicy(allowed_domains=("a.test", "b.test"))
    known = {"a.test": ["8.8.8.8"], "b.test": ["10.0.0.1"]}
    with web(lambda path: (302, {"Location": "http://c.test/"}, b"")) as (port, _):
        there = MediaPolicy(allowed_domains=("a.test",), allow_private_addresses=True)
        with pytest.raises(MediaError, match=r"'c.test'"):
            read(f"http://a.test:{port}/", there, resolver=local)
    with pytest.raises(MediaError, match="public"):
        read("http://b.test/", policy, resolver=lambda host, port: known[host])


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a.example/a.wav",
        "gopher://a.example/",
        "/etc/passwd",
        "http:///a.wav",
        "http://user:secret@a.example/a.wav",
        "http://a.example:0/",
        "http://a.example\\@b.example/",
        "http://a.example/ü",
        "",
    ],
)
def test_what_is_no_address_of_audio_is_refused(url):
    def never(host, port):
        raise AssertionError(host)

    with pytest.raises(MediaError) as refusal:
        read(url, resolver=never)
    assert "secret" not in str(refusal.value)


def test_an_unknown_host_is_told():
    def unknown(host, port):
        raise OSError("Name or service not known")

    with pytest.raises(MediaError, match=r"'a.example' is not known"):
        read("http://a.example/a.wav", resolver=unknown)


@pytest.mark.parametrize("declared", [True, False])
def test_a_download_ends_at_the_limit(declared):
    sent = []

    def endless():
        for _ in range(10_000):
            sent.append(1)
            yield bytes(10_000)

    def answer(path):
        return 200, {"Content-Length": "100000000"} if declared else {}, endless()

    with web(answer) as (port, _), pytest.raises(MediaError, match="larger than the 100000 bytes"):
        read(f"http://127.0.0.1:{port}/a.wav", MediaPolicy(allow_private_addresses=True, max_bytes=100_000))
    assert len(sent) < 5_000


def test_a_download_that_trickles_ends_at_the_deadline():
    def trickle():
        for _ in range(200):
            time.sleep(0.05)
            yield b"x"

    policy = MediaPolicy(allow_private_addresses=True, deadline_seconds=0.5)
    start = time.monotonic()
    with web(lambda path: (200, {}, trickle())) as (port, _), pytest.raises(MediaError, match=r"longer than 0.5 s"):
        read(f"http://127.0.0.1:{port}/a.wav", policy)
    assert time.monotonic() - start < 5


def test_what_may_pass_is_tried_again_and_the_rest_is_not():
    answers = iter([(503, {}, b""), (429, {"Retry-After": "0"}, b""), (200, {}, wav())])
    with web(lambda path: next(answers)) as (port, asked):
        assert read(f"http://127.0.0.1:{port}/a.wav") == wav()
        assert len(asked) == 3
    with web(lambda path: (404, {}, b"secret page")) as (port, asked):
        with pytest.raises(MediaError, match="answered 404") as refusal:
            read(f"http://127.0.0.1:{port}/a.wav")
        assert len(asked) == 1
    assert "secret page" not in str(refusal.value)


def test_compressed_answers_are_not_unpacked():
    with (
        web(lambda path: (200, {"Content-Encoding": "gzip"}, wav())) as (port, _),
        pytest.raises(MediaError, match="compressed"),
    ):
        read(f"http://127.0.0.1:{port}/a.wav")


def test_a_certificate_is_checked_for_the_name_although_the_address_is_fixed(tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=media.test"]
    more = ["-addext", "subjectAltName=DNS:media.test", "-keyout", key, "-out", certificate]
    try:
        subprocess.run([*command, *more], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"openssl cannot make a certificate here: {error}")
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_cert_chain(certificate, key)
    theirs = ssl.create_default_context(cafile=str(certificate))
    with web(lambda path: (200, {}, wav()), ours) as (port, _):
        assert read(f"https://media.test:{port}/a.wav", resolver=local, verify=theirs) == wav()
        with pytest.raises(MediaError, match="connection failed"):
            read(f"https://other.test:{port}/a.wav", resolver=local, verify=theirs)
        with pytest.raises(MediaError, match="connection failed"):
            read(f"https://media.test:{port}/a.wav", resolver=local)


def test_a_data_url_is_decoded():
    coded = base64.b64encode(wav()).decode()
    assert read(f"data:audio/wav;base64,{coded}") == wav()
    assert read(f"DATA:;base64,{coded}") == wav()
    large = os.urandom(3_000_001)
    assert read(f"data:audio/x;codecs=1;base64,{base64.b64encode(large).decode()}") == large


@pytest.mark.parametrize(
    "url", ["data:audio/wav;base64", "data:audio/wav,abc", "data:;base64,@@@@", "data:;base64,QQ=Q"]
)
def test_a_data_url_that_cannot_be_read_is_refused(url):
    with pytest.raises(MediaError, match="data URL"):
        read(url)


def test_a_data_url_is_held_to_the_limit_before_it_is_decoded():
    with pytest.raises(MediaError, match="larger than the 1000 bytes"):
        read("data:audio/wav;base64," + "A" * 2_000, MediaPolicy(max_bytes=1000))
    assert read(
        "data:audio/wav;base64," + base64.b64encode(bytes(1000)).decode(), MediaPolicy(max_bytes=1000)
    ) == bytes(1000)


def test_local_files_are_read_below_the_allowed_folder_alone(tmp_path):
    folder, outside = tmp_path / "media", tmp_path / "outside.wav"
    folder.mkdir()
    (folder / "my talk.wav").write_bytes(wav())
    outside.write_bytes(wav())
    (folder / "link.wav").symlink_to(outside)
    (folder / "within.wav").symlink_to(folder / "my talk.wav")
    os.mkfifo(folder / "pipe.wav")
    policy = MediaPolicy(allowed_local_path=str(folder))
    assert read(f"file://{folder}/my%20talk.wav", policy) == wav()
    assert read(f"file://localhost{folder}/within.wav", policy) == wav()
    for refused in (
        outside.as_uri(),
        f"file://{folder}/../outside.wav",
        f"file://{folder}/%2e%2e/outside.wav",
        f"file://{folder}/link.wav",
        f"file://{folder}/pipe.wav",
        f"file://{folder}",
        f"file://{folder}/absent.wav",
        f"file://other{folder}/within.wav",
        f"file://{folder}/a%00.wav",
        f"file://{folder}x/a.wav",
    ):
        with pytest.raises(MediaError, match="not a file that this server may read"):
            read(refused, policy)
    with pytest.raises(MediaError, match="no local files"):
        read(outside.as_uri(), MediaPolicy())
    with pytest.raises(MediaError, match="larger"):
        read(f"file://{folder}/within.wav", MediaPolicy(allowed_local_path=str(folder), max_bytes=10))
