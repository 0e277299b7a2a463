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
_TOWERS: dict[str, Any] = {
    "text_config": {**_SIZES, **_WORDS, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0},
    "vision_config": _IMAGE,
    "projection_dim": 16,
}
_PAIR = {"d_model": 32, "decoder_start_token_id": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_T5 = {**_PAIR, "d_kv": 8, "d_ff": 48, "num_layers": 1, "num_heads": 4, "vocab_size": VOCABULARY}
_STACKS = {
    **_PAIR,
    **{
        f"{side}_{what}": n
        for side in ("encoder", "decoder")
        for what, n in (("layers", 1), ("attention_heads", 4), ("ffn_dim", 48))
    },
}


def _hugging_face(kind: str, **settings: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        torch.manual_seed(SEED)
        model_class = getattr(transformers, kind)
        model: nn.Module = model_class(model_class.config_class(**settings))
        return model.eval()

    return make


def _torch(kind: Callable[..., nn.Module], *arguments: Any, **settings: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        torch.manual_seed(SEED)
        return kind(*arguments, **settings).eval()

    return make


def _encoder() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 48, batch_first=True), 1)


def _both() -> nn.Module:
    return nn.Transformer(32, 4, 1, 1, 48, batch_first=True)


def _decoder() -> nn.Module:
    return nn.TransformerDecoder(nn.TransformerDecoderLayer(32, 4, 48, batch_first=True), 1)


FAMILIES: dict[str, Callable[[], nn.Module]] = {
    "BERT": _hugging_face("BertForMaskedLM", **_SIZES, **_WORDS),
    "RoBERTa": _hugging_face("RobertaForMaskedLM", **_SIZES, **_WORDS),
    "XLM-RoBERTa": _hugging_face("XLMRobertaForMaskedLM", **_SIZES, **_WORDS),
    "CamemBERT": _hugging_face("CamembertForMaskedLM", **_SIZES, **_WORDS),
    "MPNet": _hugging_face("MPNetForMaskedLM", **_SIZES, **_WORDS),
    "DistilBERT": _hugging_face("DistilBertForMaskedLM", dim=32, n_layers=1, n_heads=4, hidden_dim=48, **_WORDS),
    "ModernBERT": _hugging_face(
        "ModernBertForMaskedLM", **_SIZES, **_WORDS, **_NONE, cls_token_id=None, sep_token_id=None
    ),
    "Longformer": _hugging_face("LongformerModel", **_SIZES, **_WORDS, attention_window=4),
    "GPT-2": _hugging_face("GPT2LMHeadModel", **_GPT),
    "GPT-Neo": _hugging_face(
        "GPTNeoForCausalLM", **_SIZES, **_WORDS, **_NONE, num_layers=1, num_heads=4, attention_types=[[["global"], 1]]
    ),
    "GPT-J": _hugging_face("GPTJForCausalLM", **_GPT, rotary_dim=4),
    "OPT": _hugging_face(
        "OPTForCausalLM",
        **(_SIZES | _WORDS | _NONE),
        ffn_dim=48,
        word_embed_proj_dim=32,
    ),
    "GPT-NeoX": _hugging_face("GPTNeoXForCausalLM", **_SIZES, **_WORDS, **_NONE),
    "GPTBigCode, a key for all heads": _hugging_face("GPTBigCodeForCausalLM", **_GPT),
    "GPTBigCode, a key per head": _hugging_face("GPTBigCodeForCausalLM", **_GPT, multi_query=False),
    "CodeGen": _hugging_face("CodeGenForCausalLM", **_GPT, rotary_dim=4),
    "BLOOM": _hugging_face("BloomForCausalLM", hidden_size=32, n_layer=1, n_head=4, vocab_size=VOCABULARY, **_NONE),
    "Falcon": _hugging_face("FalconForCausalLM", **_SIZES, **_WORDS, **_NONE, ffn_hidden_size=48),
    "Falcon, grouped keys": _hugging_face(
        "FalconForCausalLM",
        **_SIZES,
        **_WORDS,
        **_NONE,
        ffn_hidden_size=48,
        new_decoder_architecture=True,
        num_kv_heads=2,
    ),
    "Phi": _hugging_face("PhiForCausalLM", **_GROUPED),
    "Llama": _hugging_face("LlamaForCausalLM", **_GROUPED),
    "Mistral": _hugging_face("MistralForCausalLM", **_GROUPED),
    "Ministral 3": _hugging_face("Ministral3ForCausalLM", **_GROUPED, head_dim=8),
    "SmolLM3": _hugging_face("SmolLM3ForCausalLM", **_GROUPED),
    "StableLM": _hugging_face("StableLmForCausalLM", **_GROUPED),
    "Granite": _hugging_face("GraniteForCausalLM", **_GROUPED),
    "Cohere": _hugging_face("CohereForCausalLM", **_GROUPED),
    "Cohere 2": _hugging_face("Cohere2ForCausalLM", **_GROUPED, head_dim=8),
    "GLM-4": _hugging_face("Glm4ForCausalLM", **_GROUPED, head_dim=8),
    "Mixtral": _hugging_face("MixtralForCausalLM", **_GROUPED, num_local_experts=4),
    "GPT-OSS": _hugging_face("GptOssForCausalLM", **_GROUPED, head_dim=8, num_local_experts=4),
    "Qwen2": _hugging_face("Qwen2ForCausalLM", **_GROUPED),
    "Qwen3": _hugging_face("Qwen3ForCausalLM", **_GROUPED, head_dim=8),
    "Qwen2-MoE": _hugging_face(
        "Qwen2MoeForCausalLM",
        **_GROUPED,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=24,
        shared_expert_intermediate_size=24,
    ),
    "Qwen3-MoE": _hugging_face(
        "Qwen3MoeForCausalLM", **_GROUPED, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24
    ),
    "Gemma": _hugging_face("GemmaForCausalLM", **_GROUPED, head_dim=8),
    "Gemma 2": _hugging_face("Gemma2ForCausalLM", **_GROUPED, head_dim=8),
    "Gemma 3": _hugging_face("Gemma3ForCausalLM", **_GROUPED, head_dim=8),
    "Phi-3": _hugging_face("Phi3ForCausalLM", **_GROUPED),
    "T5": _hugging_face("T5ForConditionalGeneration", **_T5),
    "T5 1.1": _hugging_face("T5ForConditionalGeneration", **_T5, feed_forward_proj="gated-gelu"),
    "mT5": _hugging_face("MT5ForConditionalGeneration", **_T5, feed_forward_proj="gated-gelu"),
    "UMT5": _hugging_face("UMT5ForConditionalGeneration", **_T5, feed_forward_proj="gated-gelu"),
    "BART": _hugging_face("BartForConditionalGeneration", **_WORDS, **_STACKS),
    "mBART": _hugging_face("MBartForConditionalGeneration", **_WORDS, **_STACKS),
    "Pegasus": _hugging_face("PegasusForConditionalGeneration", **_WORDS, **_STACKS),
    "M2M100": _hugging_face("M2M100ForConditionalGeneration", **_WORDS, **_STACKS),
    "ViT": _hugging_face("ViTForImageClassification", **_IMAGE),
    "DeiT": _hugging_face("DeiTForImageClassification", **_IMAGE),
    "DINOv2": _hugging_face("Dinov2Model", **_IMAGE),
    "DINOv2, gated": _hugging_face("Dinov2Model", **_IMAGE, use_swiglu_ffn=True),
    "DINOv2 with registers": _hugging_face("Dinov2WithRegistersModel", **_IMAGE),
    "CLIP": _hugging_face("CLIPModel", **_TOWERS),
    "CLIP, texts": _hugging_face("CLIPTextModel", **_TOWERS["text_config"]),
    "CLIP, images": _hugging_face("CLIPVisionModel", **_IMAGE),
    "SigLIP": _hugging_face("SiglipModel", **_TOWERS),
    "SigLIP, images": _hugging_face("SiglipVisionModel", **_IMAGE),
    "Whisper": _hugging_face(
        "WhisperForConditionalGeneration",
        **_STACKS,
        num_mel_bins=8,
        max_source_positions=8,
        max_target_positions=16,
        vocab_size=VOCABULARY,
        begin_suppress_tokens=None,
    ),
    "nn.MultiheadAttention": _torch(nn.MultiheadAttention, 32, 4, batch_first=True),
    "nn.TransformerEncoder": _torch(_encoder),
    "nn.TransformerDecoder": _torch(_decoder),
    "nn.Transformer": _torch(_both),
}
