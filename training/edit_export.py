"""Trained tensors -> models/tiny-edit, written by the official classes; what equals models/tiny is copied from it.

python training/edit_export.py --weights <folder of edit-*.safetensors> --tiny models/tiny --out models/tiny-edit
"""

import argparse
import glob
import json
import os
import shutil

import torch
from safetensors.torch import load_file

import edit_models
import edit_tokenizer
import export

STEPS, GUIDANCE = 8, 2.0  # chosen on edit_grammar.development_edits()


def text_config(encoder):
    config = export.text_config(encoder)
    c = edit_models.VISION_CONFIG
    from transformers import Qwen2_5_VLConfig

    vision = dict(c, spatial_patch_size=c["patch_size"], tokens_per_second=2, hidden_act="silu")
    out = config.to_dict()
    out["vision_config"] = vision
    return Qwen2_5_VLConfig(
        **{
            k: out[k]
            for k in (
                "text_config",
                "vision_config",
                "image_token_id",
                "video_token_id",
                "vision_start_token_id",
                "vision_end_token_id",
                "tie_word_embeddings",
            )
        }
    )


def build(dit_state, text_state, vision_state):
    """Official transformer and text encoder in f32 holding the trained weights."""
    from diffusers import QwenImageTransformer2DModel
    from transformers import Qwen2_5_VLForConditionalGeneration

    dit = QwenImageTransformer2DModel(**edit_models.DIT_CONFIG)
    dit.load_state_dict(dit_state)
    text = Qwen2_5_VLForConditionalGeneration(text_config(edit_tokenizer.Encoder()))
    state = {"model.language_model." + k: v for k, v in text_state.items()} | {
        "model.visual." + k: v for k, v in vision_state.items()
    }
    missing, unexpected = text.load_state_dict(state, strict=False)
    missing = [k for k in missing if k != "lm_head.weight"]
    assert not missing and not unexpected, (missing, unexpected)
    text.tie_weights()
    return dit.eval(), text.eval()


def image_processor():
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    c = edit_models.VISION_CONFIG
    return Qwen2VLImageProcessorPil(
        patch_size=c["patch_size"],
        merge_size=c["spatial_merge_size"],
        temporal_patch_size=c["temporal_patch_size"],
        size={"shortest_edge": 32 * 32, "longest_edge": 1024 * 1024},
    )


def processor(folder):
    """The official processor. Its class insists on a video processor, which needs torchvision; the edit pipeline never uses one."""
    from transformers import AutoTokenizer, Qwen2VLProcessor
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    class ImagesOnly(Qwen2VLProcessor):
        def check_argument_for_proper_class(self, name, argument):
            return None if name == "video_processor" else super().check_argument_for_proper_class(name, argument)

    images = Qwen2VLImageProcessorPil.from_pretrained(os.path.join(folder, "processor"))
    return ImagesOnly(
        image_processor=images, tokenizer=AutoTokenizer.from_pretrained(os.path.join(folder, "tokenizer"))
    )


