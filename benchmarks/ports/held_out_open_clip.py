"""Mistakes in OpenCLIP 3.3 against transformers: written before any comparison of this pair, and scored once."""

from __future__ import annotations

from mistakes import Mistake, at, change

TOWERS, MODEL, LOAD = "transformer.py", "model.py", "factory.py"
V, T = "CLIPModel.vision_model", "CLIPModel.text_model"
SEEN, READ = f"{V}.encoder.layers.0", f"{T}.encoder.layers.0"
PATCHES = (f"output:{V}.embeddings",) + at(f"{V}.pre_layrnorm")
WORDS = (f"output:{T}.embeddings", f"input:{T}.encoder", f"input:{READ}") + at(f"{READ}.layer_norm1")
ATTENDED = at(f"{SEEN}.self_attn.out_proj") + (f"output:{SEEN}.self_attn", f"output:{SEEN}.self_attn.0")

MISTAKES = [
    Mistake("text_gelu_exact", "blind_b", change(MODEL, "    else:\n        act_layer = QuickGELU if quick_gelu else nn.GELU\n", "    else:\n        act_layer = nn.GELU\n"),
            at(f"{READ}.mlp.activation_fn", f"{READ}.mlp.fc2"), ("activation.kind",), "text_first"),
    Mistake("columns_first", "blind_b",
            change(TOWERS, "x = x.reshape(x.shape[0], x.shape[1], -1)  # shape = [*, width, grid ** 2]\n        x = x.permute(0, 2, 1)  # shape = [*, grid ** 2, width]\n\n        # class",
                   "x = x.permute(0, 3, 2, 1).reshape(x.shape[0], -1, x.shape[1])\n\n        # class"),
            PATCHES, ("layout.axes", "layout.permuted", "layout.packing"), "picture_first"),
    Mistake("text_positions_missing", "blind_b",
            change(MODEL, "        x = x + self.positional_embedding.to(cast_dtype)\n        x = self.transformer(x, attn_mask=self.attn_mask)", "        x = self.transformer(x, attn_mask=self.attn_mask)"),
            WORDS, ("residual.branch_missing", "residual.missing", "stage.replaced"), "text_first"),
    Mistake("last_token_pooled", "blind_b", change(TOWERS, "pooled = x[torch.arange(x.shape[0], device=x.device), text.argmax(dim=-1)]", "pooled = x[:, -1]"),
            at("CLIPModel.text_projection") + (f"output:{T}.pooler_output", "output:CLIPModel.text_model_output.pooler_output", "output:CLIPModel.text_embeds"),
            ("stage.replaced", "layout.permuted", "layout.repeated", "layout.shifted"), "logits"),
    Mistake("no_mask", "blind_b", change(MODEL, "x = self.transformer(x, attn_mask=self.attn_mask)", "x = self.transformer(x)"),
            at(f"{READ}.self_attn.out_proj") + (f"output:{READ}.self_attn", f"output:{READ}.self_attn.0"), ("attention.mask_missing",), "text_first"),
    Mistake("key_query_value", "blind_b", change(TOWERS, "q, k, v = F.linear(x, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=-1)", "k, q, v = F.linear(x, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=-1)"),
            at(f"{SEEN}.self_attn.q_proj", f"{SEEN}.self_attn.k_proj") + ATTENDED, ("attention.qkv_exchanged", "linear.other_weight"), "picture_first"),
    Mistake("first_norm_missing", "blind_b", change(TOWERS, "        # apply norm before transformer\n        x = self.ln_pre(x)\n", ""),
            at(f"{V}.pre_layrnorm", f"{SEEN}.layer_norm1") + (f"input:{V}.encoder", f"input:{SEEN}"), ("norm.missing",), "picture_first"),
    Mistake("norms_exchanged", "blind_b",
            change(LOAD, "    state_dict = convert_state_dict(model, state_dict)\n", """    state_dict = convert_state_dict(model, state_dict)
    state_dict = {k.replace("ln_1", "\\0").replace("ln_2", "ln_1").replace("\\0", "ln_2"): v for k, v in state_dict.items()}
"""),
            at(f"{SEEN}.layer_norm1"), ("norm.other_weight",), "picture_first"),
    Mistake("features_not_normalised", "blind_b", change(MODEL, "        features = self.visual(image)\n        return F.normalize(features, dim=-1) if normalize else features\n\n    def encode_text(self, text, normalize: bool = False):\n        cast_dtype", "        return self.visual(image)\n\n    def encode_text(self, text, normalize: bool = False):\n        cast_dtype"),
            ("output:CLIPModel.image_embeds", "output:CLIPModel.logits_per_image", "output:CLIPModel.logits_per_text"), ("norm.missing", "affine.row_scale"), "logits"),
    Mistake("blue_first", "blind_b", change(TOWERS, "        x = self.conv1(x)  # shape = [*, dim, grid, grid]\n", "        x = self.conv1(x.flip(1))  # shape = [*, dim, grid, grid]\n"),
            at(f"{V}.embeddings.patch_embedding"), ("layout.reversed", "layout.permuted", "convolution.input_order"), "picture_first"),
    Mistake("qkv_bias_missing", "blind_b", change(TOWERS, "F.linear(x, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=-1)", "F.linear(x, self.in_proj_weight).chunk(3, dim=-1)"),
            at(*(f"{SEEN}.self_attn.{one}_proj" for one in "qkv")) + ATTENDED, ("linear.bias_missing",), "picture_first"),
    Mistake("second_residual_of_input", "blind_b",
            change(TOWERS, "v_x=v_x, attn_mask=attn_mask))\n        x = x + self.ls_2(self.mlp(self.ln_2(x)))", "v_x=v_x, attn_mask=attn_mask))\n        x = q_x + self.ls_2(self.mlp(self.ln_2(x)))"),
            (f"output:{READ}", f"input:{T}.encoder.layers.1") + at(f"{T}.encoder.layers.1.layer_norm1"), ("residual.other_input",), "text_first"),
]  # fmt: skip
