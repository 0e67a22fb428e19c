"""Whisper's vocabulary: prompts, special tokens, timestamp tokens, and words out of tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine_bridge.engines.protocol import ClipSegment, DecodingOptions
from engine_bridge.errors import EngineUnavailableError
from engine_bridge.joining import is_spaceless

TIMESTAMP_SECONDS = 0.02
"""Seconds between two neighbouring timestamp tokens."""

MAX_CONTEXT_TOKENS = 448
"""Length of the text decoder's context in every Whisper model."""

MAX_PROMPT_TOKENS = MAX_CONTEXT_TOKENS // 2 - 1
"""Tokens of earlier text that fit before a clip, as in OpenAI's implementation."""

# A character has at most four bytes in UTF-8; whatever is no character by then never becomes one.
_MOST_TOKENS_A_CHARACTER = 4

_WORDS_WITHOUT_SPACES = frozenset({"zh", "ja", "th", "lo", "my", "yue"})
# Marks that belong to the word after them, and to the word before them.
_OPENING = "\"'\u201c\u00bf([{-"
_CLOSING = "\"'.\u3002,\uff0c!\uff01?\uff1f:\uff1a\u201d)]}\u3001"


@dataclass(frozen=True)
class TokenWord:
    """A word and the tokens that spell it."""

    text: str
    tokens: tuple[int, ...]


