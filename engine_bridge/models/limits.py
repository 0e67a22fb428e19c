"""How much audio one prompt may carry, by the setting that vLLM calls ``limit_mm_per_prompt``."""

from collections.abc import Mapping
from dataclasses import dataclass

from engine_bridge.errors import UnsupportedOptionError
from engine_bridge.models.info import AudioModelInfo

AUDIO = "audio"


@dataclass(frozen=True)
class AudioAllowance:
    """What one prompt may carry.

    Attributes
    ----------
    waveforms : int or None
        The most waveforms; 0 turns audio off, None is as many as fit.
    embeddings : int or None
        The most precomputed encoder states in place of waveforms; 0 where they are not enabled.

    """

    waveforms: int | None
    embeddings: int | None

    def check(self, spec: str, *, waveforms: int = 0, embeddings: int = 0) -> None:
        """Raise UnsupportedOptionError, naming the setting, if a prompt carries more than is allowed."""
        if waveforms and self.waveforms == 0:
            raise UnsupportedOptionError(
                f"{spec} takes no audio, for limit_mm_per_prompt is {{'audio': 0}}: open it without that limit"
                + ("" if self.embeddings == 0 else ", or submit embeddings")
            )
        if embeddings and self.embeddings == 0:
            raise UnsupportedOptionError(f"{spec} takes no embeddings: open it with enable_mm_embeds=True")
        for given, most, what in (
            (waveforms, self.waveforms, "waveforms"),
            (embeddings, self.embeddings, "embeddings"),
        ):
            if most is not None and given > most:
                raise UnsupportedOptionError(f"{spec} takes {most} {what} a prompt, not {given}: send them one by one")


def allowance(
    info: AudioModelInfo,
    limit_mm_per_prompt: Mapping[str, int] | None = None,
    *,
    enable_mm_embeds: bool = False,
) -> AudioAllowance:
    """Return what one prompt of a model may carry.

    A limit of 0 turns waveforms off and spares their memory; precomputed embeddings stay usable where they are
    enabled, for they need no encoder. A limit never raises what the model takes.

    Parameters
    ----------
    info : AudioModelInfo
        The model.
    limit_mm_per_prompt : mapping, optional
        The limit of each modality; only "audio" matters here.
    enable_mm_embeds : bool
        Whether precomputed embeddings are taken.

    Raises
    ------
    UnsupportedOptionError
        If the limit is negative or above what the model takes.

    """
    asked = (limit_mm_per_prompt or {}).get(AUDIO)
    takes = info.items_per_prompt
    if asked is not None and (asked < 0 or (takes is not None and asked > takes)):
        most = "any number" if takes is None else str(takes)
        raise UnsupportedOptionError(
            f"limit_mm_per_prompt allows {asked} waveforms, but {info.family} takes {most}: give a limit from 0 on"
        )
    waveforms = takes if asked is None else asked
    return AudioAllowance(waveforms, (waveforms or takes) if enable_mm_embeds else 0)
