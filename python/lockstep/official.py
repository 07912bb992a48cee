"""Loads an official Qwen-Image pipeline of any class, and pictures as its users prepare them."""

import importlib
import importlib.util
import json
import pathlib
import sys

COMPONENTS = {
    "scheduler": ("diffusers", "FlowMatchEulerDiscreteScheduler"),
    "vae": ("diffusers", "AutoencoderKLQwenImage"),
    "transformer": ("diffusers", "QwenImageTransformer2DModel"),
    "text_encoder": ("transformers", "Qwen2_5_VLForConditionalGeneration"),
    "tokenizer": ("transformers", "Qwen2Tokenizer"),
}


def pipeline_class(model) -> str:
    return json.loads((pathlib.Path(model) / "model_index.json").read_text("utf-8"))["_class_name"]


def load(model, dtype):
    """The pipeline that model_index.json names. Qwen2VLProcessor needs torchvision; where there is none, a stand-in
    gives the same tokens and pixels, and the pipeline itself is the official one."""
    import diffusers

    name = pipeline_class(model)
    official = getattr(diffusers, name)
    needs_processor = "processor" in json.loads((pathlib.Path(model) / "model_index.json").read_text("utf-8"))
    if not needs_processor or importlib.util.find_spec("torchvision"):
        return official.from_pretrained(str(model), dtype=dtype, local_files_only=True)
    parts = {}
    for component, (library, class_name) in COMPONENTS.items():
        loader = getattr(importlib.import_module(library), class_name)
        options = {} if component in ("scheduler", "tokenizer") else {"dtype": dtype}
        if library == "diffusers" and "dtype" in options:
            options = {"torch_dtype": dtype}
        parts[component] = loader.from_pretrained(str(model), subfolder=component, local_files_only=True, **options)
    print(f"official: torchvision is not installed, so a stand-in gives {name} its tokens and pixels", file=sys.stderr)
    parts["processor"] = Processor(parts["tokenizer"], processor_settings(model))
    return official(**parts)


def processor_settings(model) -> dict:
    folder = pathlib.Path(model) / "processor"
    nested = folder / "processor_config.json"
    if nested.exists():
        settings = json.loads(nested.read_text("utf-8")).get("image_processor")
        if settings:
            return settings
    return json.loads((folder / "preprocessor_config.json").read_text("utf-8"))


class Processor:
    """What Qwen2VLProcessor does with one text and its pictures, without torchvision."""

    def __init__(self, tokenizer, settings):
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

        known = {k: v for k, v in settings.items() if not k.endswith("processor_type") and k != "processor_class"}
        self.tokenizer = tokenizer
        self.image_processor = Qwen2VLImageProcessorPil(**known)
        self.pillow = settings.get("image_processor_type", "").endswith("Pil")

    def pictures(self, images) -> dict:
        if self.pillow:
            return dict(self.image_processor(images=images, return_tensors="pt"))
        return torchvision_pictures(self.image_processor, images)

    def __call__(self, text, images, padding=True, return_tensors="pt"):
        import torch
        from transformers import BatchFeature

        text = text if isinstance(text, str) else text[0]
        images = images if isinstance(images, list) else [images]
        pixels = self.pictures(images)
        merged = self.image_processor.merge_size**2
        token = "<|image_pad|>"
        parts = text.split(token)
        whole = parts[0]
        for index, part in enumerate(parts[1:]):
            count = int(pixels["image_grid_thw"][index].prod()) // merged if index < len(images) else 1
            whole += token * count + part
        data = self.tokenizer([whole], padding=padding, return_tensors=return_tensors)
        is_image = data["input_ids"] == self.tokenizer.convert_tokens_to_ids(token)
        return BatchFeature(
            {
                "input_ids": data["input_ids"],
                "attention_mask": data["attention_mask"],
                **pixels,
                "mm_token_type_ids": is_image.to(torch.int32),
            }
        )

    def batch_decode(self, *arguments, **options):
        return self.tokenizer.batch_decode(*arguments, **options)


def torchvision_pictures(processor, images) -> dict:
    """Qwen2VLImageProcessor with the operation that torchvision's resize of a uint8 tensor comes down to."""
    import numpy as np
    import torch
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    patches, grids = [], []
    for image in images:
        pixels = torch.from_numpy(np.array(over_white(image))).permute(2, 0, 1)[None]
        factor = processor.patch_size * processor.merge_size
        size = smart_resize(*pixels.shape[-2:], factor, processor.size["shortest_edge"], processor.size["longest_edge"])
        pixels = torch.nn.functional.interpolate(pixels, size=size, mode="bicubic", antialias=True)
        inverse = 1.0 / processor.rescale_factor
        mean = torch.tensor(processor.image_mean) * inverse
        std = torch.tensor(processor.image_std) * inverse
        pixels = (pixels.to(torch.float32) - mean.view(1, 3, 1, 1)) / std.view(1, 3, 1, 1)
        rows, height, width = processor.patchify(
            pixels[0].numpy(), processor.patch_size, processor.merge_size, processor.temporal_patch_size
        )
        patches.append(torch.from_numpy(rows.copy()))
        grids.append([1, height, width])
    return {"pixel_values": torch.cat(patches), "image_grid_thw": torch.tensor(grids)}


def over_white(image):
    """RGB; transparent parts over white."""
    from PIL import Image

    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, (255, 255, 255, 255)), image).convert("RGB")
    return image.convert("RGB")


def open_picture(path, alpha=False):
    """A picture as `lockstep edit` reads it: turned as EXIF says, then RGB over white, or RGBA."""
    from PIL import Image, ImageOps

    image = ImageOps.exif_transpose(Image.open(path))
    if image.mode.startswith("I"):  # 16 bits of grey: the high byte, as Pillow itself reads 16 bits of colour
        image = image.convert("I").point(lambda v: v * (1 / 256)).convert("L")
    return image.convert("RGBA") if alpha else over_white(image)


def open_mask(path):
    """255 where new pixels are wanted: white, or transparent in a picture that is transparent anywhere."""
    from PIL import Image, ImageOps

    image = ImageOps.exif_transpose(Image.open(path))
    if image.mode in ("RGBA", "LA"):
        alpha = image.getchannel("A")
        if alpha.getextrema()[0] < 255:
            return ImageOps.invert(alpha)
    return image.convert("L")


def set_resolution(pipeline, resolution=None, condition_resolution=None) -> None:
    """The areas are written into the official modules; a small model needs others."""
    module = importlib.import_module(type(pipeline).__module__)
    official = module.calculate_dimensions
    areas = {}
    if resolution:
        areas |= {1024 * 1024: resolution**2, 640 * 640: resolution**2}
    if condition_resolution:
        areas[384 * 384] = condition_resolution**2
    original = getattr(official, "original", official)

    def calculate_dimensions(area, ratio):
        return original(areas.get(area, area), ratio)

    calculate_dimensions.original = original
    module.calculate_dimensions = calculate_dimensions
