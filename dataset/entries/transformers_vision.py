# SPDX-License-Identifier: Apache-2.0
"""Vision and audio models of transformers, tiny: classification, CLIP, speech."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import transformers as hf

from hloenv_cases import Lower, case, floats, ints, key

LABELS = 10


def _patches(width: int, depth: int, image: int) -> dict[str, int]:
    return {
        "hidden_size": width,
        "num_hidden_layers": depth,
        "num_attention_heads": 4,
        "intermediate_size": 3 * width,
        "image_size": image,
        "patch_size": 8,
        "num_labels": LABELS,
    }


def _model(name: str, size):
    width, depth, image = size
    patches = _patches(width, depth, image)
    stages = {
        "num_channels": 3,
        "embedding_size": width // 2,
        "hidden_sizes": [width // 2 * (i + 1) for i in range(depth)],
        "depths": [2] * depth,
        "num_labels": LABELS,
    }
    if name == "vit":
        return hf.FlaxViTForImageClassification, hf.ViTConfig(**patches)
    if name == "beit":
        config = hf.BeitConfig(**patches, use_relative_position_bias=True)
        return hf.FlaxBeitForImageClassification, config
    if name == "dinov2":
        config = hf.Dinov2Config(**patches, mlp_ratio=3)
        return hf.FlaxDinov2ForImageClassification, config
    if name == "regnet":
        config = hf.RegNetConfig(**stages, groups_width=width // 4, layer_type="y")
        return hf.FlaxRegNetForImageClassification, config
    kind = name.removeprefix("resnet_")
    config = hf.ResNetConfig(**stages, layer_type=kind)
    return hf.FlaxResNetForImageClassification, config


@case(
    name=["vit", "beit", "dinov2", "regnet", "resnet_basic", "resnet_bottleneck"],
    size=[(32, 2, 32), (64, 4, 48)],
)
def classifier(lower: Lower, name: str, size) -> None:
    model_class, config = _model(name, size)
    image = size[2]
    model = model_class(config, input_shape=(1, image, image, 3), _do_init=False)
    shape = (1, image, image, 3)
    variables = lower.shapes(lambda k: model.init_weights(k, shape), key())
    has_stats = "batch_stats" in variables
    pixels, labels = floats(4, 3, image, image), ints(LABELS, 4)

    def forward(variables, pixels):
        return model(pixels, params=variables).logits

    def error(logits, labels):
        scores = jax.nn.log_softmax(logits)
        return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], 1))

    lower("forward", forward, variables, pixels)
    if not has_stats:
        lower.loss(lambda v, x, y: error(forward(v, x), y), variables, pixels, labels)
        return

    def loss(params, stats, pixels, labels):
        both = {"params": params, "batch_stats": stats}
        out, changed = model(pixels, params=both, train=True)
        return error(out.logits, labels), changed["batch_stats"]

    params, stats = variables["params"], variables["batch_stats"]
    lower("loss", loss, params, stats, pixels, labels)
    gradient = jax.value_and_grad(loss, has_aux=True)
    lower("grad", gradient, params, stats, pixels, labels)

    def train_step(params, stats, velocity, pixels, labels):
        (value, stats), grads = gradient(params, stats, pixels, labels)
        tree = jax.tree_util.tree_map
        velocity = tree(lambda v, g: 0.9 * v + g, velocity, grads)
        params = tree(lambda p, v: p - 0.1 * v, params, velocity)
        return params, stats, velocity, value

    lower("train_step", train_step, params, stats, params, pixels, labels)


@case(size=[(32, 2, 16), (64, 3, 32)])
def clip(lower: Lower, size) -> None:
    width, depth, image = size
    text = {
        "vocab_size": 301,
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": depth,
        "num_attention_heads": 4,
        "max_position_embeddings": 32,
        "eos_token_id": 2,
    }
    vision = _patches(width, depth, image)
    del vision["num_labels"]
    config = hf.CLIPConfig(text_config=text, vision_config=vision, projection_dim=32)
    model = hf.FlaxCLIPModel(config, _do_init=False)
    shape = ((1, 8), (1, image, image, 3))
    params = lower.shapes(lambda k: model.init_weights(k, shape), key())
    tokens, pixels = ints(301, 4, 12), floats(4, 3, image, image)

    def loss(params, tokens, pixels):
        logits = model(tokens, pixels, params=params).logits_per_image
        right = jnp.arange(4)
        rows = jax.nn.log_softmax(logits, 1)[right, right]
        columns = jax.nn.log_softmax(logits, 0)[right, right]
        return -jnp.mean(rows + columns)

    lower.loss(loss, params, tokens, pixels)


@case(size=[(32, 2), (64, 3)])
def whisper(lower: Lower, size) -> None:
    width, depth = size
    config = hf.WhisperConfig(
        vocab_size=301,
        num_mel_bins=20,
        d_model=width,
        encoder_layers=depth,
        decoder_layers=depth,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=2 * width,
        decoder_ffn_dim=2 * width,
        max_source_positions=40,
        max_target_positions=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    model = hf.FlaxWhisperForConditionalGeneration(config, _do_init=False)
    shape = (1, 20, 80)
    params = lower.shapes(lambda k: model.init_weights(k, shape), key())
    features, tokens = floats(2, 20, 80), ints(301, 2, 12)

    def loss(params, features, tokens):
        logits = model(features, tokens, params=params).logits[:, :-1]
        scores = jax.nn.log_softmax(logits)
        return -jnp.mean(jnp.take_along_axis(scores, tokens[:, 1:, None], -1))

    lower("encode", lambda p, x: model.encode(x, params=p)[0], params, features)
    lower.loss(loss, params, features, tokens)


@case(size=[(32, 2), (64, 3)], stable=[False, True])
def wav2vec2(lower: Lower, size, stable: bool) -> None:
    width, depth = size
    config = hf.Wav2Vec2Config(
        vocab_size=32,
        hidden_size=width,
        num_hidden_layers=depth,
        num_attention_heads=4,
        intermediate_size=2 * width,
        conv_dim=(16, 16, 32),
        conv_kernel=(10, 3, 3),
        conv_stride=(5, 2, 2),
        num_feat_extract_layers=3,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        do_stable_layer_norm=stable,
        feat_extract_norm="layer",
        mask_time_prob=0.0,
    )
    model = hf.FlaxWav2Vec2ForCTC(config, _do_init=False)
    params = lower.shapes(lambda k: model.init_weights(k, (1, 1024)), key())
    wave = floats(2, 2000)

    def loss(params, wave, labels, padding):
        import optax

        logits = model(wave, params=params).logits
        blank = jnp.zeros(logits.shape[:2])
        return jnp.mean(optax.ctc_loss(logits, blank, labels, padding))

    lower("forward", lambda p, x: model(x, params=p).logits, params, wave)
    lower.loss(loss, params, wave, ints(32, 2, 10, low=1), floats(2, 10))
