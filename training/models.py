"""Plain-torch twins of the official modules, for training without diffusers.

Parameter names equal those of the checkpoints. The autoencoder is the single-frame equivalent: every 3x3x3 causal convolution
is a 2-D one, because on one frame all temporal taps but the newest multiply zeros (`to_official_vae` puts the kernels back into 3-D).
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

VAE_CONFIG = dict(
    base_dim=32,
    z_dim=16,
    dim_mult=[1, 2, 2, 2],
    num_res_blocks=2,
    attn_scales=[],
    temperal_downsample=[False, True, True],
    dropout=0.0,
)
DIT_CONFIG = dict(
    patch_size=2,
    in_channels=64,
    out_channels=16,
    num_layers=6,
    attention_head_dim=64,
    num_attention_heads=3,
    joint_attention_dim=128,
    guidance_embeds=False,
    axes_dims_rope=[16, 24, 24],
)
TEXT_CONFIG = dict(
    hidden_size=128,
    intermediate_size=384,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    rms_norm_eps=1e-6,
    rope_theta=1000000.0,
    mrope_section=[4, 6, 6],
)
PREFIX_TOKENS = 34


# ---- autoencoder -----------------------------------------------------------------------------------------------------


class ChannelNorm(nn.Module):
    """x / max(|x|_2 over channels, 1e-12) * sqrt(C) * gamma"""

    def __init__(self, channels):
        super().__init__()
        self.scale = channels**0.5
        self.gamma = nn.Parameter(torch.ones(channels, 1, 1))

    def forward(self, x):
        y = F.normalize(x.float(), dim=1).to(x.dtype)
        return y * (self.scale * self.gamma).to(x.dtype)


class ResidualBlock(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.norm1 = ChannelNorm(cin)
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.norm2 = ChannelNorm(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.conv_shortcut = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x):
        h = self.conv1(F.silu(self.norm1(x)))
        h = self.conv2(F.silu(self.norm2(h)))
        return h + self.conv_shortcut(x)


class MidAttention(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = ChannelNorm(channels)
        self.to_qkv = nn.Conv2d(channels, 3 * channels, 1)
        self.proj = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        qkv = self.to_qkv(self.norm(x)).reshape(b, 1, 3 * c, h * w).transpose(2, 3)  # [B,1,HW,3C]
        q, k, v = qkv.chunk(3, dim=-1)
        y = F.scaled_dot_product_attention(q.contiguous(), k.contiguous(), v.contiguous())  # [B,1,HW,C]
        return x + self.proj(y.squeeze(1).transpose(1, 2).reshape(b, c, h, w))


class MidBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.attentions = nn.ModuleList([MidAttention(channels)])
        self.resnets = nn.ModuleList([ResidualBlock(channels, channels), ResidualBlock(channels, channels)])

    def forward(self, x):
        return self.resnets[1](self.attentions[0](self.resnets[0](x)))


class Resample(nn.Module):
    def __init__(self, channels, up):
        super().__init__()
        self.up = up
        conv = nn.Conv2d(channels, channels // 2, 3, padding=1) if up else nn.Conv2d(channels, channels, 3, stride=2)
        self.resample = nn.Sequential(nn.Identity(), conv)

    def forward(self, x):
        x = F.interpolate(x, scale_factor=2.0, mode="nearest") if self.up else F.pad(x, (0, 1, 0, 1))
        return self.resample(x)


class Encoder(nn.Module):
    def __init__(self, base_dim, z_dim, dim_mult, num_res_blocks):
        super().__init__()
        dims = [base_dim * m for m in [1] + dim_mult]
        self.conv_in = nn.Conv2d(3, dims[0], 3, padding=1)
        self.down_blocks = nn.ModuleList()
        for i, (cin, cout) in enumerate(zip(dims[:-1], dims[1:])):
            for _ in range(num_res_blocks):
                self.down_blocks.append(ResidualBlock(cin, cout))
                cin = cout
            if i != len(dim_mult) - 1:
                self.down_blocks.append(Resample(cout, up=False))
        self.mid_block = MidBlock(cout)
        self.norm_out = ChannelNorm(cout)
        self.conv_out = nn.Conv2d(cout, 2 * z_dim, 3, padding=1)

    def forward(self, x):
        x = self.conv_in(x)
        for block in self.down_blocks:
            x = block(x)
        return self.conv_out(F.silu(self.norm_out(self.mid_block(x))))


class UpBlock(nn.Module):
    def __init__(self, cin, cout, num_res_blocks, up):
        super().__init__()
        self.resnets = nn.ModuleList([ResidualBlock(cin if j == 0 else cout, cout) for j in range(num_res_blocks + 1)])
        self.upsamplers = nn.ModuleList([Resample(cout, up=True)]) if up else None

    def forward(self, x):
        for block in self.resnets:
            x = block(x)
        return self.upsamplers[0](x) if self.upsamplers is not None else x


class Decoder(nn.Module):
    def __init__(self, base_dim, z_dim, dim_mult, num_res_blocks):
        super().__init__()
        dims = [base_dim * m for m in [dim_mult[-1]] + dim_mult[::-1]]
        self.conv_in = nn.Conv2d(z_dim, dims[0], 3, padding=1)
        self.mid_block = MidBlock(dims[0])
        self.up_blocks = nn.ModuleList()
        for i, (cin, cout) in enumerate(zip(dims[:-1], dims[1:])):
            self.up_blocks.append(UpBlock(cin if i == 0 else cin // 2, cout, num_res_blocks, up=i != len(dim_mult) - 1))
        self.norm_out = ChannelNorm(cout)
        self.conv_out = nn.Conv2d(cout, 3, 3, padding=1)

    def forward(self, x):
        x = self.mid_block(self.conv_in(x))
        for block in self.up_blocks:
            x = block(x)
        return self.conv_out(F.silu(self.norm_out(x)))


class Vae(nn.Module):
    def __init__(self, config=None):
        super().__init__()
        c = config or VAE_CONFIG
        shape = (c["base_dim"], c["z_dim"], c["dim_mult"], c["num_res_blocks"])
        self.encoder = Encoder(*shape)
        self.quant_conv = nn.Conv2d(2 * c["z_dim"], 2 * c["z_dim"], 1)
        self.post_quant_conv = nn.Conv2d(c["z_dim"], c["z_dim"], 1)
        self.decoder = Decoder(*shape)

    def encode(self, x):
        """images [B,3,H,W] in [-1,1] -> mean, logvar [B,16,H/8,W/8]"""
        mean, logvar = self.quant_conv(self.encoder(x)).float().chunk(2, dim=1)
        return mean, logvar.clamp(-30.0, 20.0)

    def decode(self, z):
        return self.decoder(self.post_quant_conv(z))


def to_official_vae(state, official_state):
    """2-D weights -> the 3-D shapes of `official_state` (a state dict): live kernels in the newest temporal tap, zeros elsewhere."""
    out = {}
    for name, like in official_state.items():
        if name not in state:
            if ".time_conv." not in name:
                raise KeyError(name)
            out[name] = torch.zeros_like(like)
            continue
        value = state[name].to(like.dtype)
        if value.ndim == 4 and like.ndim == 5:
            full = torch.zeros_like(like)
            full[:, :, -1] = value
            value = full
        elif name.endswith(".gamma"):
            value = value.reshape(like.shape)
        if value.shape != like.shape:
            raise ValueError(f"{name}: {tuple(value.shape)} against {tuple(like.shape)}")
        out[name] = value
    unknown = set(state) - set(official_state)
    if unknown:
        raise KeyError(f"no place for {sorted(unknown)}")
    return out


# ---- text model ------------------------------------------------------------------------------------------------------


class RmsNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        h = x.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)
        return h.to(x.dtype) * self.weight.to(x.dtype)


def _half_rope(x, cos, sin):
    """x [B,H,S,D], rotate-half layout"""
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


class TextAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, self.heads, self.kv = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
        self.dim = d // self.heads
        self.q_proj = nn.Linear(d, d)
        self.k_proj = nn.Linear(d, self.kv * self.dim)
        self.v_proj = nn.Linear(d, self.kv * self.dim)
        self.o_proj = nn.Linear(d, d, bias=False)

    def forward(self, x, cos, sin):
        b, s, _ = x.shape
        q = self.q_proj(x).view(b, s, self.heads, self.dim).transpose(1, 2)
        k = self.k_proj(x).view(b, s, self.kv, self.dim).transpose(1, 2)
        v = self.v_proj(x).view(b, s, self.kv, self.dim).transpose(1, 2)
        q, k = _half_rope(q, cos, sin), _half_rope(k, cos, sin)
        k, v = (t.repeat_interleave(self.heads // self.kv, dim=1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, s, -1))


class TextMlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, m = c["hidden_size"], c["intermediate_size"]
        self.gate_proj = nn.Linear(d, m, bias=False)
        self.up_proj = nn.Linear(d, m, bias=False)
        self.down_proj = nn.Linear(m, d, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class TextLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.self_attn = TextAttention(c)
        self.mlp = TextMlp(c)
        self.input_layernorm = RmsNorm(c["hidden_size"], c["rms_norm_eps"])
        self.post_attention_layernorm = RmsNorm(c["hidden_size"], c["rms_norm_eps"])

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class TextModel(nn.Module):
    """Qwen2.5-VL language model; for text alone M-RoPE is ordinary RoPE."""

    def __init__(self, vocab_size, config=None):
        super().__init__()
        c = config or TEXT_CONFIG
        self.embed_tokens = nn.Embedding(vocab_size, c["hidden_size"])
        self.layers = nn.ModuleList([TextLayer(c) for _ in range(c["num_hidden_layers"])])
        self.norm = RmsNorm(c["hidden_size"], c["rms_norm_eps"])
        self.head_dim, self.theta = c["hidden_size"] // c["num_attention_heads"], c["rope_theta"]

    def forward(self, ids):
        """ids [B,S] -> [B,S,hidden]. Padding on the right needs no mask: attention is causal."""
        half = torch.arange(0, self.head_dim, 2, device=ids.device, dtype=torch.float32) / self.head_dim
        angle = (
            torch.arange(ids.shape[1], device=ids.device, dtype=torch.float32)[:, None] * (1.0 / self.theta**half)[None]
        )
        cos, sin = angle.cos(), angle.sin()
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)


# ---- diffusion transformer -------------------------------------------------------------------------------------------


def _pair_rope(x, cos, sin):
    """x [B,S,H,D], interleaved pairs; cos, sin [S,1,D/2]"""
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2).to(x.dtype)


def rope_tables(axes, rows, cols, text_len, device):
    """cos, sin [T+N, 1, D/2]: text first, then the image tokens of a rows x cols grid (centred positions)."""
    freqs = [1.0 / 10000.0 ** (torch.arange(0, d, 2, dtype=torch.float32) / d) for d in axes]
    start = max(rows // 2, cols // 2)
    text = torch.arange(start, start + text_len, dtype=torch.float32)
    y = torch.arange(rows, dtype=torch.float32) - (rows - rows // 2)
    x = torch.arange(cols, dtype=torch.float32) - (cols - cols // 2)
    text_angle = torch.cat([text[:, None] * f[None] for f in freqs], dim=1)
    image_angle = torch.cat(
        [
            torch.zeros(rows, cols, len(freqs[0])),
            (y[:, None] * freqs[1][None])[:, None].expand(rows, cols, -1),
            (x[:, None] * freqs[2][None])[None].expand(rows, cols, -1),
        ],
        dim=-1,
    ).reshape(rows * cols, -1)
    angle = torch.cat([text_angle, image_angle])[:, None].to(device)
    return angle.cos(), angle.sin()


class JointAttention(nn.Module):
    def __init__(self, dim, heads, head_dim):
        super().__init__()
        self.heads, self.head_dim = heads, head_dim
        for name in ("to_q", "to_k", "to_v", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"):
            setattr(self, name, nn.Linear(dim, dim))
        self.to_out = nn.ModuleList([nn.Linear(dim, dim)])
        for name in ("norm_q", "norm_k", "norm_added_q", "norm_added_k"):
            setattr(self, name, RmsNorm(head_dim))

    def forward(self, img, txt, cos, sin, mask):
        b, t = txt.shape[:2]

        def heads(x):
            return x.unflatten(-1, (self.heads, self.head_dim))

        q = torch.cat([self.norm_added_q(heads(self.add_q_proj(txt))), self.norm_q(heads(self.to_q(img)))], dim=1)
        k = torch.cat([self.norm_added_k(heads(self.add_k_proj(txt))), self.norm_k(heads(self.to_k(img)))], dim=1)
        v = torch.cat([heads(self.add_v_proj(txt)), heads(self.to_v(img))], dim=1)  # [B,T+N,H,D]
        q, k = _pair_rope(q, cos, sin), _pair_rope(k, cos, sin)
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask)
        y = y.transpose(1, 2).flatten(2)
        return self.to_out[0](y[:, t:]), self.to_add_out(y[:, :t])


class Projection(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.proj = nn.Linear(cin, cout)

    def forward(self, x):
        return F.gelu(self.proj(x), approximate="tanh")


class FeedForward(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.ModuleList([Projection(dim, 4 * dim), nn.Identity(), nn.Linear(4 * dim, dim)])

    def forward(self, x):
        return self.net[2](self.net[0](x))


def _modulated(x, shift, scale):
    h = F.layer_norm(x.float(), x.shape[-1:], eps=1e-6).to(x.dtype)
    return h * (1 + scale[:, None]) + shift[:, None]


class Block(nn.Module):
    def __init__(self, dim, heads, head_dim):
        super().__init__()
        self.img_mod = nn.Sequential(nn.SiLU(), nn.Linear(dim, 6 * dim))
        self.attn = JointAttention(dim, heads, head_dim)
        self.img_mlp = FeedForward(dim)
        self.txt_mod = nn.Sequential(nn.SiLU(), nn.Linear(dim, 6 * dim))
        self.txt_mlp = FeedForward(dim)

    def forward(self, img, txt, temb, cos, sin, mask):
        is1, ic1, ig1, is2, ic2, ig2 = self.img_mod(temb).chunk(6, dim=-1)
        ts1, tc1, tg1, ts2, tc2, tg2 = self.txt_mod(temb).chunk(6, dim=-1)
        img_out, txt_out = self.attn(_modulated(img, is1, ic1), _modulated(txt, ts1, tc1), cos, sin, mask)
        img = img + ig1[:, None] * img_out
        txt = txt + tg1[:, None] * txt_out
        img = img + ig2[:, None] * self.img_mlp(_modulated(img, is2, ic2))
        txt = txt + tg2[:, None] * self.txt_mlp(_modulated(txt, ts2, tc2))
        return img, txt


class TimeEmbedder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear_1 = nn.Linear(256, dim)
        self.linear_2 = nn.Linear(dim, dim)


class TimeText(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.timestep_embedder = TimeEmbedder(dim)

    def forward(self, t):
        i = torch.arange(128, device=t.device, dtype=torch.float32)
        a = 1000 * (t.float()[:, None] * torch.exp(-math.log(10000) * i / 128)[None])
        features = torch.cat([a.cos(), a.sin()], dim=-1)
        e = self.timestep_embedder
        return e.linear_2(F.silu(e.linear_1(features)))


class AdaNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(dim, 2 * dim)

    def forward(self, x, temb):
        scale, shift = self.linear(F.silu(temb)).chunk(2, dim=-1)
        return _modulated(x, shift, scale)


class Dit(nn.Module):
    def __init__(self, config=None):
        super().__init__()
        c = config or DIT_CONFIG
        dim = c["num_attention_heads"] * c["attention_head_dim"]
        self.axes = c["axes_dims_rope"]
        self.time_text_embed = TimeText(dim)
        self.txt_norm = RmsNorm(c["joint_attention_dim"])
        self.img_in = nn.Linear(c["in_channels"], dim)
        self.txt_in = nn.Linear(c["joint_attention_dim"], dim)
        self.transformer_blocks = nn.ModuleList(
            [Block(dim, c["num_attention_heads"], c["attention_head_dim"]) for _ in range(c["num_layers"])]
        )
        self.norm_out = AdaNorm(dim)
        self.proj_out = nn.Linear(dim, 4 * c["out_channels"])

    def forward(self, x, text, text_mask, t, cos, sin):
        """x [B,N,64] packed latents, text [B,T,C], text_mask [B,T] bool or None, t [B] sigma in [0,1]; cos, sin from rope_tables."""
        mask = None
        if text_mask is not None:
            image = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
            joint = torch.cat([text_mask, image], dim=1)
            mask = joint[:, None, None, :].expand(-1, -1, joint.shape[1], -1)
        # under autocast the residual streams stay in f32
        img, txt, temb = self.img_in(x).float(), self.txt_in(self.txt_norm(text)).float(), self.time_text_embed(t)
        for block in self.transformer_blocks:
            img, txt = block(img, txt, temb, cos, sin, mask)
        return self.proj_out(self.norm_out(img, temb))


def init_dit(dit):
    for name, p in dit.named_parameters():
        if p.ndim == 2:
            nn.init.xavier_uniform_(p)
        elif name.endswith(".bias"):
            nn.init.zeros_(p)
    zero = [dit.norm_out.linear, dit.proj_out]
    for block in dit.transformer_blocks:
        zero += [block.img_mod[1], block.txt_mod[1]]
    for layer in zero:
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)


def init_text(text):
    for name, p in text.named_parameters():
        if name.startswith("embed_tokens"):
            nn.init.normal_(p, std=0.3)
        elif p.ndim == 2:
            nn.init.normal_(p, std=p.shape[1] ** -0.5)
        elif name.endswith(".bias"):
            nn.init.zeros_(p)


def pack(z):
    """[B,16,h,w] -> [B,(h/2)(w/2),64], channel-major inside a token"""
    b, c, h, w = z.shape
    return z.view(b, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(b, (h // 2) * (w // 2), c * 4)


def unpack(x, rows, cols):
    b = x.shape[0]
    return x.view(b, rows, cols, 16, 2, 2).permute(0, 3, 1, 4, 2, 5).reshape(b, 16, rows * 2, cols * 2)
