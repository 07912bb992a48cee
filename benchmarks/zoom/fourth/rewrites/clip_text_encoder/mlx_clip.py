import mlx.core as mx
import mlx.nn as nn
from loading import fill, linears


def quick_gelu(x):
    return x * mx.sigmoid(1.702 * x)


class CLIPLayer(nn.Module):
    def __init__(self, dims, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.ln1, self.ln2 = nn.LayerNorm(dims), nn.LayerNorm(dims)
        self.query, self.key, self.value, self.out = (nn.Linear(dims, dims) for _ in range(4))
        self.linear1, self.linear2 = nn.Linear(dims, 2 * dims), nn.Linear(2 * dims, dims)

    def __call__(self, x, mask):
        B, L, D = x.shape
        y = self.ln1(x)
        q, k, v = (w(y).reshape(B, L, self.num_heads, -1).swapaxes(1, 2) for w in (self.query, self.key, self.value))
        y = mx.fast.scaled_dot_product_attention(q, k, v, scale=(D // self.num_heads) ** -0.5, mask=mask)
        x = x + self.out(y.swapaxes(1, 2).reshape(B, L, D))
        y = self.linear1(self.ln2(x))
        y = quick_gelu(y)
        return x + self.linear2(y)


class CLIPText(nn.Module):
    def __init__(self, dims=24, num_heads=3):
        super().__init__()
        self.tokens, self.places = nn.Embedding(50, dims), nn.Embedding(9, dims)
        self.layers = [CLIPLayer(dims, num_heads) for _ in range(2)]
        self.ln = nn.LayerNorm(dims)
        self.project = nn.Linear(dims, 16, bias=False)

    def __call__(self, ids):
        B, L = ids.shape
        x = self.tokens(ids) + self.places.weight[:L]
        mask = nn.MultiHeadAttention.create_additive_causal_mask(L, x.dtype)
        for layer in self.layers:
            x = layer(x, mask)
        end = mx.argmax(ids, axis=1)
        x = mx.take_along_axis(x, end[:, None, None], axis=1).squeeze(1)
        return self.project(self.ln(x))


def build(weights):
    names = {"tokens": "token_embedding", "places": "position_embedding"}
    names |= {"ln": "final_layer_norm", "project": "text_projection"}
    inner = {"ln1": "layer_norm1", "ln2": "layer_norm2", "query": "q_proj", "key": "k_proj"}
    inner |= {"value": "v_proj", "out": "out_proj", "linear1": "fc1", "linear2": "fc2"}
    for n in range(2):
        names |= {f"layers.{n}.{new}": f"layers.{n}.{old}" for new, old in inner.items()}
    return fill(CLIPText(), linears(weights, names))
