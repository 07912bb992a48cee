"""Configurations at the edges, run by `parity.py --stress`: the same comparison as for random ones."""

_WORDS = "a red fox and a blue bird sit under the old tree near the river "

CASES: dict = {
    # one layer, one head, one token: the template ends after it
    "smallest": {
        "model": {"layers": 1, "heads": 1, "text_layers": 1, "text_heads": 1, "text_kv_heads": 1, "text_hidden": 16},
        "settings": {"prompt": "a", "negative_prompt": None, "width": 16, "height": 16, "steps": 2, "guidance": 1.0},
    },
    "empty prompts": {
        "model": {},
        "settings": {"prompt": "", "negative_prompt": "", "width": 32, "height": 32, "steps": 2, "guidance": 4.0},
    },
    "1024 tokens": {
        "model": {"layers": 2},
        "settings": {
            "prompt": _WORDS * 120,
            "negative_prompt": " ",
            "width": 48,
            "height": 32,
            "steps": 2,
            "guidance": 4.0,
            "max_prompt_tokens": 1024,
        },
    },
    "cut at 512 tokens": {
        "model": {"layers": 2},
        "settings": {
            "prompt": _WORDS * 120,
            "negative_prompt": " ",
            "width": 32,
            "height": 48,
            "steps": 2,
            "guidance": 4.0,
        },
    },
    "wide": {
        "model": {"layers": 2},
        "settings": {
            "prompt": "a fox",
            "negative_prompt": " ",
            "width": 512,
            "height": 16,
            "steps": 2,
            "guidance": 4.0,
        },
    },
    "tall": {
        "model": {"layers": 2},
        "settings": {
            "prompt": "a fox",
            "negative_prompt": " ",
            "width": 16,
            "height": 512,
            "steps": 2,
            "guidance": 4.0,
        },
    },
    # 640 pixels a side, tiles of 256 every 192: four rows and four columns, the last ones narrow
    "tiles": {
        "model": {"layers": 1, "heads": 1},
        "settings": {
            "prompt": "a fox",
            "negative_prompt": None,
            "width": 640,
            "height": 640,
            "steps": 2,
            "guidance": 1.0,
            "vae_tiling": True,
        },
    },
    "lightning": {
        "model": {"scheduler": "lightning"},
        "settings": {
            "prompt": "a fox",
            "negative_prompt": None,
            "width": 64,
            "height": 48,
            "steps": 4,
            "guidance": 1.0,
        },
    },
    "many small shards": {
        "model": {"shard": 20_000, "text_keys": "new"},
        "settings": {"prompt": "a fox", "negative_prompt": " ", "width": 32, "height": 32, "steps": 2, "guidance": 4.0},
    },
}
