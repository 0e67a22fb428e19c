"""From a chunk to text that can be trusted: asked, checked, timed, and asked again where something is missing.

`ladder` takes one chunk through the engine; what an answer is worth is said in `judgement` (by `text_checks` for the
text, `coverage`, `edges` and `dips` for the speech), what is missing is sent again by `recovery`, or by `untimed` where
the engine gives words no times (`pace`, `spread`). `stitch` and `sentences` bring it to the recording's time, `seams`
join it across cuts in speech, `tasks` carries many at once, and `language` is voted on before.
"""
