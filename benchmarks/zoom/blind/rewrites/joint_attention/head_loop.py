import torch
import torch.nn as nn
import torch.nn.functional as F
from loading import fill


class HeadByHead(nn.Module):
    """Sequence before batch, one head after the other, and no layer objects."""

    def __init__(self, arrays, heads=3):
        super().__init__()
        self.heads = heads
        self.w = nn.ParameterDict({name.replace(".", "_"): nn.Parameter(torch.zeros(value.shape)) for name, value in arrays.items()})

    def linear(self, name, x):
        return F.linear(x, self.w[f"{name}_weight"], self.w[f"{name}_bias"])

    def modulated(self, side, x, vec):
        shift, scale, gate = self.linear(f"{side}_mod", vec).tensor_split(3, dim=-1)
        x = F.layer_norm(x, [x.size(-1)], None, None, 1e-6)
        return torch.addcmul(x + shift, x, scale), gate

    def forward(self, image, text, vec):
        image, text = image.transpose(0, 1), text.transpose(0, 1)
        vec = F.silu(vec)
        image_in, image_gate = self.modulated("image", image, vec)
        text_in, text_gate = self.modulated("text", text, vec)
        image_qkv = self.linear("image_qkv", image_in)
        text_qkv = self.linear("text_qkv", text_in)
        width = image.size(-1)
        size = width // self.heads
        heads = []
        for head in range(self.heads):
            parts = []
            for index, name in enumerate(("norm_q", "norm_k", None)):
                lo = index * width + head * size
                t, i = text_qkv[..., lo : lo + size], image_qkv[..., lo : lo + size]
                if name is not None:
                    t = F.rms_norm(t, (size,), self.w[f"text_{name}_weight"], 1e-6)
                    i = F.rms_norm(i, (size,), self.w[f"image_{name}_weight"], 1e-6)
                parts.append(torch.cat((t, i)).transpose(0, 1))
            q, k, v = parts
            scores = torch.bmm(q, k.mT) * size**-0.5
            heads.append(torch.bmm(scores.softmax(dim=2), v))
        y = torch.cat(heads, dim=2).transpose(0, 1)
        text_y = self.linear("text_out", y[: len(text)])
        image_y = self.linear("image_out", y[len(text) :])
        text = text + text_y * text_gate
        image = image + image_y * image_gate
        return torch.cat((text, image)).transpose(0, 1)


def build(weights):
    return fill(HeadByHead(weights), {f"w.{name.replace('.', '_')}": value for name, value in weights.items()})
