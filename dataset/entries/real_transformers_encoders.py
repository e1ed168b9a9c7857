# SPDX-License-Identifier: Apache-2.0
"""Encoders of transformers with layers of real width."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import transformers as hf

from hloenv_cases import Lower, case, ints, key, weights

VOCABULARY = 8192


@case(size=[(256, 4, 4), (768, 2, 12)])
def bert(lower: Lower, size) -> None:
    width, depth, heads = size
    config = hf.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        num_labels=2,
    )
    made = hf.FlaxBertForSequenceClassification(config, _do_init=False)
    params = weights(lower.shapes(lambda k: made.init_weights(k, (1, 8)), key()))
    tokens, labels = ints(VOCABULARY, 1, 128, low=3), ints(2, 1)
    mask = jnp.ones((1, 128), jnp.int32)

    def forward(params, tokens, mask):
        return made(tokens, attention_mask=mask, params=params).logits

    def loss(params, tokens, mask, labels):
        scores = jax.nn.log_softmax(forward(params, tokens, mask))
        return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], -1))

    lower("forward", forward, params, tokens, mask)
    lower.loss(loss, params, tokens, mask, labels, only=["train_step"])
