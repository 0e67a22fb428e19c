"""Whisper's timestamp rules inside vLLM, for requests that ask for them. Imports vLLM; its workers load it."""

from typing import Any

from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

from engine_bridge.engines.timestamp_rules import TimestampTokens, forbid
from engine_bridge.engines.vllm_clips import TIMESTAMPS

_Row = tuple[TimestampTokens, list[int]]


class TimestampRules(LogitsProcessor):  # type: ignore[misc]
    """Applies the rules to the rows of a batch whose requests carry them.

    Parameters
    ----------
    vllm_config, device, is_pin_memory
        As vLLM gives them to each of its logits processors; none matters here.

    """

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        del vllm_config, device, is_pin_memory
        self._rows: dict[int, _Row] = {}

    def is_argmax_invariant(self) -> bool:
        """Return False: the rules change which token is the likeliest."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Keep track of which row of the batch is whose."""
        process_dict_updates(self._rows, batch_update, _row)

    def apply(self, logits: Any) -> Any:
        """Forbid tokens in the logits, shape (rows, vocabulary), and return them."""
        for index, (tokens, written) in self._rows.items():
            # While a step is at work the next token stands in the list as -1.
            forbid(logits[index], [token for token in written if token >= 0], tokens)
        return logits


def _row(parameters: Any, _: list[int] | None, written: list[int]) -> _Row | None:
    """Return what a request that asks for the rules needs of them."""
    asked = (parameters.extra_args or {}).get(TIMESTAMPS)
    return None if asked is None else (TimestampTokens(*asked), written)
