"""Neighbours of the attention and rotary faults of the other sets. For tuning, no measure."""

from __future__ import annotations

import contextlib

import torch
import torch.nn.functional as F
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as qwen

from suite_01_every_stage import E, T, layer, rope
from places import MIDDLE, attended, faults_of, joint_attention, method, middle, rotated
from planting import attribute, code
from worlds import World

FAULTS: list = []
# 4 by 6 image tokens, 3 heads; in the text encoder 6 heads on 2 key heads.
THREE = World(
    "attention-three",
    {"seed": 131, "layers": 2, "heads": 3, "head_dim": 32, "axes": [8, 12, 12], "text_hidden": 96, "text_heads": 6, "text_kv_heads": 2,
     "text_layers": 2, "text_intermediate": 128, "vae_res_blocks": 1},
    {"prompt": "a heron at the edge of a reed bed", "negative": "noise", "width": 96, "height": 64, "steps": 2, "guidance": 4.0, "seed": 131},
)  # fmt: skip
# Two prompts, one of which is padded.
PADDED = World(
    "attention-padded",
    {"seed": 132, "layers": 2, "heads": 4, "head_dim": 32, "text_layers": 2, "vae_res_blocks": 1},
    {"prompt": ["fog", "three chairs in front of a closed kiosk"], "negative": ["blurred, sign", "grey"], "width": 64, "height": 80, "steps": 2,
     "guidance": 4.0, "seed": 132},
)  # fmt: skip
fault = faults_of(FAULTS, THREE)
SEEN = f"input:{E}.1.self_attn.o_proj"
IMAGE = "output:transformer.pos_embed.0"
TEXT = "output:transformer.pos_embed.1"


def text_attention(scores=lambda s: s, weigh=lambda s: s.softmax(-1), group=lambda x, n: x.repeat_interleave(n, 1), after=lambda y: y):
    """Layer 1's attention written out: scores are [batch, heads, queries, keys], without the mask."""

    def planted(module, q, k, v, mask, scaling, **_):
        k, v = (group(x, module.num_key_value_groups) for x in (k, v))
        s = scores(q @ k.transpose(2, 3) * scaling)
        return after(weigh(s) @ v).transpose(1, 2).contiguous(), None

    line = "attention_interface: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(\n        self.config._attn_implementation, eager_attention_forward\n    )"
    return lambda p: method(layer(p, 1).self_attn, "forward", (line, "attention_interface = planted"), planted=planted)


def later(s, diagonal=1):
    return torch.ones(s.shape[-2:], dtype=torch.bool).triu(diagonal)


def hidden(s, diagonal=1, value=-torch.inf):
    return s.masked_fill(later(s, diagonal), value)


def joint(weigh=None, hide=None, cut=lambda x: x, merge=lambda y: y):
    """Block 1's attention written out: q, k, v are [batch, tokens, heads, size]; hide(visible, scores) → scores."""

    def planted(q, k, v, attn_mask=None, **_):
        q, k, v = (cut(x).transpose(1, 2) for x in (q, k, v))
        s = q @ k.transpose(2, 3) * q.shape[-1] ** -0.5
        if hide:
            s = hide(attn_mask, s)
        elif attn_mask is not None:
            s = s.masked_fill(~attn_mask.bool(), -torch.inf)
        return merge((weigh or (lambda s: s.softmax(-1)))(s) @ v).transpose(1, 2)

    return lambda p: joint_attention(p, 1, ("joint_hidden_states = dispatch_attention_fn(", "joint_hidden_states = planted("), planted=planted)


def lines(*changes, **names):
    return lambda p: joint_attention(p, 1, *changes, **names)


def rotary(function):
    """Of the text encoder: (x, cos, sin) → x, for q and k alike."""

    def planted(q, k, cos, sin, unsqueeze_dim=1):
        return tuple(function(x, cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)) for x in (q, k))

    return lambda p: attribute(qwen, "apply_rotary_pos_emb", planted)


FIRST = f"input:{E}.0.self_attn.o_proj"


