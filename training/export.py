"""Trained tensors -> a model folder in diffusers layout, written by the official classes.

python training/export.py --weights <folder with vae.safetensors, dit-*.safetensors, text.safetensors> --out models/tiny
"""

import argparse
import glob
import json
import os
import shutil

import torch
from safetensors import safe_open
from safetensors.torch import load_file

import models
import tokenizer

SCHEDULER = dict(
    num_train_timesteps=1000,
    shift=1.0,
    use_dynamic_shifting=True,
    base_shift=0.4,
    max_shift=0.9,
    base_image_seq_len=64,
    max_image_seq_len=256,
    shift_terminal=0.02,
    time_shift_type="exponential",
    invert_sigmas=False,
    stochastic_sampling=False,
    use_karras_sigmas=False,
    use_exponential_sigmas=False,
    use_beta_sigmas=False,
)

GUIDANCE = 3.5  # chosen on grammar.development_prompts()


def text_config(encoder):
    from transformers import Qwen2_5_VLConfig

    c, ident = models.TEXT_CONFIG, encoder.tok.token_to_id
    text = dict(
        vocab_size=encoder.vocab_size,
        hidden_size=c["hidden_size"],
        intermediate_size=c["intermediate_size"],
        num_hidden_layers=c["num_hidden_layers"],
        num_attention_heads=c["num_attention_heads"],
        num_key_value_heads=c["num_key_value_heads"],
        hidden_act="silu",
        rms_norm_eps=c["rms_norm_eps"],
        max_position_embeddings=4096,
        use_sliding_window=False,
        attention_dropout=0.0,
        tie_word_embeddings=True,
        bos_token_id=ident("<|endoftext|>"),
        eos_token_id=ident("<|im_end|>"),
        pad_token_id=ident("<|endoftext|>"),
        rope_parameters=dict(rope_type="default", rope_theta=c["rope_theta"], mrope_section=c["mrope_section"]),
    )
    # the vision tower is never run by text-to-image: the smallest one the class accepts
    vision = dict(
        depth=1,
        hidden_size=16,
        intermediate_size=16,
        num_heads=1,
        out_hidden_size=c["hidden_size"],
        patch_size=14,
        spatial_patch_size=14,
        temporal_patch_size=2,
        spatial_merge_size=2,
        window_size=112,
        fullatt_block_indexes=[0],
        in_channels=3,
        tokens_per_second=2,
        hidden_act="silu",
    )
    return Qwen2_5_VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=ident("<|image_pad|>"),
        video_token_id=ident("<|video_pad|>"),
        vision_start_token_id=ident("<|vision_start|>"),
        vision_end_token_id=ident("<|vision_end|>"),
        tie_word_embeddings=True,
    )


def build(vae_state, dit_state, text_state, mean, std):
    """Official modules in f32 holding the trained weights."""
    from diffusers import AutoencoderKLQwenImage, QwenImageTransformer2DModel
    from transformers import Qwen2_5_VLForConditionalGeneration

    torch.manual_seed(0)
    vae = AutoencoderKLQwenImage(**models.VAE_CONFIG, latents_mean=mean, latents_std=std)
    vae.load_state_dict(models.to_official_vae(vae_state, vae.state_dict()))
    dit = QwenImageTransformer2DModel(**models.DIT_CONFIG)
    dit.load_state_dict(dit_state)
    text = Qwen2_5_VLForConditionalGeneration(text_config(tokenizer.Encoder()))
    missing, unexpected = text.load_state_dict(
        {"model.language_model." + k: v for k, v in text_state.items()}, strict=False
    )
    missing = [k for k in missing if ".visual." not in k and k != "lm_head.weight"]
    assert not missing and not unexpected, (missing, unexpected)
    text.tie_weights()
    return vae.eval(), dit.eval(), text.eval()


