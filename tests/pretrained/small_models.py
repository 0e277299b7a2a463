"""Small random models of each family, as they come from transformers."""

import copy
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    RobertaConfig,
    RobertaModel,
    ViTConfig,
    ViTModel,
)

from strongticket.pretrained.families import What, family_of
from strongticket.pretrained.torch_modules import opened

VOCABULARY = 60
FAMILIES = ("bert", "gpt2", "vit")


def seeded(make: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """Let a constructor draw the same weights whatever was drawn before."""

    @wraps(make)
    def made(**settings: Any) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return make(**settings)

    return made


@seeded
def make_bert(**settings: Any) -> nn.Module:
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    return BertModel(BertConfig(vocab_size=VOCABULARY, **{**sizes, **settings}))


@seeded
def make_roberta(**settings: Any) -> nn.Module:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    return RobertaModel(RobertaConfig(vocab_size=VOCABULARY, **{**sizes, **settings}))


@seeded
def make_gpt2(**settings: Any) -> nn.Module:
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_inner": 24, "n_positions": 32}
    special = {"bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, **special, **{**sizes, **settings}))


@seeded
def make_vit(**settings: Any) -> nn.Module:
    sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20}
    return ViTModel(ViTConfig(image_size=8, patch_size=4, **{**sizes, **settings}))


MAKERS = {"bert": make_bert, "gpt2": make_gpt2, "vit": make_vit}


def randomize(model: nn.Module, seed: int = 0) -> nn.Module:
    """Give every parameter a size a trained one could have: biases that are not 0, norms that are not 1."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data += 0.15 * torch.randn(parameter.shape, generator=generator)
    if hasattr(model, "set_attn_implementation"):
        model.set_attn_implementation("eager")
    return model.eval()


_SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 24}
_GROUPS = {**_SIZES, "num_key_value_heads": 2, "head_dim": 6}
_TOKENS = {"vocab_size": VOCABULARY, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
_IMAGE = {"image_size": 8, "patch_size": 4}
_T5 = {**_TOKENS, "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 1, "num_heads": 4}
_TOWERS = {"text_config": {**_TOKENS, **_SIZES}, "vision_config": {**_IMAGE, **_SIZES}, "projection_dim": 8}
_SOUND = {"num_mel_bins": 8, "max_source_positions": 6, "max_target_positions": 20, "decoder_start_token_id": 0}
_STACKS = {
    f"{side}_{what}": number
    for side in ("encoder", "decoder")
    for what, number in (("layers", 1), ("attention_heads", 4), ("ffn_dim", 24))
}
_ONE = {**_TOKENS, **_STACKS, "d_model": 16, "decoder_start_token_id": 0}
_EXPERTS = {**_GROUPS, "num_local_experts": 2, "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 24}
_TORCH = {"d_model": 16, "nhead": 4, "dim_feedforward": 24}

# By a name, a model's class and the settings of its configuration: every family that is built in.
ZOO: dict[str, tuple[str, dict[str, Any]]] = {
    "BERT": ("BertModel", {**_TOKENS, **_SIZES}),
    "RoBERTa": ("RobertaModel", {**_TOKENS, **_SIZES}),
    "XLM-RoBERTa": ("XLMRobertaModel", {**_TOKENS, **_SIZES}),
    "CamemBERT": ("CamembertModel", {**_TOKENS, **_SIZES}),
    "MPNet": ("MPNetModel", {**_TOKENS, **_SIZES}),
    "DistilBERT": ("DistilBertModel", {**_TOKENS, "dim": 16, "n_heads": 4, "n_layers": 1, "hidden_dim": 24}),
    "ModernBERT": ("ModernBertModel", {**_TOKENS, **_SIZES, "cls_token_id": 0, "sep_token_id": 1}),
    "GPT-2": ("GPT2LMHeadModel", {**_TOKENS, "n_embd": 16, "n_layer": 1, "n_head": 4, "n_inner": 24}),
    "GPT-Neo": (
        "GPTNeoForCausalLM",
        {**_TOKENS, **_SIZES, "num_layers": 1, "num_heads": 4, "attention_types": [[["global"], 1]]},
    ),
    "GPT-J": ("GPTJForCausalLM", {**_TOKENS, "n_embd": 16, "n_layer": 1, "n_head": 4, "n_inner": 24, "rotary_dim": 4}),
    "OPT": ("OPTForCausalLM", {**_TOKENS, **_SIZES, "ffn_dim": 24, "word_embed_proj_dim": 16}),
    "GPT-NeoX": ("GPTNeoXForCausalLM", {**_TOKENS, **_SIZES}),
    "Phi": ("PhiForCausalLM", {**_TOKENS, **_SIZES, "num_key_value_heads": 2}),
    "Phi-3": ("Phi3ForCausalLM", {**_TOKENS, **_GROUPS}),
    "Llama": ("LlamaForCausalLM", {**_TOKENS, **_GROUPS}),
    "Mistral": ("MistralForCausalLM", {**_TOKENS, **_GROUPS}),
    "Ministral 3": ("Ministral3ForCausalLM", {**_TOKENS, **_GROUPS}),
    "SmolLM3": ("SmolLM3ForCausalLM", {**_TOKENS, **_GROUPS}),
    "StableLM": ("StableLmForCausalLM", {**_TOKENS, **_SIZES, "num_key_value_heads": 2}),
    "Granite": ("GraniteForCausalLM", {**_TOKENS, **_GROUPS, "residual_multiplier": 0.5, "embedding_multiplier": 3.0}),
    "Cohere": ("CohereForCausalLM", {**_TOKENS, **_GROUPS}),
    "Cohere 2": ("Cohere2ForCausalLM", {**_TOKENS, **_GROUPS}),
    "Qwen2": ("Qwen2ForCausalLM", {**_TOKENS, **_GROUPS}),
    "Qwen3": ("Qwen3ForCausalLM", {**_TOKENS, **_GROUPS}),
    "Gemma": ("GemmaForCausalLM", {**_TOKENS, **_GROUPS}),
    "Gemma 2": ("Gemma2ForCausalLM", {**_TOKENS, **_GROUPS}),
    "Gemma 3": ("Gemma3ForCausalLM", {**_TOKENS, **_GROUPS}),
    "Mixtral": ("MixtralForCausalLM", {**_TOKENS, **_EXPERTS}),
    "Qwen2-MoE": ("Qwen2MoeForCausalLM", {**_TOKENS, **_EXPERTS}),
    "Qwen3-MoE": ("Qwen3MoeForCausalLM", {**_TOKENS, **_EXPERTS}),
    "GPT-OSS": ("GptOssForCausalLM", {**_TOKENS, **_EXPERTS}),
    "T5": ("T5ForConditionalGeneration", _T5),
    "T5 1.1": ("T5Model", {**_T5, "feed_forward_proj": "gated-gelu"}),
    "mT5": ("MT5ForConditionalGeneration", {**_T5, "feed_forward_proj": "gated-gelu"}),
    "UMT5": ("UMT5ForConditionalGeneration", {**_T5, "feed_forward_proj": "gated-gelu"}),
    "BART": ("BartForConditionalGeneration", _ONE),
    "mBART": ("MBartForConditionalGeneration", _ONE),
    "Pegasus": ("PegasusForConditionalGeneration", _ONE),
    "M2M100": ("M2M100ForConditionalGeneration", _ONE),
    "ViT": ("ViTModel", {**_IMAGE, **_SIZES}),
    "DeiT": ("DeiTModel", {**_IMAGE, **_SIZES}),
    "DINOv2": ("Dinov2Model", {**_IMAGE, **_SIZES}),
    "DINOv2, gated": ("Dinov2Model", {**_IMAGE, **_SIZES, "use_swiglu_ffn": True}),
    "DINOv2 with registers": ("Dinov2WithRegistersModel", {**_IMAGE, **_SIZES}),
    "CLIP": ("CLIPModel", _TOWERS),
    "CLIP, texts": ("CLIPTextModel", {**_TOKENS, **_SIZES}),
    "CLIP, images": ("CLIPVisionModel", {**_IMAGE, **_SIZES}),
    "SigLIP": ("SiglipModel", {**_TOWERS, "text_config": {**_TOWERS["text_config"], "projection_size": 16}}),
    "SigLIP, images": ("SiglipVisionModel", {**_IMAGE, **_SIZES}),
    "Whisper": ("WhisperModel", {**_TOKENS, **_STACKS, **_SOUND, "d_model": 16}),
}


def _encoder(**settings: Any) -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(**_TORCH, **settings), 2, enable_nested_tensor=False)


def _decoder(**settings: Any) -> nn.Module:
    return nn.TransformerDecoder(nn.TransformerDecoderLayer(**_TORCH, **settings), 2)


TORCH: dict[str, Callable[[], nn.Module]] = {
    "nn.TransformerEncoder": _encoder,
    "nn.TransformerEncoder, norm_first": lambda: _encoder(norm_first=True, batch_first=True),
    "nn.TransformerDecoder": lambda: _decoder(activation="gelu"),
    "nn.TransformerDecoder, norm_first": lambda: _decoder(norm_first=True),
    "nn.Transformer": lambda: nn.Transformer(**_TORCH, num_encoder_layers=1, num_decoder_layers=1, batch_first=True),
    "nn.MultiheadAttention": lambda: nn.MultiheadAttention(16, 4),
}


def from_zoo(name: str, **settings: Any) -> nn.Module:
    """Make a small model of a family, with numbers as large as trained ones."""

    @seeded
    def make() -> nn.Module:
        if name in TORCH:
            return TORCH[name]()
        model_class = getattr(transformers, ZOO[name][0])
        return model_class(model_class.config_class(**{**ZOO[name][1], **settings}))

    return randomize(make())


def what(name: str) -> What:
    """Give all that a family describes."""
    family = family_of(opened(from_zoo(name)).config, "linear")
    has_mlp = any(part.in_mlp for parts in family.layers.values() for part in parts)
    return "attention+mlp" if has_mlp else "attention"


def small(family: str) -> nn.Module:
    """Give the family's model, each time a new one: transformers itself leaves hooks in a model that shows its maps."""
    return copy.deepcopy(_made(family))


@cache
def _made(family: str) -> nn.Module:
    return randomize(MAKERS[family]())


def inputs(family: str, seed: int = 1) -> dict[str, Tensor]:
    """Give a batch the family's model reads, with padding where it can have some."""
    generator = torch.Generator().manual_seed(seed)
    if family == "vit":
        return {"pixel_values": torch.randn(3, 3, 8, 8, generator=generator)}
    mask = torch.ones(3, 7, dtype=torch.int64)
    mask[1, 5:] = 0
    return {"input_ids": torch.randint(VOCABULARY, (3, 7), generator=generator), "attention_mask": mask}


@torch.no_grad()
def output_of(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Give hidden states or logits, of tokens that are no padding."""
    result: Tensor = model(
        **{k: v.double() if k == "pixel_values" and is_double(model) else v for k, v in batch.items()}
    )[0]
    return result[batch["attention_mask"].bool()] if "attention_mask" in batch else result


def is_double(model: nn.Module) -> bool:
    return next(model.parameters()).dtype == torch.float64
