import mlx.core as mx
import mlx.nn as nn
from loading import fill, linears


class RelativePositionBias(nn.Module):
    def __init__(self, reach, heads):
        super().__init__()
        self.reach = reach
        self.embeddings = nn.Embedding(2 * reach + 1, heads)

    def __call__(self, length):
        context_position = mx.arange(length)[:, None]
        memory_position = mx.arange(length)[None, :]
        relative_position = memory_position - context_position
        buckets = mx.clip(relative_position, -self.reach, self.reach) + self.reach
        return self.embeddings(buckets).transpose(2, 0, 1)


class MultiHeadAttention(nn.Module):
    def __init__(self, dims=24, heads=3, reach=4):
        super().__init__()
        self.heads = heads
        self.query_proj, self.key_proj, self.value_proj, self.out_proj = (nn.Linear(dims, dims, bias=False) for _ in range(4))
        self.position_bias = RelativePositionBias(reach, heads)

    def __call__(self, x):
        B, L, _ = x.shape
        queries = self.query_proj(x).reshape(B, L, self.heads, -1).transpose(0, 2, 1, 3)
        keys = self.key_proj(x).reshape(B, L, self.heads, -1).transpose(0, 2, 3, 1)
        values = self.value_proj(x).reshape(B, L, self.heads, -1).transpose(0, 2, 1, 3)
        scores = queries @ keys
        scores = scores + self.position_bias(L)
        scores = mx.softmax(scores.astype(mx.float32), axis=-1).astype(x.dtype)
        values_hat = (scores @ values).transpose(0, 2, 1, 3).reshape(B, L, -1)
        return self.out_proj(values_hat)


def build(weights):
    names = {"query_proj": "q", "key_proj": "k", "value_proj": "v", "out_proj": "o", "position_bias.embeddings": "relative"}
    return fill(MultiHeadAttention(), linears(weights, names))
