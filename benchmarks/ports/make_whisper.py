"""A small Whisper with random weights: as transformers keeps it, and in `mlx` as mlx-whisper does. The same seed, the same files."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

# From a name of transformers to that of mlx-whisper, in this order.
RENAMED = (
    (r"^model\.", ""),
    (r"\.layers\.", ".blocks."),
    (r"\.self_attn\.", ".attn."),
    (r"\.encoder_attn\.", ".cross_attn."),
    (r"\.self_attn_layer_norm\.", ".attn_ln."),
    (r"\.encoder_attn_layer_norm\.", ".cross_attn_ln."),
    (r"\.final_layer_norm\.", ".mlp_ln."),
    (r"\.q_proj\.", ".query."),
    (r"\.k_proj\.", ".key."),
    (r"\.v_proj\.", ".value."),
    (r"\.out_proj\.", ".out."),
    (r"\.fc(\d)\.", r".mlp\1."),
    (r"^encoder\.layer_norm\.", "encoder.ln_post."),
    (r"^decoder\.layer_norm\.", "decoder.ln."),
    (r"^decoder\.embed_tokens\.", "decoder.token_embedding."),
    (r"^decoder\.embed_positions\.weight$", "decoder.positional_embedding"),
)


def renamed(name):
    for old, new in RENAMED:
        name = re.sub(old, new, name)
    return name


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=19)
    options = parser.parse_args()

    import torch
    from safetensors.torch import save_file
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    torch.manual_seed(options.seed)
    config = WhisperConfig(
        vocab_size=300,
        num_mel_bins=16,
        d_model=64,
        encoder_layers=3,
        decoder_layers=3,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=256,
        decoder_ffn_dim=256,
        max_source_positions=30,
        max_target_positions=24,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    model = WhisperForConditionalGeneration(config)
    generator = torch.Generator().manual_seed(options.seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if name == "model.encoder.embed_positions.weight":
                continue  # sinusoids, which mlx-whisper computes
            if weight.ndim == 1:  # ones and zeros would hide a weight or bias that is left out
                weight.copy_(0.2 * noise if name.endswith("bias") else 1 + 0.3 * noise)
            elif "embed" in name:
                weight.copy_(0.5 * noise if "positions" in name else noise)
            else:
                weight.copy_(noise * weight[0].numel() ** -0.5)
    model.save_pretrained(options.folder)

    port = options.folder / "mlx"
    port.mkdir(exist_ok=True)
    weights = {}
    for name, weight in model.state_dict().items():
        if name != "proj_out.weight" and name != "model.encoder.embed_positions.weight":
            # MLX keeps channels last: [out, kernel, in].
            weights[renamed(name)] = (
                weight.permute(0, 2, 1) if ".conv" in name and weight.ndim == 3 else weight
            ).contiguous()
    save_file(weights, port / "weights.safetensors")
    sizes = {
        "n_mels": config.num_mel_bins,
        "n_audio_ctx": config.max_source_positions,
        "n_audio_state": config.d_model,
        "n_audio_head": config.encoder_attention_heads,
        "n_audio_layer": config.encoder_layers,
        "n_vocab": config.vocab_size,
        "n_text_ctx": config.max_target_positions,
        "n_text_state": config.d_model,
        "n_text_head": config.decoder_attention_heads,
        "n_text_layer": config.decoder_layers,
    }
    (port / "config.json").write_text(json.dumps(sizes))


if __name__ == "__main__":
    main()
