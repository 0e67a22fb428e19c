"""What a server's options mean, and that a request raises none of its limits."""

import pytest

from audio.limits import DecodeLimits
from engine_bridge.errors import UnsupportedOptionError
from engine_bridge.server.settings import ServerSettings


def test_without_options_the_limits_are_those_for_strangers():
    settings = ServerSettings.from_options(None)
    assert settings.limits == DecodeLimits.strict()
    assert settings.isolation is not None
    assert settings.media.allowed_local_path is None
    assert not settings.media.allow_private_addresses
    assert settings.chat_limits.max_seconds == 600


def test_options_set_what_they_name():
    settings = ServerSettings.from_options(
        {"max_seconds": None, "max_channels": 2, "audio_backend": "pyav", "isolate": False, "fetch_seconds": 5},
        allowed_domains=["a.example"],
        allowed_local_path="/media",
        allow_redirects=False,
    )
    assert settings.limits.max_seconds is None
    assert settings.limits.max_channels == 2
    assert settings.limits.max_encoded_bytes == DecodeLimits.strict().max_encoded_bytes
    assert settings.audio_backend == "pyav"
    assert settings.isolation is None
    assert settings.media.allowed_domains == ("a.example",)
    assert settings.media.allowed_local_path == "/media"
    assert settings.media.deadline_seconds == 5
    assert settings.media.max_redirects == 0
    assert settings.chat_limits.max_seconds == 600


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_second": 1}, "max_second"),
        ({"max_seconds": "long"}, "max_seconds"),
        ({"max_seconds": -1}, "max_seconds"),
        ({"isolate": 1}, "isolate"),
        ({"max_recordings": 0}, "max_recordings"),
        ({"max_recordings": 1.5}, "max_recordings"),
        ({"audio_backend": "sox"}, "sox"),
        ({"audio_backend": 3}, "audio_backend"),
        ({"fetch_seconds": 0}, "deadline_seconds"),
        ({"mm_processor_cache_gb": -1}, "mm_processor_cache_gb"),
        ({"mm_processor_cache_type": "disk"}, "disk"),
    ],
)
def test_options_that_make_no_sense_stop_the_server(options, named):
    with pytest.raises(ValueError, match=named):
        ServerSettings.from_options(options)


def test_a_request_chooses_a_backend_and_nothing_else():
    settings = ServerSettings.from_options({"max_seconds": 10})
    chosen = settings.for_request({"audio_backend": "soundfile"})
    assert chosen.audio_backend == "soundfile"
    assert chosen.limits == settings.limits
    assert settings.for_request(None) == settings
    for options in ({"max_seconds": 100}, {"isolate": False}, {"allow_private_addresses": True}):
        with pytest.raises(UnsupportedOptionError, match=next(iter(options))):
            settings.for_request(options)
    with pytest.raises(UnsupportedOptionError, match="sox"):
        settings.for_request({"audio_backend": "sox"})
