"""A small Qwen3 with random weights, in the layout of its published checkpoints. The same seed gives the same files."""

from __future__ import annotations

import argparse
from pathlib import Path


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=17)
    options = parser.parse_args()

    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(options.seed)
    config = Qwen3Config(
        vocab_size=500,
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=512,
        rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
        tie_word_embeddings=False,
    )
    model = Qwen3ForCausalLM(config)
    generator = torch.Generator().manual_seed(options.seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if weight.ndim == 1:  # norms: ones would hide a weight that is left out
                weight.copy_(1 + 0.3 * noise)
            elif "embed_tokens" in name:
                weight.copy_(noise)
            else:
                weight.copy_(noise * weight.shape[1] ** -0.5)
    model.to(torch.bfloat16).save_pretrained(options.folder)


if __name__ == "__main__":
    main()
