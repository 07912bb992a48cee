import mlx.core as mx
import mlx.nn as nn
from loading import fill, linears


class StreamProjection(nn.Module):
    def __init__(self, dims, head_dim):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(dims, dims) for _ in range(4))
        self.q_norm = nn.RMSNorm(head_dim, eps=1e-6)
        self.k_norm = nn.RMSNorm(head_dim, eps=1e-6)

    def __call__(self, x, num_heads):
        B, L, _ = x.shape
        q = self.q(x).reshape(B, L, num_heads, -1).transpose(0, 2, 1, 3)
        k = self.k(x).reshape(B, L, num_heads, -1).transpose(0, 2, 1, 3)
        v = self.v(x).reshape(B, L, num_heads, -1).transpose(0, 2, 1, 3)
        return self.q_norm(q), self.k_norm(k), v


class JointAttention(nn.Module):
    def __init__(self, dims=32, num_heads=4):
        super().__init__()
        self.num_heads = num_heads
        self.image = StreamProjection(dims, dims // num_heads)
        self.text = StreamProjection(dims, dims // num_heads)

    def __call__(self, image, text):
        B, L_text, D = text.shape
        qi, ki, vi = self.image(image, self.num_heads)
        qt, kt, vt = self.text(text, self.num_heads)
        q = mx.concatenate([qt, qi], axis=2)
        k = mx.concatenate([kt, ki], axis=2)
        v = mx.concatenate([vt, vi], axis=2)
        y = mx.fast.scaled_dot_product_attention(q, k, v, scale=(D // self.num_heads) ** -0.5)
        y = y.transpose(0, 2, 1, 3).reshape(B, -1, D)
        text_out = self.text.out(y[:, :L_text])
        image_out = self.image.out(y[:, L_text:])
        return mx.concatenate([text_out, image_out], axis=1)


def build(weights):
    names = {"image.q": "to_q", "image.k": "to_k", "image.v": "to_v", "image.out": "to_out"}
    names |= {"text.q": "add_q_proj", "text.k": "add_k_proj", "text.v": "add_v_proj", "text.out": "to_add_out"}
    names |= {"image.q_norm": "norm_q", "image.k_norm": "norm_k"}
    names |= {"text.q_norm": "norm_added_q", "text.k_norm": "norm_added_k"}
    return fill(JointAttention(), linears(weights, names))
