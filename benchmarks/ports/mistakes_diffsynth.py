"""Mistakes in DiffSynth-Studio 2.1, Qwen-Image, against the official pipeline."""

from __future__ import annotations

from mistakes import Mistake, at, change
from mistakes_mflux import B, DECODED, DIT_OUT, GUIDED, INTO_DIT, TIME

DIT, PARTS, PIPE = "models/qwen_image_dit.py", "models/general_modules.py", "pipelines/qwen_image.py"
BASE, FLOW, VAE = "diffusion/base_pipeline.py", "diffusion/flow_match.py", "models/qwen_image_vae.py"
BLOCK_1 = at("transformer.transformer_blocks.1.img_norm1") + (
    "output:" + B + ".1",
    "input:transformer.transformer_blocks.1.hidden_states",
)

MISTAKES = [
    Mistake("rotation_conjugate", "blind_a", change(DIT, "torch.view_as_real(x_rotated * freqs_cis)", "torch.view_as_real(x_rotated * freqs_cis.conj())"),
            DIT_OUT, ("rotary.sign",), "first_block"),
    Mistake("text_keys_not_rotated", "blind_a", change(DIT, "            txt_k = apply_rotary_emb_qwen(txt_k, txt_freqs)\n", ""),
            DIT_OUT, ("rotary.missing", "rotary.one_side"), "first_block"),
    Mistake("modulation_halves", "blind_a", change(DIT, "img_mod_attn, img_mod_mlp = self.img_mod(temb)", "img_mod_mlp, img_mod_attn = self.img_mod(temb)"),
            INTO_DIT, ("modulate.other_part",), "first_block"),
    Mistake("mlp_gate_missing", "blind_a", change(DIT, "image = image + img_gate_2 * img_mlp_out", "image = image + img_mlp_out"),
            BLOCK_1, ("gate.missing",), "first_block"),
    Mistake("value_streams", "blind_a", change(DIT, "joint_v = torch.cat([txt_v, img_v], dim=2)", "joint_v = torch.cat([img_v, txt_v], dim=2)"),
            DIT_OUT, ("attention.streams",), "first_block"),
    Mistake("query_norm_eps", "blind_a", change(DIT, "self.norm_q = RMSNorm(head_dim, eps=1e-6)", "self.norm_q = RMSNorm(head_dim, eps=1e-5)"),
            at(f"{B}.attn.norm_q"), ("norm.eps",), "first_block"),
    Mistake("last_shift_scale", "blind_a", change(PARTS, "scale, shift = emb.unsqueeze(1).chunk(2, dim=2)", "shift, scale = emb.unsqueeze(1).chunk(2, dim=2)"),
            at("transformer.norm_out", "transformer.proj_out"), ("modulate.shift_scale_exchanged",), "latents"),
    Mistake("timestep_in_thousands", "blind_a", change(PIPE, "    timestep = timestep / 1000\n    \n    image = rearrange(latents, \"(B N)", "    image = rearrange(latents, \"(B N)"),
            TIME, ("timestep.scale",), "first_block"),
    Mistake("guidance_exchanged", "blind_a", change(BASE, "noise_pred = noise_pred_nega + cfg_scale * (noise_pred_posi - noise_pred_nega)", "noise_pred = noise_pred_posi + cfg_scale * (noise_pred_nega - noise_pred_posi)"),
            GUIDED, ("guidance.exchanged", "guidance.formula"), "latents"),
    Mistake("step_sign", "blind_a", change(FLOW, "        prev_sample = sample + model_output * (sigma_ - sigma)\n        return prev_sample\n    \n    def return", "        prev_sample = sample + model_output * (sigma - sigma_)\n        return prev_sample\n    \n    def return"),
            ("checkpoint:latents", "input:transformer.hidden_states") + at("transformer.img_in"), ("scheduler.sign",), "latents"),
    Mistake("std_not_inverted", "blind_a", change(VAE, "        x = x / std + mean\n        x = self.post_quant_conv(x)\n        x = self.decoder(x)\n        x = x.squeeze(2)", "        x = x * std + mean\n        x = self.post_quant_conv(x)\n        x = self.decoder(x)\n        x = x.squeeze(2)"),
            DECODED, ("latents.std_inverted",), "picture"),
    Mistake("text_output_layer", "blind_a", change(DIT, "txt_attn_output = self.to_add_out(txt_attn_output)", "txt_attn_output = self.to_out(txt_attn_output)"),
            at(f"{B}.attn.to_add_out") + (f"output:{B}.attn.1",), ("linear.other_weight",), "last_block"),
    Mistake("last_modulation_without_silu", "blind_a", change(PARTS, "emb = self.linear(torch.nn.functional.silu(emb))", "emb = self.linear(emb)"),
            at("transformer.norm_out.silu", "transformer.norm_out.linear"), ("activation.missing",), "latents"),
]  # fmt: skip
