"""What the edit model adds to models.py: the vision tower, pictures in the text, condition pictures in the transformer (`zero_cond_t`)."""

import math

import torch
import torch.nn.functional as F
from torch import nn

import edit_tokenizer
import models

VISION_CONFIG = dict(
    depth=2,
    hidden_size=64,
    intermediate_size=96,
    num_heads=2,
    out_hidden_size=128,
    patch_size=16,
    spatial_merge_size=2,
    temporal_patch_size=2,
    window_size=64,
    fullatt_block_indexes=[1],
    in_channels=3,
)
DIT_CONFIG = dict(models.DIT_CONFIG, zero_cond_t=True)
PIXEL_MEAN, PIXEL_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
SIDE = 128  # the official constants VAE_IMAGE_SIZE and CONDITION_IMAGE_SIZE become SIDE * SIDE


def image_tokens(height, width):
    """Tokens of the text that one picture fills."""
    return (height // 32) * (width // 32)


# ---- vision tower ----------------------------------------------------------------------------------------------------


class VisionAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, cos, sin, mask):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # each [B,H,n,D]
        y = F.scaled_dot_product_attention(
            models._half_rope(q, cos, sin), models._half_rope(k, cos, sin), v, attn_mask=mask
        )
        return self.proj(y.transpose(1, 2).flatten(2))


class VisionMlp(nn.Module):
    def __init__(self, dim, inner):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = (
            nn.Linear(dim, inner),
            nn.Linear(dim, inner),
            nn.Linear(inner, dim),
        )

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class VisionBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm1, self.norm2 = models.RmsNorm(c["hidden_size"]), models.RmsNorm(c["hidden_size"])
        self.attn = VisionAttention(c["hidden_size"], c["num_heads"])
        self.mlp = VisionMlp(c["hidden_size"], c["intermediate_size"])

    def forward(self, x, cos, sin, mask):
        x = x + self.attn(self.norm1(x), cos, sin, mask)
        return x + self.mlp(self.norm2(x))


class Merger(nn.Module):
    def __init__(self, c):
        super().__init__()
        wide = c["hidden_size"] * c["spatial_merge_size"] ** 2
        self.ln_q = models.RmsNorm(c["hidden_size"])
        self.mlp = nn.Sequential(nn.Linear(wide, wide), nn.GELU(), nn.Linear(wide, c["out_hidden_size"]))

    def forward(self, x):
        x = self.ln_q(x)
        return self.mlp(x.reshape(x.shape[0], -1, self.mlp[0].in_features))


class PatchEmbed(nn.Module):
    def __init__(self, c):
        super().__init__()
        patch = (c["temporal_patch_size"], c["patch_size"], c["patch_size"])
        self.proj = nn.Conv3d(c["in_channels"], c["hidden_size"], patch, stride=patch, bias=False)

    def forward(self, x):
        """x [B,n,3*16*16]: both frames of a still picture are equal, so their kernels are summed."""
        return F.linear(x, self.proj.weight.sum(2).flatten(1))


