"""Draws one picture with mflux as it was installed: the package is told the sizes of a small model, and nothing of it is edited.

mflux has the sizes of Qwen-Image in its constructors. They are given here from the model's own config.json, before any module is
made; noise is drawn as the official pipeline draws it, because MLX has another generator.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

from driving import picture_parser, watch


def sized(kind, after=None, **sizes):
    """Other defaults for a constructor; `after` mends what it has written as a number inside."""
    original = kind.__init__

    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        original(self, *args, **{**sizes, **kwargs})
        if after is not None:
            after(self)

    kind.__init__ = __init__


def give_sizes(model: Path):
    import numpy as np
    from mflux.models.qwen.model.qwen_text_encoder import qwen_encoder, qwen_encoder_layer
    from mflux.models.qwen.model.qwen_transformer import qwen_rope as image_rope
    from mflux.models.qwen.model.qwen_transformer import qwen_transformer
    from mflux.models.qwen.model.qwen_vae import qwen_image_decoder_3d, qwen_vae

    config = {
        part: json.loads((model / part / "config.json").read_text()) for part in ("text_encoder", "transformer", "vae")
    }
    text, dit, vae = config["text_encoder"]["text_config"], config["transformer"], config["vae"]
    theta = text["rope_parameters"]["rope_theta"]
    head = text["hidden_size"] // text["num_attention_heads"]

    def mrope(layer):
        layer.self_attn.rope_scaling = {"mrope_section": text["rope_parameters"]["mrope_section"]}

    sized(
        qwen_encoder_layer.QwenEncoderLayer,
        after=mrope,
        hidden_size=text["hidden_size"],
        num_attention_heads=text["num_attention_heads"],
        num_key_value_heads=text["num_key_value_heads"],
        intermediate_size=text["intermediate_size"],
    )

    def rotary(encoder):  # mflux divides by 28 heads
        encoder.rotary_emb = type(encoder.rotary_emb)(dim=head, base=theta)

    sized(
        qwen_encoder.QwenEncoder,
        after=rotary,
        vocab_size=text["vocab_size"],
        hidden_size=text["hidden_size"],
        num_hidden_layers=text["num_hidden_layers"],
    )

    def axes(transformer):
        made = transformer.pos_embed
        transformer.pos_embed = image_rope.QwenEmbedRopeMLX(
            theta=made.theta, axes_dim=list(dit["axes_dims_rope"]), scale_rope=made.scale_rope
        )

    sized(
        qwen_transformer.QwenTransformer,
        after=axes,
        num_layers=dit["num_layers"],
        attention_head_dim=dit["attention_head_dim"],
        num_attention_heads=dit["num_attention_heads"],
        joint_attention_dim=dit["joint_attention_dim"],
    )

    def decoder(made):
        d = qwen_image_decoder_3d
        dims = [vae["base_dim"] * u for u in [vae["dim_mult"][-1], *reversed(vae["dim_mult"])]]
        made.conv_in = d.QwenImageCausalConv3D(vae["z_dim"], dims[0], 3, 1, 1)
        made.mid_block = d.QwenImageMidBlock3D(dims[0], num_layers=1)
        for i, mode in enumerate(("upsample3d", "upsample3d", "upsample2d", None)):
            block = d.QwenImageUpBlock3D(
                dims[i] if i == 0 else dims[i] // 2,
                dims[i + 1],
                num_res_blocks=vae["num_res_blocks"],
                upsample_mode=mode,
            )
            setattr(made, f"up_block{i}", block)
        made.norm_out = d.QwenImageRMSNorm(dims[-1], images=False)
        made.conv_out = d.QwenImageCausalConv3D(dims[-1], 3, 3, 1, 1)

    sized(qwen_image_decoder_3d.QwenImageDecoder3D, after=decoder)
    qwen_vae.QwenVAE.LATENTS_MEAN = np.array(vae["latents_mean"], dtype=np.float32)
    qwen_vae.QwenVAE.LATENTS_STD = np.array(vae["latents_std"], dtype=np.float32)


def give_precision(dtype: str):
    """f32 throughout, or what mflux does by itself: bf16 for text and weights."""
    import mlx.core as mx
    from mflux.models.common.config import ModelConfig
    from mflux.models.qwen.model.qwen_text_encoder.qwen_text_encoder import QwenTextEncoder
    from mflux.models.qwen.weights.qwen_weight_definition import QwenWeightDefinition

    components = QwenWeightDefinition.get_components

    def get_components():
        made = components()
        for one in made:
            if one.name == "text_encoder":
                one.loading_mode = "multi_glob"  # the small model has one file and no index
            if dtype == "f32":
                one.precision = mx.float32
        return made

    QwenWeightDefinition.get_components = staticmethod(get_components)
    if dtype != "f32":
        return
    ModelConfig.precision = mx.float32
    process = QwenTextEncoder._process_text_embeddings_mlx
    QwenTextEncoder._process_text_embeddings_mlx = staticmethod(
        lambda *a, **k: process(*a, **{**k, "dtype": mx.float32})
    )


def give_noise():
    import mlx.core as mx
    import torch
    from mflux.models.flux.latent_creator.flux_latent_creator import FluxLatentCreator
    from mflux.models.qwen.latent_creator.qwen_latent_creator import QwenLatentCreator

    def create_noise(seed, height, width):
        noise = torch.randn((1, 1, 16, height // 8, width // 8), generator=torch.Generator("cpu").manual_seed(seed))
        return FluxLatentCreator.pack_latents(mx.array(noise.numpy()), height, width)

    QwenLatentCreator.create_noise = staticmethod(create_noise)


def name_by_hand():
    """Five tensors under names of the porter's own, as somebody records who reads no other names."""
    from lockstep import checkpoint
    from mflux.models.common.schedulers.linear_scheduler import LinearScheduler
    from mflux.models.qwen.model.qwen_text_encoder.qwen_text_encoder import QwenTextEncoder
    from mflux.models.qwen.model.qwen_transformer.qwen_transformer import QwenTransformer
    from mflux.models.qwen.model.qwen_vae.qwen_vae import QwenVAE

    def block(result, _, given):
        # The picture's stream, first and last block.
        if given["idx"] in (0, last_block):
            checkpoint("first_block" if given["idx"] == 0 else "last_block", result[1])

    last_block = len(QwenTransformer().transformer_blocks) - 1
    watch(QwenTextEncoder, "__call__", lambda result, *_: checkpoint("text", result[0]))
    watch(QwenTransformer, "_apply_transformer_block", block)
    watch(LinearScheduler, "step", lambda result, *_: checkpoint("latents", result))
    watch(QwenVAE, "decode", lambda result, *_: checkpoint("picture", result))


def main():
    options = picture_parser(__doc__, "mflux.png").parse_args()

    give_sizes(options.model)
    give_precision(options.dtype)
    give_noise()
    if options.by_hand:
        name_by_hand()
    from mflux.models.common.config import ModelConfig
    from mflux.models.qwen.variants.txt2img.qwen_image import QwenImage

    scheduler = json.loads((options.model / "scheduler" / "scheduler_config.json").read_text())
    config = ModelConfig.qwen_image()
    config.sigma_base_shift, config.sigma_max_shift = scheduler["base_shift"], scheduler["max_shift"]
    config.sigma_base_seq_len, config.sigma_max_seq_len = (
        scheduler["base_image_seq_len"],
        scheduler["max_image_seq_len"],
    )
    config.sigma_shift_terminal = scheduler["shift_terminal"]
    model = QwenImage(model_path=str(options.model), model_config=config)
    image = model.generate_image(
        seed=options.seed,
        prompt=options.prompt,
        negative_prompt=" ",
        num_inference_steps=options.steps,
        height=options.height,
        width=options.width,
        guidance=options.guidance,
    )
    image.image.save(options.output)


if __name__ == "__main__":
    main()
