# SPDX-License-Identifier: Apache-2.0
"""Encoders and encoder-decoders of transformers, tiny: each with its own head."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import transformers as hf

from hloenv_cases import Lower, case, ints, key

VOCABULARY = 503
LABELS = 5


def _bert_like(width: int, depth: int) -> dict[str, int]:
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": width,
        "num_hidden_layers": depth,
        "num_attention_heads": 4,
        "intermediate_size": 3 * width,
        "max_position_embeddings": 128,
        "num_labels": LABELS,
    }


def _encoder(name: str, width: int, depth: int):
    common = _bert_like(width, depth)
    if name == "distilbert":
        return hf.DistilBertConfig(
            vocab_size=VOCABULARY,
            dim=width,
            n_layers=depth,
            n_heads=4,
            hidden_dim=3 * width,
            max_position_embeddings=128,
            num_labels=LABELS,
        )
    if name == "albert":
        return hf.AlbertConfig(**common, embedding_size=width // 2)
    if name == "electra":
        return hf.ElectraConfig(**common, embedding_size=width // 2)
    if name == "big_bird":
        return hf.BigBirdConfig(**common, attention_type="original_full")
    configs = {
        "bert": hf.BertConfig,
        "roberta": hf.RobertaConfig,
        "roformer": hf.RoFormerConfig,
        "xlm_roberta": hf.XLMRobertaConfig,
    }
    return configs[name](**common)


_STEMS = {
    "albert": "Albert",
    "bert": "Bert",
    "big_bird": "BigBird",
    "distilbert": "DistilBert",
    "electra": "Electra",
    "roberta": "Roberta",
    "roformer": "RoFormer",
    "xlm_roberta": "XLMRoberta",
}


def _cross_entropy(logits, labels):
    scores = jax.nn.log_softmax(logits.astype(jnp.float32))
    return -jnp.mean(jnp.take_along_axis(scores, labels[..., None], -1))


@case(
    name=sorted(_STEMS),
    head=["MaskedLM", "SequenceClassification", "QuestionAnswering"],
    size=[(64, 2, 4, 16), (128, 3, 2, 32)],
)
def encoder(lower: Lower, name: str, head: str, size) -> None:
    width, depth, batch, length = size
    config = _encoder(name, width, depth)
    model = getattr(hf, f"Flax{_STEMS[name]}For{head}")(config, _do_init=False)
    params = lower.shapes(lambda k: model.init_weights(k, (1, 8)), key())
    tokens = ints(VOCABULARY, batch, length, low=3)
    mask = jnp.ones((batch, length), jnp.int32)

    def forward(params, tokens, mask):
        out = model(tokens, attention_mask=mask, params=params)
        if head == "QuestionAnswering":
            return jnp.stack([out.start_logits, out.end_logits], 1)
        return out.logits

    def loss(params, tokens, mask, labels):
        return _cross_entropy(forward(params, tokens, mask), labels)

    labels = {
        "MaskedLM": lambda: ints(VOCABULARY, batch, length),
        "SequenceClassification": lambda: ints(LABELS, batch),
        "QuestionAnswering": lambda: ints(length, batch, 2),
    }[head]()
    lower("forward", forward, params, tokens, mask)
    if head == "MaskedLM" or name in ("bert", "albert"):
        lower.loss(loss, params, tokens, mask, labels)


def _seq2seq(name: str, width: int, depth: int):
    if name in ("t5", "t5_gated", "mt5", "long_t5"):
        options = {
            "vocab_size": VOCABULARY,
            "d_model": width,
            "d_kv": width // 4,
            "d_ff": 3 * width,
            "num_layers": depth,
            "num_heads": 4,
            "decoder_start_token_id": 0,
        }
        if name == "long_t5":
            config = hf.LongT5Config(**options, local_radius=8)
            return hf.FlaxLongT5ForConditionalGeneration, config
        if name == "mt5":
            return hf.FlaxMT5ForConditionalGeneration, hf.MT5Config(**options)
        kind = "gated-gelu" if name == "t5_gated" else "relu"
        config = hf.T5Config(**options, feed_forward_proj=kind)
        return hf.FlaxT5ForConditionalGeneration, config
    options = {
        "vocab_size": VOCABULARY,
        "d_model": width,
        "encoder_layers": depth,
        "decoder_layers": depth,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 3 * width,
        "decoder_ffn_dim": 3 * width,
        "max_position_embeddings": 128,
        "pad_token_id": 1,
        "decoder_start_token_id": 2,
    }
    classes = {
        "bart": (hf.FlaxBartForConditionalGeneration, hf.BartConfig),
        "blenderbot": (hf.FlaxBlenderbotForConditionalGeneration, hf.BlenderbotConfig),
        "marian": (hf.FlaxMarianMTModel, hf.MarianConfig),
        "mbart": (hf.FlaxMBartForConditionalGeneration, hf.MBartConfig),
        "pegasus": (hf.FlaxPegasusForConditionalGeneration, hf.PegasusConfig),
    }
    model, config = classes[name]
    return model, config(**options)


@case(
    name=[
        *("bart", "blenderbot", "long_t5", "marian", "mbart", "mt5", "pegasus"),
        *("t5", "t5_gated"),
    ],
    size=[(64, 2, 2, 16), (96, 3, 4, 24)],
)
def seq2seq(lower: Lower, name: str, size) -> None:
    width, depth, batch, length = size
    model_class, config = _seq2seq(name, width, depth)
    model = model_class(config, _do_init=False)
    params = lower.shapes(lambda k: model.init_weights(k, (1, 16)), key())
    source = ints(VOCABULARY, batch, length, low=3)
    target = ints(VOCABULARY, batch, length // 2, low=3)

    def forward(params, source, target):
        return model(input_ids=source, decoder_input_ids=target, params=params).logits

    def loss(params, source, target):
        logits = forward(params, source, target)
        return _cross_entropy(logits[:, :-1], target[:, 1:])

    lower("forward", forward, params, source, target)
    lower("encode", lambda p, s: model.encode(s, params=p)[0], params, source)
    lower.loss(loss, params, source, target)
