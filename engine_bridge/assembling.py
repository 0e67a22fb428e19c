"""A recording's chunks put together: joined where a cut lies in speech, in order, and gathered as one transcript.

What carries the recognitions hands over their outcomes in the recording's order; where they were carried, in this
process or on other machines, makes no difference here.
"""

from engine_bridge.recognition.ladder import Outcome
from engine_bridge.recognition.seams import join_at_cut
from engine_bridge.recognition.seams_untimed import join_untimed
from engine_bridge.recognition.stitch import in_order
from engine_bridge.transcript import Gap, Segment


def hears_seams(timestamps: str) -> bool:
    """Return whether what is heard across a forced cut can be merged: by times of words, or by the words alone.

    Parameters
    ----------
    timestamps : str
        Where times come from, as in `DecodingOptions`.

    """
    return timestamps in ("align", "none")


def joined(
    left: Outcome, seam: Outcome, right: Outcome, cut_seconds: float, timestamps: str
) -> tuple[Outcome, Outcome]:
    """Merge what was heard across a forced cut into what was heard on both sides of it.

    Parameters
    ----------
    left, right : Outcome
        What came of the chunks before and after the cut.
    seam : Outcome
        What came of `seams.seam_chunk`.
    cut_seconds : float
        Where the cut lies, in seconds of the recording.
    timestamps : str
        Where times come from, as in `DecodingOptions`.

    """
    join = join_untimed if timestamps == "none" else join_at_cut
    return join(left, seam, right, cut_seconds)


class Assembly:
    """The text of a recording as far as it is known.

    Attributes
    ----------
    segments : list of Segment
        Ascending, not overlapping.
    gaps : list of Gap
        Ascending.

    """

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.gaps: list[Gap] = []

    def add(self, outcome: Outcome, stop_seconds: float) -> list[Segment]:
        """Take what came of the next chunk, which stops there, and return its segments fitted to those before."""
        reached = self.segments[-1].end if self.segments else 0.0
        segments = in_order(outcome.segments, reached, stop_seconds)
        self.gaps += outcome.gaps
        self.segments += segments
        return segments
