"""The reference of Whisper: transformers hears a piece of noise, reads a prompt and then two more tokens, with a cache."""

from __future__ import annotations

from driving import reference_parser

PROMPT = [1, 250, 33, 7, 140, 88, 299]
REST = [12, 205]


def mel(bins: int = 16, frames: int = 60):
    import numpy as np

    return np.random.default_rng(3).standard_normal((1, bins, frames)).astype(np.float32)


def main():
    options = reference_parser(__doc__).parse_args()

    import torch
    from transformers import WhisperForConditionalGeneration

    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[options.dtype]
    model = WhisperForConditionalGeneration.from_pretrained(options.model, dtype=dtype, local_files_only=True).eval()
    cache = None
    with torch.no_grad():
        heard = model.get_encoder()(torch.from_numpy(mel()).to(dtype))
        for tokens in (PROMPT, *([token] for token in REST)):
            result = model(
                encoder_outputs=heard, decoder_input_ids=torch.tensor([tokens]), past_key_values=cache, use_cache=True
            )
            cache = result.past_key_values
            print(int(result.logits[0, -1].argmax()))


if __name__ == "__main__":
    main()
