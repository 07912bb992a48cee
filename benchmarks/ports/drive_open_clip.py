"""The same pictures and texts through OpenCLIP as it was installed."""

from __future__ import annotations

from pathlib import Path

from drive_transformers_clip import pictures, texts
from driving import name_results, port_parser


def declare_operators():
    """torchvision's operators are built for one build of torch; with another its import only wants them declared."""
    import importlib.util

    import torch

    # In its own folder: importing the package is what fails.
    folder = Path(importlib.util.find_spec("torchvision").origin).parent
    try:
        torch.ops.load_library(next(folder.glob("_C*.so")))
    except (OSError, StopIteration):
        declared = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            declared.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return declared


def name_by_hand(model):
    """Four tensors; the fifth is the logits."""
    name_results(
        {
            "picture_first": model.visual.transformer.resblocks[0],
            "picture_last": model.visual.transformer.resblocks[-1],
            "text_first": model.transformer.resblocks[0],
            "text_last": model.transformer.resblocks[-1],
        }
    )


def main():
    options = port_parser(__doc__).parse_args()

    import torch

    operators = declare_operators()  # noqa: F841 (gone with its last reference)
    import open_clip

    dtype = {"f32": torch.float32, "own": torch.bfloat16}[options.dtype]
    open_clip.add_model_config(options.model / "open_clip")
    model = open_clip.create_model("tiny-clip", pretrained=str(options.model / "open_clip" / "tiny-clip.safetensors"))
    model = model.to(dtype).eval()
    if options.by_hand:
        name_by_hand(model)
    with torch.no_grad():
        seen, read, scale = model(torch.from_numpy(pictures()).to(dtype), torch.from_numpy(texts()))
        logits = scale * seen @ read.T
    if options.by_hand:
        from lockstep import checkpoint

        checkpoint("logits", logits)
    print(logits)


if __name__ == "__main__":
    main()
