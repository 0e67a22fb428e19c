"""Audio models: what each family needs, how it is prompted, and the largest input it can get.

::

    from engine_bridge.models import AudioModelInfo, register_audio_model


    @register_audio_model("MyModelForConditionalGeneration", info=my_info)
    class MyProcessor: ...

A package that is installed beside this one registers its families by an entry point of the group
``auricle.audio_models`` that names the module to import. Nothing here imports torch or vLLM.
"""

from engine_bridge.models.dummy import AudioDummyInputs
from engine_bridge.models.info import AudioModelInfo, ModelFiles
from engine_bridge.models.inputs import AudioProcessor, EngineInput, Generated, PromptTokenizer
from engine_bridge.models.limits import AudioAllowance, allowance
from engine_bridge.models.registry import (
    AudioModel,
    audio_models,
    find_audio_model,
    register_audio_model,
)

__all__ = [
    "AudioAllowance",
    "AudioDummyInputs",
    "AudioModel",
    "AudioModelInfo",
    "AudioProcessor",
    "EngineInput",
    "Generated",
    "ModelFiles",
    "PromptTokenizer",
    "allowance",
    "audio_models",
    "find_audio_model",
    "register_audio_model",
]