class WhisperTokens:
    """The tokens of one Whisper model.

    Parameters
    ----------
    model_folder : Path
        A folder with ``tokenizer.json``.
    multilingual : bool
        Whether prompts name a language and a task.

    """

    def __init__(self, model_folder: Path, *, multilingual: bool) -> None:
        try:
            from tokenizers import Tokenizer
        except (ImportError, OSError) as error:
            raise EngineUnavailableError(
                f"tokenizers cannot load here: {error}. Reinstall it with: pip install --force-reinstall tokenizers"
            ) from error

        path = model_folder / "tokenizer.json"
        if not path.is_file():
            raise EngineUnavailableError(
                f"{model_folder}: the folder holds no tokenizer.json; copy it from the model's Hugging Face page"
            )
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises nothing more particular
            raise EngineUnavailableError(
                f"{path}: the tokenizer cannot be read ({error}); copy it again from the model's Hugging Face page"
            ) from error
        self.multilingual = multilingual
        self.end_of_text = self._required("<|endoftext|>")
        self.start_of_transcript = self._required("<|startoftranscript|>")
        self.no_timestamps = self._required("<|notimestamps|>")
        self.first_timestamp = self.no_timestamps + 1

    def _required(self, token: str) -> int:
        identifier = self._tokenizer.token_to_id(token)
        if identifier is None:
            raise EngineUnavailableError(f"the model's tokenizer.json lacks {token}: this is not a Whisper model")
        return int(identifier)

    def languages(self) -> tuple[str, ...]:
        """Return the codes of the languages that the model can be asked for."""
        if not self.multilingual:
            return ("en",)
        tokens = self._tokenizer.get_vocab(with_added_tokens=True)
        names = (token[2:-2] for token in tokens if token.startswith("<|") and token.endswith("|>"))
        return tuple(sorted(name for name in names if name.isalpha() and name.islower() and len(name) in (2, 3)))

    def language_tokens(self) -> dict[int, str]:
        """Return the tokens that name a language, with its code; none for an English-only model."""
        return {self._required(f"<|{code}|>"): code for code in self.languages()} if self.multilingual else {}

    def start_sequence(self, language: str | None, task: str) -> list[int]:
        """Return the tokens that open a transcript, without the timestamp choice."""
        sequence = [self.start_of_transcript]
        if self.multilingual:
            sequence += [self._required(f"<|{language}|>"), self._required(f"<|{task}|>")]
        return sequence

    def prompt(self, language: str | None, options: DecodingOptions) -> list[int]:
        """Return the tokens that the decoder starts from."""
        tokens: list[int] = []
        if options.prompt:
            earlier = self._earlier_tokens(options.prompt)
            tokens += [self._required("<|startofprev|>"), *earlier[-MAX_PROMPT_TOKENS:]]
        tokens += self.start_sequence(language, options.task)
        if options.timestamps not in ("tokens", "both"):
            tokens.append(self.no_timestamps)
        return tokens

    def _earlier_tokens(self, text: str) -> list[int]:
        # Without special tokens that the text may spell: they would steer the decoder.
        return self.text_tokens(self.encode(" " + text.strip()))

    def fit_prompt(self, text: str) -> tuple[str, bool]:
        """Return what of a prompt fits before a clip, in whole words from its end, and whether anything is cut."""
        tokens = self._earlier_tokens(text)
        if len(tokens) <= MAX_PROMPT_TOKENS:
            return text, False
        pieces = self._whole_characters(tokens[-MAX_PROMPT_TOKENS:])
        begins = [index for index, piece in enumerate(pieces) if _begins_word(piece.text)]
        for index in begins or range(len(pieces)):
            kept = "".join(piece.text for piece in pieces[index:]).strip()
            # Half of what was spelt together may take more tokens than it had in the whole.
            if len(self._earlier_tokens(kept)) <= MAX_PROMPT_TOKENS:
                return kept, True
        return "", True

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def text_tokens(self, tokens: Sequence[int]) -> list[int]:
        """Return the tokens that spell text, without timestamps and other special tokens."""
        return [token for token in tokens if token < self.end_of_text]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens; special tokens are left out."""
        return str(self._tokenizer.decode(self.text_tokens(tokens), skip_special_tokens=True))

    def segments(self, tokens: Sequence[int], clip_seconds: float) -> tuple[ClipSegment, ...]:
        """Parse the timestamp tokens of a decoded clip into segments.

        A segment stands between two timestamps. Text after the last timestamp is kept as a segment that ends with the
        clip; text before the first one starts with it. Times are clamped to the clip and never run backwards.

        Parameters
        ----------
        tokens : sequence of int
            What the decoder wrote.
        clip_seconds : float
            Length of the clip.

        """
        segments: list[ClipSegment] = []
        start: float | None = None
        reached = 0.0
        text: list[int] = []

        def close(end: float) -> None:
            nonlocal reached, start
            words = self.decode(text).strip()
            first = reached if start is None else start
            last = max(first, end)
            if words:
                segments.append(ClipSegment(first, last, words))
            reached = max(reached, last)
            start = None
            text.clear()

        for token in tokens:
            if token < self.first_timestamp:
                text.append(token)
                continue
            seconds = (token - self.first_timestamp) * TIMESTAMP_SECONDS
            seconds = min(max(seconds, reached), clip_seconds)
            if text:
                close(seconds)
            else:
                start = seconds
        close(clip_seconds)
        return tuple(segments)

    def words(self, tokens: Sequence[int], language: str | None) -> list[TokenWord]:
        """Group text tokens into words.

        Tokens that only together spell a character are kept together. Words are told apart by spaces, or in languages
        written without spaces by characters. Punctuation goes with the word it belongs to. Joining the texts gives
        the decoded text.
        """
        pieces = self._whole_characters(tokens)
        if language not in _WORDS_WITHOUT_SPACES:
            pieces = _join_unspaced(pieces)
        return _attach_punctuation(pieces)

    def _whole_characters(self, tokens: Sequence[int]) -> list[TokenWord]:
        pieces: list[TokenWord] = []
        pending: list[int] = []
        for token in tokens:
            pending.append(token)
            text = self.decode(pending)
            if "\ufffd" not in text or len(pending) == _MOST_TOKENS_A_CHARACTER:
                pieces.append(TokenWord(text, tuple(pending)))
                pending = []
        if pending:
            pieces.append(TokenWord(self.decode(pending), tuple(pending)))
        return pieces


def _begins_word(text: str) -> bool:
    return text[:1].isspace() or (text[:1] not in _CLOSING and is_spaceless(text[:1]))


def _join_unspaced(pieces: Sequence[TokenWord]) -> list[TokenWord]:
    words: list[TokenWord] = []
    for piece in pieces:
        if words and not piece.text.startswith(" "):
            words[-1] = TokenWord(words[-1].text + piece.text, words[-1].tokens + piece.tokens)
        else:
            words.append(piece)
    return words


def _attach_punctuation(pieces: Sequence[TokenWord]) -> list[TokenWord]:
    words: list[TokenWord] = []
    opening: TokenWord | None = None
    for piece in pieces:
        current = piece
        if opening is not None:
            current = TokenWord(opening.text + piece.text, opening.tokens + piece.tokens)
            opening = None
        bare = current.text.strip()
        if bare and all(mark in _OPENING for mark in bare) and current.text.startswith(" "):
            opening = current
        elif words and (not bare or all(mark in _CLOSING for mark in bare)):
            words[-1] = TokenWord(words[-1].text + current.text, words[-1].tokens + current.tokens)
        else:
            words.append(current)
    if opening is not None:
        words.append(opening)
    return words
