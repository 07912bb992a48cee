"""The same noise and tokens through mlx-whisper as it was installed."""

from __future__ import annotations

import argparse
import functools
from pathlib import Path

from drive_transformers_whisper import PROMPT, REST, mel


def name_by_hand(model):
    """Five tensors under names of the porter's own. MLX looks for __call__ in the class: each gets one for this."""
    from lockstep import checkpoint

    named = {
        id(model.encoder.blocks[0]): "heard_first",
        id(model.encoder): "heard",
        id(model.decoder.blocks[0]): "read_first",
        id(model.decoder.blocks[-1]): "read_last",
        id(model.decoder): "logits",
    }
    for kind in {type(one) for one in (model.encoder, model.decoder, model.decoder.blocks[0])}:
        original = kind.__call__

        @functools.wraps(original)
        def call(self, *args, _original=original, **kwargs):
            result = _original(self, *args, **kwargs)
            name = named.get(id(self))
            if name is None:
                return result
            return (checkpoint(name, result[0]), *result[1:]) if isinstance(result, tuple) else checkpoint(name, result)

        kind.__call__ = call


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--dtype", choices=("f32", "own"), default="f32")
    parser.add_argument("--by-hand", action="store_true", help="also name five tensors by hand")
    options = parser.parse_args()

    import mlx.core as mx
    from mlx_whisper.load_models import load_model

    dtype = {"f32": mx.float32, "own": mx.bfloat16}[options.dtype]
    model = load_model(str(options.model / "mlx"), dtype)
    model.set_dtype(dtype)
    if options.by_hand:
        name_by_hand(model)
    heard = model.embed_audio(mx.array(mel().transpose(0, 2, 1)).astype(dtype))
    cache = None
    for tokens in (PROMPT, *([token] for token in REST)):
        logits, cache, _ = model.decoder(mx.array([tokens]), heard, kv_cache=cache)
        print(mx.argmax(logits[0, -1]).item())


if __name__ == "__main__":
    main()
