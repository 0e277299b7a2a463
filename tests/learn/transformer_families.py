"""Small models of today's families, made by their configurations, for a search to be tried on."""

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import nn

SEED = 0
VOCABULARY = 40

_SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}
_WORDS = {"vocab_size": VOCABULARY, "max_position_embeddings": 32}
# Special tokens that lie outside so small a vocabulary are left out.
_NONE = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
_GROUPED = {**_SIZES, **_WORDS, **_NONE, "num_key_value_heads": 2}
_GPT = {"n_embd": 32, "n_layer": 1, "n_head": 4, "n_positions": 32, "vocab_size": VOCABULARY, **_NONE}
_IMAGE = {**_SIZES, "image_size": 16, "patch_size": 8}
_DIMENSIONS = {"d_model": 32, "decoder_start_token_id": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def _hugging_face(kind: str, config: str, **settings: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        torch.manual_seed(SEED)
        model: nn.Module = getattr(transformers, kind)(getattr(transformers, config)(**settings))
        return model.eval()

    return make


def _torch(kind: Callable[..., nn.Module], *arguments: Any, **settings: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        torch.manual_seed(SEED)
        return kind(*arguments, **settings).eval()

    return make


def _encoder() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 48, batch_first=True), 1)


def _decoder() -> nn.Module:
    return nn.TransformerDecoder(nn.TransformerDecoderLayer(32, 4, 48, batch_first=True), 1)


FAMILIES: dict[str, Callable[[], nn.Module]] = {
    "BERT": _hugging_face("BertForMaskedLM", "BertConfig", **_SIZES, **_WORDS),
    "RoBERTa": _hugging_face("RobertaForMaskedLM", "RobertaConfig", **_SIZES, **_WORDS),
    "DistilBERT": _hugging_face(
        "DistilBertForMaskedLM", "DistilBertConfig", dim=32, n_layers=1, n_heads=4, hidden_dim=48, **_WORDS
    ),
    "ModernBERT": _hugging_face(
        "ModernBertForMaskedLM", "ModernBertConfig", **_SIZES, **_WORDS, **_NONE, cls_token_id=None, sep_token_id=None
    ),
    "Longformer": _hugging_face("LongformerModel", "LongformerConfig", **_SIZES, **_WORDS, attention_window=4),
    "GPT-2": _hugging_face("GPT2LMHeadModel", "GPT2Config", **_GPT),
    "OPT": _hugging_face(
        "OPTForCausalLM",
        "OPTConfig",
        **(_SIZES | _WORDS | _NONE),
        ffn_dim=48,
        word_embed_proj_dim=32,
    ),
    "GPT-NeoX": _hugging_face("GPTNeoXForCausalLM", "GPTNeoXConfig", **_SIZES, **_WORDS, **_NONE),
    "GPTBigCode, a key for all heads": _hugging_face("GPTBigCodeForCausalLM", "GPTBigCodeConfig", **_GPT),
    "GPTBigCode, a key a head": _hugging_face("GPTBigCodeForCausalLM", "GPTBigCodeConfig", **_GPT, multi_query=False),
    "CodeGen": _hugging_face("CodeGenForCausalLM", "CodeGenConfig", **_GPT, rotary_dim=4),
    "BLOOM": _hugging_face(
        "BloomForCausalLM", "BloomConfig", hidden_size=32, n_layer=1, n_head=4, vocab_size=VOCABULARY, **_NONE
    ),
    "Falcon": _hugging_face("FalconForCausalLM", "FalconConfig", **_SIZES, **_WORDS, **_NONE, ffn_hidden_size=48),
    "Falcon, grouped keys": _hugging_face(
        "FalconForCausalLM",
        "FalconConfig",
        **_SIZES,
        **_WORDS,
        **_NONE,
        ffn_hidden_size=48,
        new_decoder_architecture=True,
        num_kv_heads=2,
    ),
    "Llama": _hugging_face("LlamaForCausalLM", "LlamaConfig", **_GROUPED),
    "Mistral": _hugging_face("MistralForCausalLM", "MistralConfig", **_GROUPED),
    "Mixtral": _hugging_face("MixtralForCausalLM", "MixtralConfig", **_GROUPED, num_local_experts=4),
    "GPT-OSS": _hugging_face("GptOssForCausalLM", "GptOssConfig", **_GROUPED, head_dim=8, num_local_experts=4),
    "Qwen2": _hugging_face("Qwen2ForCausalLM", "Qwen2Config", **_GROUPED),
    "Qwen3": _hugging_face("Qwen3ForCausalLM", "Qwen3Config", **_GROUPED, head_dim=8),
    "Gemma": _hugging_face("GemmaForCausalLM", "GemmaConfig", **_GROUPED, head_dim=8),
    "Gemma 3": _hugging_face("Gemma3ForCausalLM", "Gemma3TextConfig", **_GROUPED, head_dim=8),
    "Phi-3": _hugging_face("Phi3ForCausalLM", "Phi3Config", **_GROUPED),
    "T5": _hugging_face(
        "T5ForConditionalGeneration",
        "T5Config",
        **_DIMENSIONS,
        d_kv=8,
        d_ff=48,
        num_layers=1,
        num_heads=4,
        vocab_size=VOCABULARY,
    ),
    "ViT": _hugging_face("ViTForImageClassification", "ViTConfig", **_IMAGE),
    "DeiT": _hugging_face("DeiTForImageClassification", "DeiTConfig", **_IMAGE),
    "CLIP": _hugging_face(
        "CLIPModel",
        "CLIPConfig",
        text_config={**_SIZES, **_WORDS, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0},
        vision_config=_IMAGE,
        projection_dim=16,
    ),
    "Whisper": _hugging_face(
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        **_DIMENSIONS,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        num_mel_bins=8,
        max_source_positions=8,
        max_target_positions=16,
        vocab_size=VOCABULARY,
        begin_suppress_tokens=None,
    ),
    "nn.MultiheadAttention": _torch(nn.MultiheadAttention, 32, 4, batch_first=True),
    "nn.TransformerEncoder": _torch(_encoder),
    "nn.TransformerDecoder": _torch(_decoder),
}
