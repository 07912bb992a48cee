"""The same tokens through mlx-lm as it was installed: the prompt, then two more with its cache."""

from __future__ import annotations

from drive_transformers import PROMPT, REST
from driving import name_results, port_parser


def name_by_hand(model):
    layers = model.model.layers
    name_results(
        {
            "words": model.model.embed_tokens,
            "layer_first": layers[0],
            "layer_last": layers[-1],
            "normed": model.model.norm,
            "logits": model,
        }
    )


def main():
    options = port_parser(__doc__).parse_args()

    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache
    from mlx_lm.utils import load_model

    model, _ = load_model(options.model)
    if options.dtype == "f32":
        model.set_dtype(mx.float32)
    if options.by_hand:
        name_by_hand(model)
    cache = make_prompt_cache(model)
    for tokens in (PROMPT, *([token] for token in REST)):
        logits = model(mx.array([tokens]), cache=cache)
        print(mx.argmax(logits[0, -1]).item())


if __name__ == "__main__":
    main()