class VisionTower(nn.Module):
    def __init__(self, config=None):
        super().__init__()
        self.config = c = config or VISION_CONFIG
        self.patch_embed = PatchEmbed(c)
        self.blocks = nn.ModuleList([VisionBlock(c) for _ in range(c["depth"])])
        self.merger = Merger(c)
        for name, values in (("mean", PIXEL_MEAN), ("std", PIXEL_STD)):
            self.register_buffer(name, torch.tensor(values).view(1, 3, 1, 1), persistent=False)

    def patches(self, pixels):
        """pixels [B,3,H,W] in [0,1] -> [B,n,3*16*16] normalised, 2x2 blocks of patches after each other"""
        p, m = self.config["patch_size"], self.config["spatial_merge_size"]
        b, c, h, w = pixels.shape
        x = ((pixels - self.mean) / self.std).view(b, c, h // p // m, m, p, w // p // m, m, p)
        return x.permute(0, 2, 5, 3, 6, 1, 4, 7).reshape(b, (h // p) * (w // p), c * p * p)

    def tables(self, rows, cols, device):
        """cos, sin [n,D/2] and the mask of the windows [n,n], for a grid of rows x cols patches in the order of `patches`"""
        c = self.config
        m, window = c["spatial_merge_size"], c["window_size"] // c["patch_size"]
        y = torch.arange(rows).view(rows // m, 1, m, 1).expand(-1, cols // m, -1, m).reshape(-1)
        x = torch.arange(cols).view(1, cols // m, 1, m).expand(rows // m, -1, m, -1).reshape(-1)
        quarter = c["hidden_size"] // c["num_heads"] // 4
        freq = 1.0 / 10000.0 ** (torch.arange(quarter, dtype=torch.float32) / quarter)
        angle = torch.cat([y[:, None] * freq, x[:, None] * freq], dim=1).to(device)
        home = (y // window) * (cols + 1) + x // window
        return angle.cos(), angle.sin(), (home[:, None] == home[None]).to(device)

    def forward(self, patches, cos, sin, windows):
        """-> [B, n/4, out]"""
        x = self.patch_embed(patches)
        for i, block in enumerate(self.blocks):
            x = block(x, cos, sin, None if i in self.config["fullatt_block_indexes"] else windows)
        return self.merger(x)


class TextModel(models.TextModel):
    def forward(self, ids, pictures=(), starts=()):
        """pictures: [B,k,hidden] each, which replace the embeddings from the positions `starts` on. Positions count tokens, as the official
        pipeline's do."""
        half = torch.arange(0, self.head_dim, 2, device=ids.device, dtype=torch.float32) / self.head_dim
        angle = (
            torch.arange(ids.shape[1], device=ids.device, dtype=torch.float32)[:, None] * (1.0 / self.theta**half)[None]
        )
        cos, sin = angle.cos(), angle.sin()
        x = self.embed_tokens(ids)
        parts, at = [], 0
        for picture, start in zip(pictures, starts):
            parts += [x[:, at:start], picture.to(x.dtype)]
            at = start + picture.shape[1]
        x = torch.cat(parts + [x[:, at:]], dim=1)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)


# ---- diffusion transformer -------------------------------------------------------------------------------------------


def rope_tables(axes, shapes, text_len, device):
    """cos, sin [T+N,1,D/2]: text, then the tokens of each picture of `shapes` [(rows, cols)], the target first; a picture's number is its frame."""
    freqs = [1.0 / 10000.0 ** (torch.arange(0, d, 2, dtype=torch.float32) / d) for d in axes]
    start = max(max(rows // 2, cols // 2) for rows, cols in shapes)
    text = torch.arange(start, start + text_len, dtype=torch.float32)
    angles = [torch.cat([text[:, None] * f[None] for f in freqs], dim=1)]
    for frame, (rows, cols) in enumerate(shapes):
        y = torch.arange(rows, dtype=torch.float32) - (rows - rows // 2)
        x = torch.arange(cols, dtype=torch.float32) - (cols - cols // 2)
        angles.append(
            torch.cat(
                [
                    (frame * freqs[0]).expand(rows, cols, -1),
                    (y[:, None] * freqs[1][None])[:, None].expand(rows, cols, -1),
                    (x[:, None] * freqs[2][None])[None].expand(rows, cols, -1),
                ],
                dim=-1,
            ).reshape(rows * cols, -1)
        )
    angle = torch.cat(angles)[:, None].to(device)
    return angle.cos(), angle.sin()


def _modulated(x, shift, scale):
    h = F.layer_norm(x.float(), x.shape[-1:], eps=1e-6).to(x.dtype)
    return h * (1 + scale) + shift


class Block(models.Block):
    def forward(self, img, txt, temb, temb_zero, is_target, cos, sin, mask):
        """is_target [N,1]: these image tokens are modulated by temb, the others by temb_zero."""
        now, zero = self.img_mod(temb)[:, None], self.img_mod(temb_zero)[:, None]
        is1, ic1, ig1, is2, ic2, ig2 = torch.where(is_target, now, zero).chunk(6, dim=-1)  # [B,N,dim] each
        ts1, tc1, tg1, ts2, tc2, tg2 = self.txt_mod(temb)[:, None].chunk(6, dim=-1)
        img_out, txt_out = self.attn(_modulated(img, is1, ic1), _modulated(txt, ts1, tc1), cos, sin, mask)
        img = img + ig1 * img_out
        txt = txt + tg1 * txt_out
        img = img + ig2 * self.img_mlp(_modulated(img, is2, ic2))
        txt = txt + tg2 * self.txt_mlp(_modulated(txt, ts2, tc2))
        return img, txt


class Dit(models.Dit):
    def __init__(self, config=None):
        super().__init__(config or DIT_CONFIG)
        for block in self.transformer_blocks:
            block.__class__ = Block  # the same parameters

    def forward(self, x, conditions, text, text_mask, t, cos, sin):
        """x [B,N,64] the target, conditions [B,M,64] -> velocity [B,N,64]; the rest as in models.Dit"""
        n, joined = x.shape[1], torch.cat([x, conditions], dim=1)
        mask = None
        if text_mask is not None:
            image = torch.ones(joined.shape[:2], dtype=torch.bool, device=x.device)
            joint = torch.cat([text_mask, image], dim=1)
            mask = joint[:, None, None, :].expand(-1, -1, joint.shape[1], -1)
        is_target = (torch.arange(joined.shape[1], device=x.device) < n)[:, None]
        img, txt, temb = self.img_in(joined).float(), self.txt_in(self.txt_norm(text)).float(), self.time_text_embed(t)
        temb_zero = self.time_text_embed(torch.zeros_like(t[:1]))
        for block in self.transformer_blocks:
            img, txt = block(img, txt, temb, temb_zero, is_target, cos, sin, mask)
        return self.proj_out(self.norm_out(img[:, :n], temb))


def init_vision(tower):
    for name, p in tower.named_parameters():
        if p.ndim > 1:
            nn.init.normal_(p, std=math.prod(p.shape[1:]) ** -0.5)
        elif name.endswith(".bias"):
            nn.init.zeros_(p)


# ---- the whole -------------------------------------------------------------------------------------------------------


class EditModel(nn.Module):
    """Transformer, text model and vision tower, for pictures and targets of one size."""

    def __init__(self, vocab_size):
        super().__init__()
        self.dit, self.text, self.vision = Dit(), TextModel(vocab_size), VisionTower()

    def prompt(self, patches, ids, prefix, starts, vision_tables):
        """patches: [B,n,768] of each picture; ids [B,T] without the prefix -> hidden [B,T,128]"""
        pictures = [self.vision(p, *vision_tables) for p in patches]
        full = torch.cat([prefix[None].expand(len(ids), -1), ids], dim=1)
        return self.text(full, pictures, [len(prefix) + s for s in starts])[:, edit_tokenizer.PREFIX_TOKENS :]

    def velocity(self, x, conditions, hidden, length, t, cos, sin):
        mask = torch.arange(hidden.shape[1], device=x.device)[None] < length[:, None]
        return self.dit(x, conditions, hidden * mask[..., None], mask, t, cos, sin)
