"""The same noise and tokens through mlx-whisper as it was installed."""

from __future__ import annotations

from drive_transformers_whisper import PROMPT, REST, mel
from driving import name_results, port_parser


def name_by_hand(model):
    encoder, decoder = model.encoder, model.decoder
    name_results(
        {
            "heard_first": encoder.blocks[0],
            "heard": encoder,
            "read_first": decoder.blocks[0],
            "read_last": decoder.blocks[-1],
            "logits": decoder,
        }
    )


def main():
    options = port_parser(__doc__).parse_args()

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
