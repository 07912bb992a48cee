"""Mistakes in DiffSynth-Studio 2.1, Qwen-Image: the half that is scored once, at the end."""

from __future__ import annotations

from mistakes import Mistake, at, change
from mistakes_diffsynth import DIT, FLOW, PARTS, PIPE, VAE
from mistakes_mflux import B, DIT_OUT, GUIDED, INTO_DIT, TIME

V = "vae.decoder"

MISTAKES = [
    Mistake("time_sin_first", "blind_b", change(PARTS, "num_channels=dim_in, flip_sin_to_cos=True", "num_channels=dim_in, flip_sin_to_cos=False"), TIME, ("timestep.cos_sin_order",), "first_block"),
    Mistake("rows_not_centred", "blind_b",
            change(DIT, """            rope_key = f"{idx}_{height}_{width}"

            if rope_key not in self.rope_cache:
                seq_lens = frame * height * width
                freqs_pos = self.pos_freqs.split([x // 2 for x in self.axes_dim], dim=1)
                freqs_neg = self.neg_freqs.split([x // 2 for x in self.axes_dim], dim=1)
                freqs_frame = freqs_pos[0][idx : idx + frame].view(frame, 1, 1, -1).expand(frame, height, width, -1)
                if self.scale_rope:
                    freqs_height = torch.cat(
                        [freqs_neg[1][-(height - height // 2) :], freqs_pos[1][: height // 2]], dim=0
                    )
                    freqs_height = freqs_height.view(1, height, 1, -1).expand(frame, height, width, -1)
                    freqs_width = torch.cat([freqs_neg[2][-(width - width // 2) :], freqs_pos[2][: width // 2]], dim=0)
                    freqs_width = freqs_width.view(1, 1, width, -1).expand(frame, height, width, -1)

                else:""", """            rope_key = f"{idx}_{height}_{width}"

            if rope_key not in self.rope_cache:
                seq_lens = frame * height * width
                freqs_pos = self.pos_freqs.split([x // 2 for x in self.axes_dim], dim=1)
                freqs_neg = self.neg_freqs.split([x // 2 for x in self.axes_dim], dim=1)
                freqs_frame = freqs_pos[0][idx : idx + frame].view(frame, 1, 1, -1).expand(frame, height, width, -1)
                if self.scale_rope:
                    freqs_height = freqs_pos[1][:height]
                    freqs_height = freqs_height.view(1, height, 1, -1).expand(frame, height, width, -1)
                    freqs_width = torch.cat([freqs_neg[2][-(width - width // 2) :], freqs_pos[2][: width // 2]], dim=0)
                    freqs_width = freqs_width.view(1, 1, width, -1).expand(frame, height, width, -1)

                else:"""),
            at("transformer.pos_embed") + DIT_OUT, ("rotary.positions", "rotary.offset"), "first_block"),
    Mistake("rows_and_columns", "blind_b",
            change(DIT, "freqs = torch.cat([freqs_frame, freqs_height, freqs_width], dim=-1).reshape(seq_lens, -1)\n                self.rope_cache[rope_key] = freqs.clone().contiguous()\n            vid_freqs.append(self.rope_cache[rope_key])\n\n            if self.scale_rope:\n                max_vid_index = max(height // 2, width // 2, max_vid_index)\n            else:\n                max_vid_index = max(height, width, max_vid_index)\n\n        max_len = max(txt_seq_lens)\n        txt_freqs = self.pos_freqs[max_vid_index : max_vid_index + max_len, ...]\n        vid_freqs = torch.cat(vid_freqs, dim=0)\n\n        return vid_freqs, txt_freqs\n\n\n    def forward_sampling",
                   "freqs = torch.cat([freqs_frame, freqs_width, freqs_height], dim=-1).reshape(seq_lens, -1)\n                self.rope_cache[rope_key] = freqs.clone().contiguous()\n            vid_freqs.append(self.rope_cache[rope_key])\n\n            if self.scale_rope:\n                max_vid_index = max(height // 2, width // 2, max_vid_index)\n            else:\n                max_vid_index = max(height, width, max_vid_index)\n\n        max_len = max(txt_seq_lens)\n        txt_freqs = self.pos_freqs[max_vid_index : max_vid_index + max_len, ...]\n        vid_freqs = torch.cat(vid_freqs, dim=0)\n\n        return vid_freqs, txt_freqs\n\n\n    def forward_sampling"),
            at("transformer.pos_embed") + DIT_OUT, ("rotary.axes_exchanged",), "first_block"),
    Mistake("attention_scale", "blind_b", change(DIT, "scaled_dot_product_attention(q, k, v, attn_mask=attention_mask)", "scaled_dot_product_attention(q, k, v, attn_mask=attention_mask, scale=1.0 / q.shape[-1])"),
            DIT_OUT, ("attention.scale",), "first_block"),
    Mistake("text_norm_missing", "blind_b", change(PIPE, "        text = dit.txt_in(dit.txt_norm(prompt_emb))\n", "        text = dit.txt_in(prompt_emb)\n"),
            at("transformer.txt_norm", "transformer.txt_in"), ("norm.missing",), "first_block"),
    Mistake("shift_missing", "blind_b", change(DIT, "return x * (1 + scale_result) + shift_result, gate_result", "return x * (1 + scale_result), gate_result"),
            INTO_DIT, ("modulate.shift_missing",), "first_block"),
    Mistake("text_residual_missing", "blind_b", change(DIT, "text = text + txt_gate * txt_attn_out", "text = txt_gate * txt_attn_out"), at(f"{B}.txt_norm2"), ("residual.missing",), "last_block"),
    Mistake("patch_order", "blind_b", change(PIPE, "image = rearrange(latents, \"(B N) C (H P) (W Q) -> B (N H W) (C P Q)\"", "image = rearrange(latents, \"(B N) C (H P) (W Q) -> B (N H W) (P Q C)\""),
            at("transformer.img_in") + ("input:transformer.hidden_states", "checkpoint:initial_latents_packed"), ("layout.packing", "layout.axes"), "first_block"),
    Mistake("layer_before_last", "blind_b", change(PIPE, "hidden_states = pipe.text_encoder(input_ids=model_inputs.input_ids, attention_mask=model_inputs.attention_mask, output_hidden_states=True,)[-1]", "hidden_states = pipe.text_encoder(input_ids=model_inputs.input_ids, attention_mask=model_inputs.attention_mask, output_hidden_states=True,)[-2]"),
            ("checkpoint:prompt_embeds", "input:transformer.encoder_hidden_states") + at("transformer.txt_norm"), ("capture.other_stage", "norm.missing", "stage.replaced"), "text"),
    Mistake("symmetric_time_padding", "blind_b", change(VAE, "2 * self.padding[0], 0)", "self.padding[0], self.padding[0])"), at(f"{V}.conv_in"), ("convolution.temporal_tap", "convolution.padding"), "picture"),
    Mistake("norm_scale_missing", "blind_b", change(VAE, "dim=(1 if self.channel_first else -1)) * self.scale * self.gamma", "dim=(1 if self.channel_first else -1)) * self.gamma"),
            at(f"{V}.mid_block.resnets.0.norm1"), ("norm.factor",), "picture"),
    Mistake("no_terminal_stretch", "blind_b", change(FLOW, "            scale_factor = one_minus_z[-1] / (1 - shift_terminal)\n            sigmas = 1 - (one_minus_z / scale_factor)\n        else:\n            sigmas = torch.tensor(sigmas)\n        # Timesteps\n        timesteps = sigmas * num_train_timesteps\n        return sigmas, timesteps\n    \n    @staticmethod\n    def set_timesteps_lingbot",
            "        else:\n            sigmas = torch.tensor(sigmas)\n        # Timesteps\n        timesteps = sigmas * num_train_timesteps\n        return sigmas, timesteps\n    \n    @staticmethod\n    def set_timesteps_lingbot"),
            TIME + GUIDED, ("scheduler.sigmas", "timestep.function", "timestep.scale"), "first_block"),
]  # fmt: skip