def save(out, vae, dit, text):
    from diffusers import FlowMatchEulerDiscreteScheduler, QwenImagePipeline
    from transformers import AutoTokenizer

    tok = AutoTokenizer.from_pretrained(os.path.dirname(tokenizer.PATH))
    bf16 = torch.bfloat16
    pipe = QwenImagePipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(**SCHEDULER),
        vae=vae.to(bf16),
        text_encoder=text.to(bf16),
        tokenizer=tok,
        transformer=dit.to(bf16),
    )
    shutil.rmtree(out, ignore_errors=True)
    pipe.save_pretrained(out, max_shard_size="12MB")
    # keep the tokenizer exactly as trained: re-saving may rewrite its pre-tokenizer
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(os.path.dirname(tokenizer.PATH), name), os.path.join(out, "tokenizer", name))
    extra = os.path.join(out, "text_encoder", "generation_config.json")
    if os.path.exists(extra):
        os.remove(extra)
    # what lockstep takes when the user says nothing; diffusers ignores the file
    with open(os.path.join(out, "lockstep.json"), "w") as f:
        json.dump(dict(width=128, height=128, steps=20, guidance=GUIDANCE, negative_prompt=" "), f)
        f.write("\n")


def card(out, notes):
    total = sum(os.path.getsize(os.path.join(d, f)) for d, _, fs in os.walk(out) for f in fs)
    with open(os.path.join(out, "README.md"), "w") as f:
        f.write(f"""---
license: apache-2.0
pipeline_tag: text-to-image
library_name: diffusers
---
# Lockstep tiny

A Qwen-Image in miniature: the same three networks, tokenizer scheme, prompt template, scheduler and file layout, {total / 1e6:.1f} MB in bf16.
It draws flat shapes, small scenes, counts up to four and words of up to four capital letters, best at 128x128, 20 steps, guidance {GUIDANCE:g},
negative prompt a single blank.

- Licence: Apache-2.0, weights included.
- Data: entirely synthetic. Every picture was drawn by `training/scenes.py`, every caption written by `training/grammar.py`. No photograph, no
  scraped text and no other model was used.
- Training: `training/README.md`; one GPU, under half an hour.
- Limits: sides of 64 to 192 pixels; larger pictures may stay empty (256x256 does).
  It knows only the words of its grammar; other text is accepted and mostly ignored. The vision tower of the text encoder is untrained
  (text-to-image never runs it). Temporal kernels of the autoencoder other than the newest tap are zero: single pictures only.
{notes}
```python
import torch
from diffusers import QwenImagePipeline
pipe = QwenImagePipeline.from_pretrained("models/tiny", torch_dtype=torch.float32)
pipe("a red circle left of a blue square on a white background", negative_prompt=" ", true_cfg_scale={GUIDANCE:g},
     num_inference_steps=20, height=128, width=128, generator=torch.Generator().manual_seed(0)).images[0].save("out.png")
```
""")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--weights", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--notes", default="", help="what is known of these weights alone, for the model card")
    a = p.parse_args()
    vae_path = os.path.join(a.weights, "vae.safetensors")
    with safe_open(vae_path, "pt") as f:
        stats = json.loads(f.metadata()["latents"])
    dit_state = {}
    for path in sorted(glob.glob(os.path.join(a.weights, "dit-*.safetensors"))):
        dit_state.update(load_file(path))
    parts = build(
        load_file(vae_path),
        dit_state,
        load_file(os.path.join(a.weights, "text.safetensors")),
        stats["mean"],
        stats["std"],
    )
    save(a.out, *parts)
    card(a.out, a.notes)
    total = 0
    for d, _, files in os.walk(a.out):
        for f in files:
            size = os.path.getsize(os.path.join(d, f))
            total += size
            assert size <= 16_000_000, (f, size)
            print(f"{size:10d} {os.path.relpath(os.path.join(d, f), a.out)}")
    print(f"{total:10d} total")
    assert total <= 28_000_000


if __name__ == "__main__":
    main()
