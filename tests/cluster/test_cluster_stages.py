"""The stages of a job on a cluster, run one after the other in this process: what one process gives, comes out."""

import io
from contextlib import nullcontext
from dataclasses import fields, replace
from itertools import chain, islice, pairwise

import numpy as np
import pytest
import soundfile

import engine_bridge.cluster.engines as cluster_engines
import engine_bridge.cluster.job as cluster
import engine_bridge.cluster.on_ray as cluster_ray
import engine_bridge.cutting as cutting
from audio.chunk import Chunk
from audio.isolation import Isolation
from audio.limits import DecodeLimits
from engine_bridge import transcribe, transcribe_channels
from engine_bridge.batch.recording import Recording as Entry
from engine_bridge.batch.working import complete_settings
from engine_bridge.cluster.engines import ENGINE_ATTEMPTS, Asked, Recogniser, Voter, agree
from engine_bridge.cluster.messages import Heard, Order, Piece
from engine_bridge.cluster.reading import read_contents, read_pieces, read_voters
from engine_bridge.cluster.rows import as_json, from_json, packed, rows_of, unpacked
from engine_bridge.errors import ClusterError, EngineDeadError, EngineError, UnsupportedOptionError
from engine_bridge.journal import Journal
from engine_bridge.recognition.ladder import Outcome
from engine_bridge.testing import ENGLISH_ONLY, MULTILINGUAL, FakeEngine, clip_result
from engine_bridge.transcript import Gap, Segment, Word
from tests.tones import RATE, Recording, hear, listen

pytest.importorskip("pyarrow", reason="the ray extra is not installed")

SPEC = "embedded:tones"
BATCH = 3


@pytest.fixture
def engines(monkeypatch):
    """Make what `open_engine` gives; every engine that was opened is told."""
    opened = []

    def use(script=hear, **arguments):
        def open_engine(spec, **_):
            opened.append(FakeEngine(script, spec=spec, **arguments))
            return opened[-1]

        monkeypatch.setattr(cluster_engines, "open_engine", open_engine)
        return opened

    monkeypatch.setattr(cluster_engines, "engine_identity", lambda spec, journal: spec)
    yield use
    for engine in opened:
        engine.close()


@pytest.fixture
def run(monkeypatch, engines):
    """Run a job as Ray would, but in this process; what is sent to engines is told.

    A batch with something deadly in it ends its process again and again, and is left out, as Ray leaves it out.
    """
    sent = []

    def rows_here(ray, orders, run):
        read = {"contents": read_contents, "votes": read_voters, "pieces": read_pieces}[run.stage]
        arguments = () if run.stage == "contents" else (run.cut,)
        living = (order for order in orders if not results.deadly(order))
        rows = chain.from_iterable(read(packed(order), *arguments) for order in living)
        messages = (unpacked(row) for row in rows)
        if run.stage == "contents":
            yield rows_of(messages)
            return
        spec, options = run.engines.spec, run.contract.options
        named = {"per_chunk_language": run.per_chunk_language}
        station = Voter(spec, {}) if run.stage == "votes" else Recogniser(spec, {}, options, **named)
        while batch := list(islice(messages, 1 if run.alone else BATCH)):
            if any(results.deadly(message) for message in batch):
                continue
            sent.extend(message for message in batch if isinstance(message, Piece))
            yield station(rows_of(batch))

    monkeypatch.setattr(cluster, "connected", lambda address: nullcontext())
    monkeypatch.setattr(cluster, "placed", lambda ray, engines, gpus: engines)
    monkeypatch.setattr(cluster, "agreed", lambda ray, engines, asked: agree(engines.spec, {}, asked))
    monkeypatch.setattr(cluster, "translated", nullcontext)
    monkeypatch.setattr(cluster, "rows_in_cluster", rows_here)

    def results(recordings, **options):
        sent.clear()
        with cluster.transcribe_on_ray(recordings, engine=SPEC, **options) as each:
            return {result.recording.id: result for result in each}

    results.sent = sent
    results.deadly = lambda message: False
    return results


def locally(source, function=transcribe, *, capabilities=ENGLISH_ONLY, script=hear, language_script=None, **options):
    engine = FakeEngine(script, spec=SPEC, capabilities=capabilities, language_script=language_script)
    try:
        return replace(function(source, engine=engine, **options), timings={})
    finally:
        engine.close()


