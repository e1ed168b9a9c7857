# SPDX-License-Identifier: Apache-2.0
"""Language models of transformers with layers of real width."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import transformers as hf

from hloenv_cases import Lower, case, ints, key, normal, weights

VOCABULARY = 8192


def _gpt2(width: int, depth: int, heads: int):
    return hf.FlaxGPT2LMHeadModel, hf.GPT2Config(
        vocab_size=VOCABULARY, n_embd=width, n_layer=depth, n_head=heads
    )


def _llama(width: int, depth: int, heads: int):
    return hf.FlaxLlamaForCausalLM, hf.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        max_position_embeddings=128,
    )


@case(
    model=[(_gpt2, 256, 4, 4), (_gpt2, 768, 2, 12), (_llama, 512, 2, 8)],
    length=[128],
)
def decoder(lower: Lower, model, length: int) -> None:
    make, *size = model
    model_class, config = make(*size)
    made = model_class(config, _do_init=False)
    shapes = lower.shapes(lambda k: made.init_weights(k, (1, 8)), key())
    params = weights(shapes)
    tokens = ints(VOCABULARY, 1, length, low=3)
    mask = jnp.ones((1, length), jnp.int32)

    def forward(params, tokens, mask):
        return made(tokens, attention_mask=mask, params=params).logits

    def loss(params, tokens, mask):
        scores = jax.nn.log_softmax(forward(params, tokens, mask)[:, :-1])
        found = jnp.take_along_axis(scores, tokens[:, 1:, None], -1)
        return -jnp.mean(found)

    lower("forward", forward, params, tokens, mask)
    lower.loss(loss, params, tokens, mask, only=["train_step"])

    def decode(params, cache, token, mask, position):
        out = made(
            token,
            attention_mask=mask,
            params=params,
            past_key_values=cache,
            position_ids=position,
        )
        return jnp.argmax(out.logits[:, -1], -1), out.past_key_values

    cache = jax.tree.map(
        lambda s: normal(*s.shape) if s.ndim == 4 else ints(100, *s.shape, low=99),
        lower.shapes(lambda: made.init_cache(1, length)),
    )
    one, position = ints(VOCABULARY, 1, 1, low=3), ints(100, 1, 1, low=99)
    lower("decode_step", decode, params, cache, one, mask, position)
