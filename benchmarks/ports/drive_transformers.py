"""The reference of a language model: transformers reads a prompt and then two more tokens, with a cache.

The tokens are given: a nearly equal pair of logits would send two precisions different ways."""

from __future__ import annotations

from driving import reference_parser

PROMPT = [17, 401, 3, 256, 88, 12, 499, 140, 33, 7, 310, 77, 205]
REST = [338, 424]


def main():
    options = reference_parser(__doc__).parse_args()

    import torch
    from transformers import AutoModelForCausalLM

    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[options.dtype]
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype, local_files_only=True).eval()
    cache = None
    with torch.no_grad():
        for tokens in (PROMPT, *([token] for token in REST)):
            result = model(input_ids=torch.tensor([tokens]), past_key_values=cache, use_cache=True)
            cache = result.past_key_values
            print(int(result.logits[0, -1].argmax()))


if __name__ == "__main__":
    main()
