# SPDX-License-Identifier: Apache-2.0
"""Decoder-only language models of transformers, tiny: scoring, decoding, training."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import transformers as hf

from hloenv_cases import Lower, case, ints, key

VOCABULARY = 503

_COMMON = {"vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": 2}


def _configs(width: int, depth: int) -> dict[str, tuple]:
    llama = {
        **_COMMON,
        "hidden_size": width,
        "intermediate_size": 3 * width,
        "num_hidden_layers": depth,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
    }
    return {
        "gpt2": (
            hf.FlaxGPT2LMHeadModel,
            hf.GPT2Config(
                **_COMMON, n_embd=width, n_layer=depth, n_head=4, n_positions=128
            ),
        ),
        "gpt_neo": (
            hf.FlaxGPTNeoForCausalLM,
            hf.GPTNeoConfig(
                **_COMMON,
                hidden_size=width,
                num_layers=depth,
                num_heads=4,
                attention_types=[[["global", "local"], depth // 2]],
                max_position_embeddings=128,
                window_size=16,
            ),
        ),
        "gptj": (
            hf.FlaxGPTJForCausalLM,
            hf.GPTJConfig(
                **_COMMON,
                n_embd=width,
                n_layer=depth,
                n_head=4,
                n_positions=128,
                rotary_dim=width // 8,
            ),
        ),
        "llama": (hf.FlaxLlamaForCausalLM, hf.LlamaConfig(**llama)),
        "mistral": (
            hf.FlaxMistralForCausalLM,
            hf.MistralConfig(**llama, sliding_window=16),
        ),
        "gemma": (
            hf.FlaxGemmaForCausalLM,
            hf.GemmaConfig(**llama, head_dim=width // 4),
        ),
        "opt": (
            hf.FlaxOPTForCausalLM,
            hf.OPTConfig(
                **_COMMON,
                hidden_size=width,
                ffn_dim=4 * width,
                num_hidden_layers=depth,
                num_attention_heads=4,
                max_position_embeddings=128,
                word_embed_proj_dim=width,
            ),
        ),
        "bloom": (
            hf.FlaxBloomForCausalLM,
            hf.BloomConfig(**_COMMON, hidden_size=width, n_layer=depth, n_head=4),
        ),
        "xglm": (
            hf.FlaxXGLMForCausalLM,
            hf.XGLMConfig(
                **_COMMON,
                d_model=width,
                ffn_dim=4 * width,
                num_layers=depth,
                attention_heads=4,
                max_position_embeddings=128,
            ),
        ),
    }


@case(
    name=list(_configs(64, 2)),
    size=[(64, 2, 2, 16), (128, 4, 4, 32)],
)
def decoder(lower: Lower, name: str, size) -> None:
    width, depth, batch, length = size
    model_class, config = _configs(width, depth)[name]
    model = model_class(config, _do_init=False)
    params = lower.shapes(lambda k: model.init_weights(k, (1, 8)), key())
    tokens = ints(VOCABULARY, batch, length, low=3)
    mask = jnp.ones((batch, length), jnp.int32)

    def forward(params, tokens, mask):
        return model(tokens, attention_mask=mask, params=params).logits

    def loss(params, tokens, mask):
        logits = forward(params, tokens, mask)[:, :-1].astype(jnp.float32)
        scores = jax.nn.log_softmax(logits)
        found = jnp.take_along_axis(scores, tokens[:, 1:, None], -1)[..., 0]
        weights = mask[:, 1:].astype(jnp.float32)
        return -jnp.sum(found * weights) / jnp.sum(weights)

    lower("forward", forward, params, tokens, mask)
    lower.loss(loss, params, tokens, mask)

    def decode(params, cache, token, mask, position):
        extra = {} if name in ("opt", "xglm", "bloom") else {"position_ids": position}
        out = model(
            token, attention_mask=mask, params=params, past_key_values=cache, **extra
        )
        return jnp.argmax(out.logits[:, -1], -1), out.past_key_values

    cache = lower.shapes(lambda: model.init_cache(batch, length))
    one = ints(VOCABULARY, batch, 1, low=3)
    position = ints(2, batch, 1)
    if name not in ("opt", "xglm"):
        lower("decode_step", decode, params, cache, one, mask, position)