def partial(x, cos, sin, begin, end, columns):
    part, n = x[..., begin:end], (end - begin) // 2
    c, s = (torch.cat([t[..., : t.shape[-1] // 2][..., columns]] * 2, -1) for t in (cos, sin))
    assert c.shape[-1] == 2 * n
    return torch.cat([x[..., :begin], part * c + qwen.rotate_half(part) * s, x[..., end:]], -1)


def side_by_side(x, cos, sin):
    c, s = (t[..., : t.shape[-1] // 2].repeat_interleave(2, -1) for t in (cos, sin))
    return x * c + qwen.rotate_half(x) * s


# --- masks -----------------------------------------------------------------------------------------------------------
fault("text.sees_one_ahead", "text encoder", SEEN, "attention.mask", text_attention(lambda s: hidden(s, 2)))
fault("text.mask_small_number", "text encoder", SEEN, "attention.mask", text_attention(lambda s: s + later(s) * -3.7))
fault("text.mask_is_one", "text encoder", SEEN, "attention.mask", text_attention(lambda s: hidden(s, value=1.0)))
fault("text.mask_upside_down", "text encoder", SEEN, "attention.mask",
      text_attention(lambda s: s.masked_fill(~later(s), torch.finfo(torch.float32).min)))
fault("text.blocks_of_five", "text encoder", SEEN, ("attention.mask", "attention.mask_added"),
      text_attention(lambda s: hidden(s).masked_fill((torch.arange(s.shape[-1]) // 5)[:, None] != (torch.arange(s.shape[-1]) // 5)[None], -torch.inf)))
fault("text.window_of_nine", "text encoder", SEEN, ("attention.mask", "attention.mask_added"),
      text_attention(lambda s: hidden(s).masked_fill(~later(s, -8), -torch.inf)))
fault("dit.padding_zeroed_scores", "dit", attended(1), "attention.mask", joint(hide=lambda m, s: s * m), world=PADDED)
fault("dit.padding_after_softmax", "dit", attended(1), ("attention.softmax", "attention.mask"),
      lambda p: joint_attention(p, 1, ("joint_hidden_states = dispatch_attention_fn(", "joint_hidden_states = planted("),
                                planted=lambda q, k, v, attn_mask=None, **_: (((q.transpose(1, 2) @ k.permute(0, 2, 3, 1) * q.shape[-1] ** -0.5).softmax(-1) * attn_mask) @ v.transpose(1, 2)).transpose(1, 2)), world=PADDED)
fault("dit.padding_in_front", "dit", attended(1), "attention.mask",
      joint(hide=lambda m, s: s.masked_fill(~torch.cat([m[..., : m.shape[-1] - 20].flip(-1), m[..., m.shape[-1] - 20 :]], -1), -torch.inf)), world=PADDED)
fault("dit.mask_of_queries", "dit", attended(1), ("attention.mask", "attention.mask_missing"),
      joint(hide=lambda m, s: s.masked_fill(~m.transpose(2, 3), torch.finfo(torch.float32).min)), world=PADDED)
fault("dit.image_causal", "dit", attended(1), "attention.mask_added",
      joint(hide=lambda m, s: torch.cat([s[..., :-24], torch.cat([s[..., :-24, -24:], hidden(s[..., -24:, -24:])], -2)], -1)))
fault("dit.rows_of_the_picture_alone", "dit", attended(1), "attention.mask_added",
      joint(hide=lambda m, s: torch.cat([s[..., :-24], torch.cat([s[..., :-24, -24:], s[..., -24:, -24:].masked_fill((torch.arange(24) // 6)[:, None] != (torch.arange(24) // 6)[None], -torch.inf)], -2)], -1)))
fault("vae.one_ahead", "vae", f"input:{MIDDLE}.proj", "attention.mask_added",
      lambda p: code(middle(p), "forward", ("F.scaled_dot_product_attention(q, k, v)", "F.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).tril(1))")))

# --- softmax and scale -------------------------------------------------------------------------------------------------
fault("dit.softmax_over_heads", "dit", attended(1), "attention.softmax", joint(weigh=lambda s: s.softmax(1)))
fault("dit.softmax_plus_one", "dit", attended(1), "attention.softmax", joint(weigh=lambda s: s.exp() / (1 + s.exp().sum(-1, keepdim=True))))
fault("dit.softmax_base_two", "dit", attended(1), ("attention.softmax", "attention.scale"), joint(weigh=lambda s: (s * 0.6931471805599453).softmax(-1)))
fault("dit.softmax_of_each_stream", "dit", attended(1), ("attention.softmax", "attention.streams"),
      joint(weigh=lambda s: torch.cat([s[..., :-24].softmax(-1), s[..., -24:].softmax(-1)], -1)))
fault("text.softmax_not_divided", "text encoder", SEEN, "attention.softmax", text_attention(hidden, lambda s: (s - s.amax(-1, keepdim=True)).exp()))
fault("text.seven_zero_keys", "text encoder", SEEN, ("attention.softmax", "attention.mask"),
      text_attention(hidden, lambda s: F.pad(s, (0, 7)).softmax(-1)[..., :-7]))
fault("text.soft_cap_of_three", "text encoder", SEEN, "attention.cap", text_attention(lambda s: hidden(3 * torch.tanh(s / 3))))
fault("dit.text_keys_twice", "dit", attended(1), ("attention.streams", "attention.softmax"),
      lines(("joint_key = torch.cat([txt_key, img_key], dim=1)", "joint_key = torch.cat([txt_key, img_key, txt_key], dim=1)"),
            ("joint_value = torch.cat([txt_value, img_value], dim=1)", "joint_value = torch.cat([txt_value, img_value, txt_value], dim=1)")))

# --- heads -----------------------------------------------------------------------------------------------------------------
fault("vae.two_heads_scale_of_one", "vae", f"input:{MIDDLE}.proj", "attention.heads",
      lambda p: code(middle(p), "forward", ("F.scaled_dot_product_attention(q, k, v)", "F.scaled_dot_product_attention(*(t.squeeze(1).unflatten(-1, (2, -1)).transpose(1, 2) for t in (q, k, v)), scale=q.shape[-1] ** -0.5).transpose(1, 2).flatten(2).unsqueeze(1)")))
fault("dit.six_heads", "dit", attended(1), "attention.heads",
      joint(cut=lambda x: x.flatten(2).unflatten(-1, (6, -1)), merge=lambda y: y.transpose(1, 2).flatten(2).unflatten(-1, (3, -1)).transpose(1, 2)))
fault("dit.one_head", "dit", attended(1), "attention.heads",
      joint(cut=lambda x: x.flatten(2).unsqueeze(2), merge=lambda y: y.transpose(1, 2).flatten(2).unflatten(-1, (3, -1)).transpose(1, 2)))
fault("dit.result_by_shape", "dit", attended(1), ("layout.heads", "layout.strided"),
      lines(("joint_hidden_states = joint_hidden_states.flatten(2, 3)", "joint_hidden_states = joint_hidden_states.transpose(1, 2).reshape(joint_query.shape).flatten(2, 3)")))
fault("dit.queries_by_shape", "dit", f"input:{T}.1.attn.norm_q", "layout.heads",
      lines(("img_query = img_query.unflatten(-1, (-1, head_dim))", "img_query = img_query.reshape(img_query.shape[0], -1, img_query.shape[1], head_dim).transpose(1, 2)")))
fault("text.values_tiled_alone", "text encoder", SEEN, "attention.key_groups",
      lambda p: method(layer(p, 1).self_attn, "forward", ("attention_interface: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(\n        self.config._attn_implementation, eager_attention_forward\n    )", "attention_interface = planted"),
                       planted=lambda module, q, k, v, mask, scaling, **_: ((hidden(q @ k.repeat_interleave(3, 1).transpose(2, 3) * scaling).softmax(-1) @ v.repeat(1, 3, 1, 1)).transpose(1, 2).contiguous(), None)))
fault("dit.key_heads_rolled", "dit", attended(1), ("attention.heads", "attention.key_groups"),
      lines(("joint_key = torch.cat([txt_key, img_key], dim=1)", "joint_key = torch.cat([txt_key, img_key], dim=1).roll(1, 2)")))

# --- streams -----------------------------------------------------------------------------------------------------------------
fault("dit.values_image_first", "dit", attended(1), "attention.streams",
      lines(("joint_value = torch.cat([txt_value, img_value], dim=1)", "joint_value = torch.cat([img_value, txt_value], dim=1)")))
fault("dit.parted_one_late", "dit", attended(1), ("attention.streams", "layout.shifted", "layout.rolled"),
      lines(("img_attn_output = joint_hidden_states[:, seq_txt:, :]", "img_attn_output = joint_hidden_states.roll(-1, 1)[:, seq_txt:, :]")))

# --- rotation ---------------------------------------------------------------------------------------------------------------
fault("text.last_half_turned", "text encoder", FIRST, "rotary.partial", rotary(lambda x, c, s: partial(x, c, s, x.shape[-1] // 2, x.shape[-1], slice(0, x.shape[-1] // 4))))
fault("text.quarter_of_own_frequencies", "text encoder", FIRST, "rotary.partial", rotary(lambda x, c, s: partial(x, c, s, 0, x.shape[-1] // 4, slice(None, None, 4))))
fault("text.angles_side_by_side", "text encoder", FIRST, "rotary.style", rotary(side_by_side))
fault("text.no_minus", "text encoder", FIRST, "rotary.sign",
      rotary(lambda x, c, s: x * c + torch.cat([x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]], -1) * s))
fault("dit.turned_by_head", "dit", attended(1), "rotary.positions",
      lines(*((line, f"{name} = apply_rotary_emb_qwen({name}.transpose(1, 2), {name[:3]}_freqs[: {name}.shape[2]], use_real=False).transpose(1, 2)")
              for name, line in rotated("img_query", "img_key", "txt_query", "txt_key"))))
fault("dit.one_table_image_first", "dit", attended(1), ("rotary.streams_exchanged", "rotary.offset"),
      lines(("img_freqs, txt_freqs = image_rotary_emb", "both = torch.cat(image_rotary_emb, 0)\n        txt_freqs, img_freqs = both[: txt_query.shape[1]], both[txt_query.shape[1] :]")))
fault("dit.halves_in_text_keys", "dit", attended(1), "rotary.style",
      lines((rotated("txt_key")[0][1], "txt_key = apply_rotary_emb_qwen(txt_key.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2), txt_freqs, use_real=False).unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)")))

# --- tables ---------------------------------------------------------------------------------------------------------------------
def frequencies(exponent):
    """Of the rotary module's rope_params: exponent(dim) gives those of theta."""
    return lambda p: _with_frequencies(p, exponent)


def _with_frequencies(p, exponent):
    own = p.transformer.pos_embed
    parts = [torch.pow(torch.tensor(float(own.theta)), -exponent(dim)) for dim in own.axes_dim]
    angles = [torch.outer(index.float(), torch.cat(parts)) for index in (torch.arange(4096), torch.arange(-4096, 0))]
    tables = tuple(torch.polar(torch.ones_like(a), a) for a in angles)
    other = type(own)(theta=own.theta, axes_dim=own.axes_dim, scale_rope=True)
    other.pos_freqs, other.neg_freqs = tables
    stack = contextlib.ExitStack()
    stack.enter_context(attribute(own, "_get_device_freqs", lambda device: tables))
    stack.enter_context(attribute(own, "_compute_video_freqs", lambda f, h, w, i=0, device=None: other._compute_video_freqs(f, h, w, i, None)))
    return stack


fault("dit.frequencies_to_the_end", "dit", "output:transformer.pos_embed.*", "rotary.theta", frequencies(lambda dim: torch.linspace(0, 1, dim // 2)))
fault("dit.frequencies_halved_exponent", "dit", "output:transformer.pos_embed.*", "rotary.theta", frequencies(lambda dim: torch.arange(dim // 2) / dim))
fault("dit.frequencies_reversed", "dit", "output:transformer.pos_embed.*", "rotary.theta", frequencies(lambda dim: torch.arange(0, dim, 2).flip(0) / dim))
fault("dit.axes_of_other_sizes", "dit", "output:transformer.pos_embed.*", ("rotary.axes_exchanged", "rotary.theta"),
      lambda p: _with_axes(p, [12, 8, 12]))
fault("dit.positions_from_both_ends", "dit", IMAGE, "rotary.positions",
      lambda p: rope(p, "_compute_video_freqs", ("freqs_neg[2][-(width - width // 2) :], freqs_pos[2][: width // 2]", "freqs_pos[2][: width // 2], freqs_neg[2][-(width - width // 2) :]")))
fault("dit.height_folded", "dit", IMAGE, "rotary.positions",
      lambda p: rope(p, "_compute_video_freqs", ("freqs_neg[1][-(height - height // 2) :]", "freqs_pos[1][: height - height // 2]")))
fault("dit.text_every_second", "dit", TEXT, ("rotary.factor", "rotary.positions"),
      lambda p: rope(p, "forward", ("pos_freqs_device[max_vid_index : max_vid_index + max_txt_seq_len_int, ...]", "pos_freqs_device[max_vid_index : max_vid_index + 2 * max_txt_seq_len_int : 2]")))
fault("dit.text_on_one_axis", "dit", TEXT, ("rotary.positions", "rotary.factor"),
      lambda p: rope(p, "forward", ("vid_freqs = torch.cat(vid_freqs, dim=0)", "vid_freqs = torch.cat(vid_freqs, dim=0)\n    txt_freqs = torch.cat([txt_freqs[:, : self.axes_dim[0] // 2], torch.ones_like(txt_freqs[:, self.axes_dim[0] // 2 :])], 1)")))


def _with_axes(p, axes):
    own = p.transformer.pos_embed
    other = type(own)(theta=own.theta, axes_dim=axes, scale_rope=True)
    stack = contextlib.ExitStack()
    stack.enter_context(attribute(own, "_get_device_freqs", lambda device: (other.pos_freqs, other.neg_freqs)))
    stack.enter_context(attribute(own, "_compute_video_freqs", lambda *a, **k: other._compute_video_freqs(*a, **k)))
    return stack


# --- further ones: parts of the heads, two mistakes at once, tables of the text encoder, the autoencoder -----------------------
TEXT_ROPE = "output:text_encoder.model.rotary_emb.*"


def text_frequencies(change):
    def apply(p):
        own = p.text_encoder.model.language_model.rotary_emb
        return attribute(own, "inv_freq", change(own.inv_freq.clone()))

    return apply


def text_positions(change):
    """What the rotary module is given as positions."""
    return lambda p: method(p.text_encoder.model.language_model.rotary_emb, "forward", ("position_ids = position_ids.expand(3, -1, -1)", "position_ids = change(position_ids.expand(3, -1, -1))"), change=change)


def first_head_alone(x, cos, sin):
    turned = x * cos + qwen.rotate_half(x) * sin
    return torch.cat([turned[:, :1], x[:, 1:]], 1)


def kept_short(name, rows):
    return (dict(rotated(name))[name], f"{name} = apply_rotary_emb_qwen({name}, {name[:3]}_freqs[torch.arange({name}.shape[1]).clamp(max={rows})], use_real=False)")


def repeating(name, rows):
    return (dict(rotated(name))[name], f"{name} = apply_rotary_emb_qwen({name}, {name[:3]}_freqs[torch.arange({name}.shape[1]) % {rows}], use_real=False)")


VAE_ATTENTION = "F.scaled_dot_product_attention(q, k, v)"
fault("text.low_frequencies_slowed", "text encoder", TEXT_ROPE, ("rotary.theta", "rotary.factor"),
      text_frequencies(lambda f: torch.where(torch.arange(len(f)) < len(f) // 2, f, f / 8)))
fault("text.frequencies_to_the_end", "text encoder", TEXT_ROPE, "rotary.theta", text_frequencies(lambda f: 1e6 ** -torch.linspace(0, 1, len(f))))
fault("text.frequencies_reversed", "text encoder", TEXT_ROPE, ("rotary.theta", "layout.reversed"), text_frequencies(lambda f: f.flip(0)))
fault("text.positions_start_again", "text encoder", TEXT_ROPE, ("rotary.positions", "layout.repeated"), text_positions(lambda i: i % 20))
fault("text.positions_by_pairs", "text encoder", TEXT_ROPE, ("rotary.positions", "layout.repeated"), text_positions(lambda i: i // 2 * 2))
fault("text.sections_of_half_positions", "text encoder", TEXT_ROPE, ("rotary.factor", "rotary.positions"), text_positions(lambda i: i * torch.tensor([1, 0.5, 1])[:, None, None]))
fault("text.first_head_alone_turned", "text encoder", FIRST, "rotary.missing", rotary(first_head_alone))
fault("text.keys_one_late", "text encoder", SEEN, ("layout.rolled", "layout.shifted"),
      lambda p: method(layer(p, 1).self_attn, "forward", ("attention_interface: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(\n        self.config._attn_implementation, eager_attention_forward\n    )", "key_states, value_states = key_states.roll(1, 2), value_states.roll(1, 2)\n    attention_interface: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(\n        self.config._attn_implementation, eager_attention_forward\n    )")))
fault("text.unmasked_and_unscaled", "text encoder", SEEN, ("attention.scale", "attention.mask_missing"), text_attention(lambda s: s * 4))
fault("text.scores_in_bf16_unmasked", "text encoder", SEEN, ("attention.mask_missing", "precision.bf16"), text_attention(lambda s: s.bfloat16().float()))
fault("text.tiled_and_capped", "text encoder", SEEN, ("attention.key_groups", "attention.cap"),
      text_attention(lambda s: hidden(5 * torch.tanh(s / 5)), group=lambda x, n: x.repeat(1, n, 1, 1)))
fault("text.second_half_of_queries_unmasked", "text encoder", SEEN, ("attention.mask_missing", "attention.mask"),
      text_attention(lambda s: torch.cat([hidden(s)[..., :27, :], s[..., 27:, :]], -2)))
fault("dit.last_head_not_turned", "dit", attended(1), "rotary.missing",
      lines(*((line, f"{line}\n        {name} = torch.cat([{name}[:, :, :-1], kept_{name}[:, :, -1:]], 2)".replace(line, f"kept_{name} = {name}\n        {line}", 1)) for name, line in rotated("img_query", "img_key", "txt_query", "txt_key"))))
fault("dit.one_head_sees_text_alone", "dit", attended(1), ("attention.mask_added", "attention.streams"),
      joint(hide=lambda m, s: torch.cat([s[:, :1, :, :].masked_fill(torch.arange(s.shape[-1]) >= s.shape[-1] - 24, -torch.inf), s[:, 1:]], 1)))
fault("dit.positions_of_a_row_repeat", "dit", attended(1), "rotary.positions", lines(repeating("img_query", 6), repeating("img_key", 6)))
fault("dit.table_too_short", "dit", attended(1), "rotary.positions", lines(kept_short("txt_query", 4), kept_short("txt_key", 4)))
fault("dit.image_sees_text_alone", "dit", attended(1), "attention.mask_added",
      joint(hide=lambda m, s: torch.cat([s[..., :-24], torch.cat([s[..., :-24, -24:], s[..., -24:, -24:] - torch.inf], -2)], -1)))
fault("dit.text_values_rolled", "dit", attended(1), ("attention.streams", "layout.rolled"),
      lines(("joint_value = torch.cat([txt_value, img_value], dim=1)", "joint_value = torch.cat([txt_value, img_value], dim=1).roll(1, 1)")))
fault("dit.scale_by_length", "dit", attended(1), "attention.scale", joint(weigh=lambda s: (s * 1.2871).softmax(-1)))
fault("dit.keys_brought_to_length_one", "dit", attended(1), "attention.norm_added",
      lines(("joint_key = torch.cat([txt_key, img_key], dim=1)", "joint_key = F.normalize(torch.cat([txt_key, img_key], dim=1), dim=-1)"), F=F))
fault("vae.qkv_in_turn", "vae", f"input:{MIDDLE}.proj", ("layout.interleaved", "attention.qkv_exchanged"),
      lambda p: code(middle(p), "forward", (VAE_ATTENTION, "F.scaled_dot_product_attention(*torch.cat([q, k, v], -1).unflatten(-1, (-1, 3)).unbind(-1))")))
fault("vae.over_channels", "vae", f"input:{MIDDLE}.proj", ("layout.axes", "attention.softmax"),
      lambda p: code(middle(p), "forward", (VAE_ATTENTION, "F.scaled_dot_product_attention(q.transpose(-1, -2), k.transpose(-1, -2), v.transpose(-1, -2)).transpose(-1, -2)")))
fault("vae.sigmoid", "vae", f"input:{MIDDLE}.proj", "attention.softmax",
      lambda p: code(middle(p), "forward", (VAE_ATTENTION, "(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).sigmoid() @ v")))
fault("vae.rows_alone", "vae", f"input:{MIDDLE}.proj", "attention.mask_added",
      lambda p: code(middle(p), "forward", (VAE_ATTENTION, "F.scaled_dot_product_attention(q, k, v, attn_mask=(torch.arange(q.shape[-2]) // 12)[:, None] == (torch.arange(q.shape[-2]) // 12)[None])")))
fault("vae.q_and_k_normalised", "vae", f"input:{MIDDLE}.proj", ("attention.norm_added",),
      lambda p: code(middle(p), "forward", (VAE_ATTENTION, "F.scaled_dot_product_attention(F.normalize(q, dim=-1), F.normalize(k, dim=-1), v, scale=10.0)")))

fault("text.weights_transposed", "text encoder", SEEN, ("attention.softmax", "layout.axes"), text_attention(hidden, lambda s: s.softmax(-1).transpose(-1, -2)))
fault("text.repeats_by_two", "text encoder", SEEN, "attention.key_groups", text_attention(hidden, group=lambda x, n: x.repeat_interleave(2, 1).repeat(1, 2, 1, 1)[:, :6]))
fault("dit.rope_table_bf16", "dit", attended(1), "precision.bf16",
      lines(("img_freqs, txt_freqs = image_rotary_emb", "img_freqs, txt_freqs = (torch.view_as_complex(torch.view_as_real(t).bfloat16().float()) for t in image_rotary_emb)")))
fault("dit.positions_stretched", "dit", attended(1), "rotary.factor",
      lines(("img_freqs, txt_freqs = image_rotary_emb", "img_freqs, txt_freqs = (torch.polar(t.abs(), t.angle() * 0.81) for t in image_rotary_emb)")))
fault("dit.image_values_by_columns", "dit", attended(1), ("layout.axes", "layout.permuted"),
      lines(("joint_value = torch.cat([txt_value, img_value], dim=1)", "joint_value = torch.cat([txt_value, img_value.unflatten(1, (4, 6)).transpose(1, 2).flatten(1, 2)], dim=1)")))
fault("vae.values_by_columns", "vae", f"input:{MIDDLE}.proj", ("layout.axes", "layout.permuted"),
      lambda p: code(middle(p), "forward", (VAE_ATTENTION, "F.scaled_dot_product_attention(q, k, v.unflatten(-2, (8, 12)).transpose(-2, -3).flatten(-3, -2))")))
fault("vae.keys_backwards", "vae", f"input:{MIDDLE}.proj", "layout.reversed", lambda p: code(middle(p), "forward", (VAE_ATTENTION, "F.scaled_dot_product_attention(q, k.flip(-2), v)")))
fault("text.template_sees_itself", "text encoder", SEEN, "attention.mask", text_attention(lambda s: s.masked_fill(later(s) & (torch.arange(s.shape[-1]) >= 34), -torch.inf)))
fault("text.every_third_key", "text encoder", SEEN, ("attention.mask", "attention.mask_added"),
      text_attention(lambda s: hidden(s).masked_fill((torch.arange(s.shape[-1])[:, None] - torch.arange(s.shape[-1])[None]) % 3 != 0, -torch.inf)))
fault("text.frequencies_reversed_in_place", "text encoder", FIRST, "rotary.theta",
      rotary(lambda x, c, s: x * torch.cat([c[..., : c.shape[-1] // 2].flip(-1)] * 2, -1) + qwen.rotate_half(x) * torch.cat([s[..., : s.shape[-1] // 2].flip(-1)] * 2, -1)))
fault("dit.padding_of_zeros", "dit", attended(1), "attention.mask",
      lambda p: joint_attention(p, 1, ("joint_hidden_states = dispatch_attention_fn(", "joint_hidden_states = planted("),
                                planted=lambda q, k, v, attn_mask=None, **_: F.scaled_dot_product_attention(*((x * (m if i else 1)).transpose(1, 2) for i, x, m in zip(range(3), (q, k, v), (attn_mask[:, 0, 0, :, None, None],) * 3))).transpose(1, 2)), world=PADDED)
fault("vae.values_alone", "vae", f"input:{MIDDLE}.proj", ("stage.replaced", "capture.other_stage"), lambda p: code(middle(p), "forward", (VAE_ATTENTION, "v")))
