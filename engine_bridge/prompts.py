"""One prompt out of a text and a glossary, within what the engine takes before a clip."""

from collections.abc import Sequence

from engine_bridge.engines.protocol import Engine


def compose_prompt(prompt: str | None, glossary: Sequence[str], engine: Engine) -> tuple[str | None, tuple[str, ...]]:
    """Return the prompt to give before every clip, and what a reader should know of it.

    The glossary comes first and the prompt after it, next to the clip, where it sets the style. The prompt is kept
    before the glossary is, and the glossary's first terms before its last.

    Parameters
    ----------
    prompt : str or None
        Text that sets spelling and style.
    glossary : sequence of str
        Names and terms to expect, the most important first. Blank ones and repetitions are skipped.
    engine : Engine
        Where the prompt has to fit.

    Returns
    -------
    (str or None, tuple of str)
        The prompt, None if there is nothing to tell; and a sentence for the text that was cut and one for the terms
        that were left out.

    """
    notices: list[str] = []
    text = (prompt or "").strip()
    if text:
        text, is_cut = engine.fit_prompt(text)
        if is_cut:
            notices.append(
                f"the prompt is longer than the engine takes and was cut to its last {len(text)} characters; shorten it"
            )
    terms = list(dict.fromkeys(term.strip() for term in glossary if term.strip()))
    # By bisection, for a glossary may be long: of `fits` terms it is known that they fit, of `fails` that they do not.
    fits, fails = 0, len(terms) + 1
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if engine.fit_prompt(_joined(terms[:middle], text))[1]:
            fails = middle
        else:
            fits = middle
    if fits < len(terms):
        notices.append(
            f"the engine takes {fits} of the glossary's {len(terms)} terms and {terms[fits]!r} and those after it were "
            "left out; put the most important first"
        )
    return _joined(terms[:fits], text) or None, tuple(notices)


def _joined(terms: Sequence[str], text: str) -> str:
    listed = f"{', '.join(terms)}." if terms else ""
    return f"{listed} {text}".strip()
