"""The languages that families of audio models are documented to recognise, by ISO 639-1 code."""


def codes(listed: str) -> tuple[str, ...]:
    """Return the codes of a list with spaces between."""
    return tuple(listed.split())


WHISPER_LANGUAGES = codes(
    """
    af am ar as az ba be bg bn bo br bs ca cs cy da de el en es et eu fa fi fo fr gl gu ha haw he hi hr ht hu
    hy id is it ja jw ka kk km kn ko la lb ln lo lt lv mg mi mk ml mn mr ms mt my ne nl nn no oc pa pl ps pt
    ro ru sa sd si sk sl sn so sq sr su sv sw ta te tg th tk tl tr tt uk ur uz vi yi yo zh
    """
)
"""Those of OpenAI's Whisper; large-v3 adds Cantonese ("yue"), which its own configuration lists."""

TRANSCRIPTION_LANGUAGES = codes(
    """
    af ar az be bg bs ca cs cy da de el en es et fa fi fr gl he hi hr hu hy id is it ja kk kn ko lt lv mi mk
    mr ms ne nl no pl pt ro ru sk sl sr sv sw ta th tl tr uk ur vi zh
    """
)
"""Those that OpenAI's transcription API documents, which vLLM takes for models that do not list their own."""

ENGLISH_NAMES = {
    "ar": "Arabic",
    "cs": "Czech",
    "da": "Danish",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "es": "Spanish",
    "fa": "Persian",
    "fi": "Finnish",
    "fr": "French",
    "he": "Hebrew",
    "hi": "Hindi",
    "hu": "Hungarian",
    "id": "Indonesian",
    "it": "Italian",
    "ja": "Japanese",
    "ko": "Korean",
    "mk": "Macedonian",
    "ms": "Malay",
    "nl": "Dutch",
    "no": "Norwegian",
    "pl": "Polish",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "sv": "Swedish",
    "th": "Thai",
    "tl": "Filipino",
    "tr": "Turkish",
    "uk": "Ukrainian",
    "ur": "Urdu",
    "vi": "Vietnamese",
    "yue": "Cantonese",
    "zh": "Chinese",
}
"""How a language is named in an instruction, for models that are told it in words."""
