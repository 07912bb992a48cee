"""A small CLIP with random weights: as transformers keeps it, and in `open_clip` as OpenCLIP does. The same seed, the same files."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

# From a name of transformers to that of OpenCLIP, in this order.
RENAMED = (
    (r"^vision_model\.encoder\.layers\.", "visual.transformer.resblocks."),
    (r"^text_model\.encoder\.layers\.", "transformer.resblocks."),
    (r"\.self_attn\.", ".attn."),
    (r"\.layer_norm(\d)\.", r".ln_\1."),
    (r"\.mlp\.fc1\.", ".mlp.c_fc."),
    (r"\.mlp\.fc2\.", ".mlp.c_proj."),
    (r"^vision_model\.pre_layrnorm\.", "visual.ln_pre."),
    (r"^vision_model\.post_layernorm\.", "visual.ln_post."),
    (r"^vision_model\.embeddings\.patch_embedding\.", "visual.conv1."),
    (r"^vision_model\.embeddings\.class_embedding$", "visual.class_embedding"),
    (r"^vision_model\.embeddings\.position_embedding\.weight$", "visual.positional_embedding"),
    (r"^text_model\.final_layer_norm\.", "ln_final."),
    (r"^text_model\.embeddings\.token_embedding\.", "token_embedding."),
    (r"^text_model\.embeddings\.position_embedding\.weight$", "positional_embedding"),
    (r"^visual_projection\.weight$", "visual.proj"),
    (r"^text_projection\.weight$", "text_projection"),
)


def renamed(name):
    for old, new in RENAMED:
        name = re.sub(old, new, name)
    return name


def converted(weights):
    """One matrix for q, k and v, and projections as parameters that stand on the right of a product."""
    import torch

    result = {}
    for name, weight in weights.items():
        if found := re.match(r"(.*\.self_attn\.)q_proj\.(weight|bias)$", name):
            parts = [weights[f"{found[1]}{part}_proj.{found[2]}"] for part in "qkv"]
            result[f"{renamed(found[1])}in_proj_{found[2]}"] = torch.cat(parts)
        elif not re.search(r"\.[kv]_proj\.", name):
            result[renamed(name)] = weight.T.contiguous() if name.endswith("_projection.weight") else weight
    return result


def tower(hidden_size, **sizes):
    return dict(
        hidden_size=hidden_size,
        intermediate_size=4 * hidden_size,
        num_attention_heads=4,
        projection_dim=48,
        hidden_act="quick_gelu",
        **sizes,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=23)
    options = parser.parse_args()

    import torch
    from safetensors.torch import save_file
    from transformers import CLIPConfig, CLIPModel

    torch.manual_seed(options.seed)
    text = tower(
        hidden_size=64,
        num_hidden_layers=3,
        vocab_size=120,
        max_position_embeddings=20,
        pad_token_id=0,
        bos_token_id=118,
        eos_token_id=119,
    )
    vision = tower(hidden_size=96, num_hidden_layers=4, image_size=40, patch_size=8)
    model = CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=48))
    generator = torch.Generator().manual_seed(options.seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if weight.ndim == 0:
                continue  # the scale of the logits
            if weight.ndim == 1:  # ones and zeros would hide a weight or bias that is left out
                weight.copy_(0.2 * noise if name.endswith("bias") else noise if "class" in name else 1 + 0.3 * noise)
            elif "embedding" in name and "patch" not in name:
                weight.copy_(0.5 * noise if "position" in name else noise)
            else:
                weight.copy_(noise * weight[0].numel() ** -0.5)
    model.save_pretrained(options.folder)

    port = options.folder / "open_clip"
    port.mkdir(exist_ok=True)
    save_file(
        converted({name: one for name, one in model.state_dict().items() if "position_ids" not in name}),
        port / "tiny-clip.safetensors",
    )
    sizes = {
        "embed_dim": 48,
        "quick_gelu": True,
        # Its vision tower with attention of its own, its text tower with torch's.
        "vision_cfg": {
            "image_size": 40,
            "layers": 4,
            "width": 96,
            "head_width": 24,
            "patch_size": 8,
            "block_type": "custom",
        },
        "text_cfg": {"context_length": 20, "vocab_size": 120, "width": 64, "heads": 4, "layers": 3},
    }
    (port / "tiny-clip.json").write_text(json.dumps(sizes))


if __name__ == "__main__":
    main()