def transcript_of(result):
    assert result.failure is None, result.failure
    return replace(result.transcript, timings={})


def wav(*channels, subtype="PCM_16"):
    file = io.BytesIO()
    soundfile.write(file, np.stack(channels, axis=1), RATE, format="WAV", subtype=subtype)
    return file.getvalue()


class TestTheSameAsInOneProcess:
    def test_recordings_of_all_kinds(self, engines, run, tmp_path):
        engines()
        long, short = Recording().phrases(60), Recording().phrases(1)
        path = tmp_path / "long.wav"
        path.write_bytes(wav(long.samples))
        entries = [
            Entry("long", str(path)),
            Entry("bytes", wav(short.samples)),
            Entry("array", short.source),
            Entry("silent", (np.zeros(RATE * 3, np.float32), RATE)),
            Entry("part", path, from_seconds=20.0, to_seconds=70.0),
        ]
        results = run(entries)
        for entry in entries:
            ranges = {"from_seconds": entry.from_seconds or 0.0, "to_seconds": entry.to_seconds}
            assert transcript_of(results[entry.id]) == locally(entry.source, **ranges), entry.id
        assert [results[entry.id].position for entry in entries] == [0, 1, 2, 3, 4]

    def test_speech_that_an_engine_drops_is_asked_for_again_there(self, engines, run):
        def drops(samples, options):
            words = listen(samples)
            return clip_result(words if options.beam_size > 1 else words[: len(words) // 2])

        engines(drops)
        source = Recording().phrases(40).source
        transcript = transcript_of(run([Entry("talk", source)])["talk"])
        assert transcript == locally(source, script=drops)
        assert {segment.attempts for segment in transcript.segments} > {1}

    def test_words_that_forced_cuts_divide_are_there_once(self, engines, run, monkeypatch):
        engines()
        talk = Recording().speak(90)
        edges = (0.0, 9.2, 18.65, len(talk.samples) / RATE)

        def chunks(blocks, sample_rate, **limits):
            samples = np.concatenate(list(blocks))
            for index, (a, b) in enumerate(pairwise(round(seconds * sample_rate) for seconds in edges)):
                yield Chunk(index, a, b, sample_rate, samples[a:b], ((a, b),), ((a, b),), forced=b < len(samples))

        monkeypatch.setattr(cutting, "stream_chunks", chunks)
        transcript = transcript_of(run([Entry("talk", talk.source)])["talk"])
        assert [word.text for segment in transcript.segments for word in segment.words] == talk.names
        assert transcript == locally(talk.source)
        assert [piece.seam is not None for piece in run.sent] == [True, True, False]

    def test_each_channel_has_its_text(self, engines, run):
        engines()
        one, other = Recording().phrases(30, words=4), Recording().phrases(30, words=4, pause=0.5)
        length = min(len(one.samples), len(other.samples))
        call = wav(one.samples[:length], other.samples[:length])
        twins = wav(one.samples, one.samples)
        results = run([Entry("call", call, channels="each"), Entry("twins", twins, channels="each")])
        assert transcript_of(results["call"]) == locally(call, transcribe_channels)
        assert {segment.channel for segment in results["call"].transcript.segments} == {"left", "right"}
        assert transcript_of(results["twins"]) == locally(twins, transcribe_channels)

    @pytest.mark.parametrize("per_chunk_language", [False, True])
    def test_the_language_is_voted_on(self, engines, run, per_chunk_language):
        def languages(samples):
            late = int(listen(samples)[0][2][1:]) >= 45
            return (("de" if late else "fr", 0.9), ("en", 0.1))

        arguments = {"capabilities": MULTILINGUAL, "language_script": languages}
        engines(**arguments)
        source = Recording().phrases(100).source
        options = {"per_chunk_language": per_chunk_language}
        results = run(
            [Entry("talk", source), Entry("named", source, language="zh")][: 1 if per_chunk_language else 2], **options
        )
        transcript = transcript_of(results["talk"])
        expected = locally(source, **arguments, **options)
        assert transcript == replace(expected, language_probability=pytest.approx(expected.language_probability))
        if not per_chunk_language:
            assert transcript_of(results["named"]).language == "zh"

    def test_samples_of_16_bits_travel_as_such_and_others_whole(self):
        integers = np.random.default_rng(0).integers(-(1 << 15), 1 << 15, 1000)
        exact = (integers / (1 << 15)).astype(np.float32)
        for samples, narrow in ((exact, True), (exact * np.float32(0.3), False), (np.ones(5, np.float32), False)):
            chunk = Chunk(0, 0, len(samples), RATE, samples, ((0, len(samples)),))
            row = packed(Piece(0, 0, chunk, None, None, elected=False))
            assert np.array_equal(unpacked(row).chunk.samples, samples)
            assert unpacked(row).chunk.samples.dtype == np.float32
            assert (len(row["message"]) < 3 * len(samples)) == (narrow and len(samples) > 500)

    def test_an_outcome_comes_back_from_the_journal_as_it_was(self):
        words = (Word(0.1, 1 / 3, "ä", 0.7), Word(1 / 3, 2 / 3, "b", 1e-9))
        outcome = Outcome((Segment(0.1, 2 / 3, "ä b", words, confidence=0.35, language="de"),), (Gap(1.0, 2.5, "why"),))
        heard = Heard(7, 1, 3, 28.1, 14.0, outcome, Outcome())
        assert from_json(as_json(heard), 7, 1, 3) == heard


class TestWhatIsKept:
    @pytest.fixture
    def journal(self, tmp_path):
        with Journal(tmp_path / "journal.sqlite") as journal:
            yield journal

    @pytest.fixture
    def path(self, tmp_path):
        path = tmp_path / "talk.wav"
        path.write_bytes(wav(Recording().phrases(60).samples))
        return str(path)

    def test_what_is_done_is_not_done_again(self, engines, run, journal, path):
        opened = engines()
        first = run([Entry("talk", path)], journal=journal)["talk"]
        asked = sum(len(engine.submissions) for engine in opened)
        again = run([Entry("talk", path)], journal=journal)["talk"]
        assert (first.known, again.known) == (False, True)
        assert again.transcript == first.transcript
        assert sum(len(engine.submissions) for engine in opened) == asked
        assert run([Entry("talk", path)], journal=journal, beam_size=2)["talk"].known is False
        assert run([Entry("talk", path)], journal=journal, restart=True)["talk"].known is False

    def test_a_job_that_ended_midway_is_asked_only_for_the_chunks_that_are_missing(self, engines, run, journal, path):
        engines()
        with cluster.transcribe_on_ray([Entry("talk", path)], engine=SPEC, journal=journal) as results:
            told = results._job._recognised  # the results are left as soon as the first batch has come
            results._job._recognised = lambda collector: self.first_batch(told, results, collector)
            assert next(results, None) is None
        kept = journal.answers(journal.begin(self.fingerprint(journal)))
        assert len(kept) == BATCH - 1  # with the content's hash they are a batch

        result = run([Entry("talk", path)], journal=journal)["talk"]
        missing = [piece.chunk.index for piece in run.sent]
        assert missing == list(range(BATCH - 1, BATCH - 1 + len(missing)))
        assert transcript_of(result).text == locally(path).text
        assert journal.answers(journal.begin(self.fingerprint(journal))) == {}

    @staticmethod
    def first_batch(told, results, collector):
        for number, message in enumerate(results._job._told(collector.orders(), "pieces")):
            if number == BATCH:
                collector._open.clear()
                return
            assert collector.take(message) is None
        yield from told(collector)

    @staticmethod
    def fingerprint(journal):
        (fingerprint,) = journal._row("SELECT fingerprint FROM recordings")
        return fingerprint

    def test_a_run_in_one_process_and_one_on_a_cluster_know_each_others_work(
        self, engines, run, journal, path, monkeypatch
    ):
        from engine_bridge import transcribe_many
        from engine_bridge.batch import working

        monkeypatch.setattr(working, "engine_identity", lambda spec, journal: spec)
        engines()
        run([Entry("talk", path)], journal=journal)
        engine = FakeEngine(hear, spec=SPEC)
        with transcribe_many([Entry("talk", path)], engine=engine, journal=journal) as results:
            (result,) = results
        engine.close()
        assert result.known
        assert engine.submissions == ()

    def test_damage_is_remembered_and_what_may_pass_is_not(self, engines, run, journal, tmp_path):
        engines(lambda samples, options: EngineError("out of order"))
        broken = tmp_path / "broken.mp3"
        broken.write_bytes(b"no sound in here " * 400)
        talk = tmp_path / "talk.wav"
        talk.write_bytes(wav(Recording().phrases(2).samples))
        entries = [Entry("broken", str(broken)), Entry("talk", str(talk)), Entry("gone", str(tmp_path / "gone.wav"))]
        first = run(entries, journal=journal)
        assert {name: result.failure.kind for name, result in first.items()} == {
            "broken": "UnreadableAudioError",
            "talk": "EngineError",
            "gone": "AudioFileNotFoundError",
        }
        assert "out of order" in first["talk"].failure.reason
        again = run(entries, journal=journal)
        assert {name: result.known for name, result in again.items()} == {"broken": True, "talk": False, "gone": False}
        assert run(entries, journal=journal, retry_failed=True)["broken"].known is False


class TestFaults:
    def test_a_bad_recording_does_not_stop_the_others(self, engines, run, tmp_path):
        engines()
        good = Recording().phrases(2)
        entries = [Entry("bad", b"nothing of the kind " * 100), Entry("good", good.source), Entry("none", b"")]
        results = run(entries)
        assert results["bad"].failure is not None
        assert results["none"].failure.kind == "EmptyAudioError"
        assert results["good"].transcript.text

    def test_an_option_that_a_recording_cannot_have_is_its_own_failure(self, engines, run):
        engines()
        source = Recording().phrases(1).source
        results = run([Entry("talk", source, language="xx"), Entry("other", source)])
        assert results["talk"].failure.kind == "UnsupportedOptionError"
        assert results["other"].failure is None

    def test_an_option_that_nobody_can_have_is_refused_at_once(self, engines, run):
        engines()
        with pytest.raises(UnsupportedOptionError, match="translate"):
            run([], task="translate")
        with pytest.raises(TypeError, match="no option 'colour'"):
            run([], colour="red")

    def test_an_engine_that_dies_is_opened_again_and_what_it_had_is_asked_again(self, engines, run):
        deaths = iter([True])

        def dies_once(samples, options):
            return EngineDeadError("it is gone") if next(deaths, False) else hear(samples, options)

        opened = engines(dies_once)
        source = Recording().phrases(30).source
        result = run([Entry("talk", source)])["talk"]
        assert transcript_of(result) == locally(source)
        assert len(opened) == 3  # to agree, to work, and in place of the one that died

    def test_an_engine_that_dies_again_and_again_stops_the_job(self, engines, run):
        opened = engines(lambda samples, options: EngineDeadError("it is gone"))
        with pytest.raises(EngineDeadError, match="it is gone"):
            run([Entry("talk", Recording().phrases(3).source)])
        assert len(opened) == 1 + ENGINE_ATTEMPTS

    def test_a_chunk_that_ends_each_process_fails_its_recording_alone(self, engines, run, tmp_path):
        engines()
        sources = {name: Recording().phrases(60 + len(name)).source for name in ("before", "deadly one", "after")}
        run.deadly = lambda message: isinstance(message, Piece) and (message.number, message.chunk.index) == (1, 2)
        with Journal(tmp_path / "journal.sqlite") as journal:
            results = run([Entry(name, source) for name, source in sources.items()], journal=journal)
            failure = results.pop("deadly one").failure
            assert (failure.kind, failure.reason) == ("ClusterError", cluster.LOST)
            assert 30 < failure.place < 60
            for name, result in results.items():
                assert transcript_of(result).text == locally(sources[name]).text
            assert len({(piece.number, piece.chunk.index) for piece in run.sent}) == len(run.sent)
            run.deadly = lambda message: False
            again = run([Entry("deadly one", sources["deadly one"])], journal=journal)
            assert again["deadly one"].failure is None
            assert len(run.sent) == 1

    def test_a_recording_that_ends_each_process_that_reads_it_fails_alone(self, engines, run):
        engines()
        source = Recording().phrases(3).source
        run.deadly = lambda message: isinstance(message, Order) and message.number == 0
        results = run([Entry("deadly", source), Entry("other", source)])
        assert results["deadly"].failure.reason == cluster.LOST
        assert results["other"].failure is None

    def test_votes_that_were_lost_with_those_of_another_are_asked_for_again(self, engines, run):
        languages = {"capabilities": MULTILINGUAL, "language_script": lambda samples: (("fr", 0.9), ("en", 0.1))}
        engines(**languages)
        source = Recording().phrases(60).source
        run.deadly = lambda message: isinstance(message, Piece) and message.number == 1
        results = run([Entry("before", source), Entry("deadly", source), Entry("after", source)])
        assert results["deadly"].failure.reason == cluster.LOST
        expected = locally(source, **languages)
        for name in ("before", "after"):
            assert transcript_of(results[name]).text == expected.text
            assert results[name].transcript.language_probability == pytest.approx(expected.language_probability)

    def test_what_nobody_foresaw_stops_the_job_and_is_told(self, engines, run, monkeypatch):
        engines()
        monkeypatch.setattr(Recogniser, "_heard", lambda *_: [][0])
        with pytest.raises(ClusterError, match=r"IndexError: list index out of range"):
            run([Entry("talk", Recording().phrases(3).source)])

    def test_recordings_of_higher_priority_are_read_first(self, engines, run):
        engines()
        source = Recording().phrases(1).source
        run([Entry("late", source), Entry("soon", source, priority=5)])
        assert [piece.number for piece in run.sent] == [1, 0]

    def test_progress_counts_audio_and_recordings(self, engines, run):
        engines()
        told = []
        recording = Recording().phrases(60)
        run([Entry("talk", recording.source), Entry("bad", b"x" * 100)], on_progress=told.append)
        assert (told[-1].done, told[-1].failed, told[-1].under_way) == (1, 1, 0)
        assert told[-1].audio_seconds == pytest.approx(recording.seconds, abs=0.01)


@pytest.mark.parametrize(
    ("text", "address"),
    [("ray", None), ("ray:auto", "auto"), ("ray://head:10001", "ray://head:10001"), ("ray://[::1]:1", "ray://[::1]:1")],
)
def test_addresses(text, address):
    assert cluster.parse_address(text) == address


@pytest.mark.parametrize("text", ["", "spark", "ray:", "ray://", "ray://head", "ray://head:port", "http://head:1"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ClusterError, match="use ray, ray:auto or ray://HOST:PORT"):
        cluster.parse_address(text)


def test_no_option_of_one_process_is_forgotten():
    for_recordings = {"channel_reduction", "track", "from_seconds", "to_seconds"}
    for_reading = {"audio_backend", "timeline", "detector", "limits", "isolation"}
    for_engines = {each.name for each in fields(Asked)}
    assert for_recordings | for_reading | for_engines == set(complete_settings({}))


def test_limits_and_isolation_hold_there(engines, run, tmp_path):
    engines()
    long, short = Recording().phrases(20), Recording().phrases(1)
    path = tmp_path / "long.wav"
    path.write_bytes(wav(long.samples))
    entries = [Entry("long", str(path)), Entry("short", wav(short.samples))]
    bounds = {"limits": DecodeLimits(max_seconds=short.seconds + 1), "isolation": Isolation()}
    results = run(entries, **bounds)
    assert results["long"].failure.kind == "LimitExceededError"
    assert transcript_of(results["short"]) == locally(entries[1].source)
    apart = run([Entry("apart", wav(long.samples, long.samples[::-1]), channels="each")], **bounds)
    assert apart["apart"].failure.kind == "LimitExceededError"


# ---- joining a cluster --------------------------------------------------------------------------------------------


class Answering:
    """What a cluster answers to one client after the other, in Ray's place."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def init(self, **_):
        answer = self.answers.pop(0)
        if answer is not None:
            raise answer


def test_a_cluster_that_cannot_serve_a_client_at_once_is_asked_again():
    refusal = ConnectionAbortedError("Starting Ray client server failed")
    busy = Answering(refusal, refusal, None)
    cluster_ray._join(busy, "ray://127.0.0.1:10001")
    assert busy.answers == []
    with pytest.raises(ConnectionAbortedError):
        cluster_ray._join(Answering(*[refusal] * cluster_ray.JOIN_ATTEMPTS), "ray://127.0.0.1:10001")


def test_a_cluster_that_does_not_answer_is_not_asked_again():
    absent = Answering(ConnectionError("ray client connection timeout"), None)
    with pytest.raises(ConnectionError, match="timeout"):
        cluster_ray._join(absent, "ray://127.0.0.1:10001")
    assert absent.answers == [None]
