"""OpenAI's audio endpoints on any engine: mounted in vLLM's server by `engine_bridge.vllm_plugin`, or an app alone."""