def pipeline(folder, dtype=torch.float32):
    """The official pipeline on `folder`, its two image areas set to the model's own (lockstep.json)."""
    import diffusers.pipelines.qwenimage.pipeline_qwenimage_edit_plus as edit_plus

    with open(os.path.join(folder, "lockstep.json")) as f:
        settings = json.load(f)
    edit_plus.VAE_IMAGE_SIZE, edit_plus.CONDITION_IMAGE_SIZE = (
        settings["resolution"] ** 2,
        settings["condition_resolution"] ** 2,
    )
    pipe = edit_plus.QwenImageEditPlusPipeline.from_pretrained(folder, processor=processor(folder), torch_dtype=dtype)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def save(out, dit, text, tiny="../tiny", steps=STEPS, guidance=GUIDANCE):
    """tiny: models/tiny as seen from `out`."""
    from diffusers import __version__ as version

    bf16 = torch.bfloat16
    shutil.rmtree(out, ignore_errors=True)
    dit.to(bf16).save_pretrained(os.path.join(out, "transformer"), max_shard_size="12MB")
    text.to(bf16).save_pretrained(os.path.join(out, "text_encoder"))
    extra = os.path.join(out, "text_encoder", "generation_config.json")
    if os.path.exists(extra):
        os.remove(extra)
    image_processor().save_pretrained(os.path.join(out, "processor"))
    here = os.path.dirname(edit_tokenizer.PATH)
    os.makedirs(os.path.join(out, "tokenizer"))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(here, name), os.path.join(out, "tokenizer", name))
        shutil.copy(os.path.join(here, name), os.path.join(out, "processor", name))
    for name in ("vae/config.json", "vae/diffusion_pytorch_model.safetensors", "scheduler/scheduler_config.json"):
        os.makedirs(os.path.dirname(os.path.join(out, name)), exist_ok=True)
        # Not a link: archives and checkouts turn links into text, and in a repository equal files are stored once.
        shutil.copy(os.path.join(out, tiny, name), os.path.join(out, name))
    index = {
        "_class_name": "QwenImageEditPlusPipeline",
        "_diffusers_version": version,
        "processor": ["transformers", "Qwen2VLProcessor"],
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "text_encoder": ["transformers", "Qwen2_5_VLForConditionalGeneration"],
        "tokenizer": ["transformers", "Qwen2Tokenizer"],
        "transformer": ["diffusers", "QwenImageTransformer2DModel"],
        "vae": ["diffusers", "AutoencoderKLQwenImage"],
    }
    with open(os.path.join(out, "model_index.json"), "w") as f:
        json.dump(index, f, indent=2)
        f.write("\n")
    with open(os.path.join(out, "lockstep.json"), "w") as f:
        json.dump(
            dict(
                width=128,
                height=128,
                steps=steps,
                guidance=guidance,
                negative_prompt=" ",
                resolution=edit_models.SIDE,
                condition_resolution=edit_models.SIDE,
            ),
            f,
        )
        f.write("\n")


def load_parts(folder):
    """edit-*.safetensors, or an exported model -> states of transformer, text model, vision tower"""
    if os.path.isdir(os.path.join(folder, "transformer")):
        return load_exported(folder)
    state = {}
    for path in sorted(glob.glob(os.path.join(folder, "edit-*.safetensors"))):
        state.update(load_file(path))
    return [
        {k[len(mark) :]: v.float() for k, v in state.items() if k.startswith(mark)}
        for mark in ("dit.", "text.", "vision.")
    ]


def load_exported(folder):
    def read(part):
        state = {}
        for path in sorted(glob.glob(os.path.join(folder, part, "*.safetensors"))):
            state.update(load_file(path))
        return {k: v.float() for k, v in state.items()}

    text = read("text_encoder")
    marks = ("model.", "visual.")
    return [read("transformer")] + [
        {k[len(mark) :]: v for k, v in text.items() if k.startswith(mark)} for mark in marks
    ]


def sizes(out):
    total = 0
    for d, _, files in os.walk(out):
        for f in files:
            size = os.path.getsize(os.path.join(d, f))
            total += size
            assert size <= 16_000_000, (f, size)
            print(f"{size:10d} {os.path.relpath(os.path.join(d, f), out)}")
    print(f"{total:10d} total")
    assert total <= 28_000_000


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--weights", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--tiny", default="../tiny", help="models/tiny as seen from --out")
    p.add_argument("--steps", type=int, default=STEPS)
    p.add_argument("--guidance", type=float, default=GUIDANCE)
    a = p.parse_args()
    card = os.path.join(a.out, "README.md")
    kept = open(card).read() if os.path.exists(card) else ""
    save(a.out, *build(*load_parts(a.weights)), tiny=a.tiny, steps=a.steps, guidance=a.guidance)
    if kept:
        with open(card, "w") as f:
            f.write(kept)
    sizes(a.out)


if __name__ == "__main__":
    main()
