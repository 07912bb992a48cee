import mlx.core as mx
import mlx.nn as nn
from loading import fill, linears


def l2_normed(x):
    x = x.astype(mx.float32)
    return x / mx.maximum(mx.linalg.norm(x, axis=-1, keepdims=True), 1e-12)


def compute_decay(A_log, a, dt_bias):
    width = nn.softplus(a.astype(mx.float32) + dt_bias.astype(mx.float32))
    return mx.exp(-mx.exp(A_log.astype(mx.float32)) * width)


class GatedDelta(nn.Module):
    def __init__(self, dims=24, num_heads=2, key_dims=6, value_dims=8):
        super().__init__()
        self.num_heads = num_heads
        self.q = nn.Linear(dims, num_heads * key_dims, bias=False)
        self.k = nn.Linear(dims, num_heads * key_dims, bias=False)
        self.v = nn.Linear(dims, num_heads * value_dims, bias=False)
        self.z = nn.Linear(dims, num_heads * value_dims, bias=False)
        self.a = nn.Linear(dims, num_heads, bias=False)
        self.b = nn.Linear(dims, num_heads, bias=False)
        self.A_log = mx.zeros((num_heads,))
        self.dt_bias = mx.zeros((num_heads,))
        self.norm = nn.RMSNorm(value_dims, eps=1e-6)
        self.out = nn.Linear(num_heads * value_dims, dims, bias=False)

    def scan(self, q, k, v, decay, beta):
        B, L, H, Dk = k.shape
        S = mx.zeros((B * H, v.shape[-1], Dk))
        ys = []
        for t in range(L):
            qt, kt = q[:, t].reshape(B * H, Dk, 1), k[:, t].reshape(B * H, Dk, 1)
            vt = v[:, t].reshape(B * H, -1, 1)
            S = S * decay[:, t].reshape(B * H, 1, 1)
            error = vt - S @ kt
            S = S + (error * beta[:, t].reshape(B * H, 1, 1)) @ kt.swapaxes(1, 2)
            ys.append((S @ qt).reshape(B, H, -1))
        return mx.stack(ys, axis=1)

    def __call__(self, x):
        B, L, _ = x.shape
        q = l2_normed(self.q(x).reshape(B, L, self.num_heads, -1))
        k = l2_normed(self.k(x).reshape(B, L, self.num_heads, -1))
        v = self.v(x).reshape(B, L, self.num_heads, -1).astype(mx.float32)
        decay = compute_decay(self.A_log, self.a(x), self.dt_bias)
        beta = mx.sigmoid(self.b(x)).astype(mx.float32)
        y = self.scan(q, k, v, decay, beta).astype(x.dtype)
        gate = nn.silu(self.z(x)).reshape(B, L, self.num_heads, -1)
        y = self.norm(y) * gate
        return self.out(y.reshape(B, L, -1))


def build(weights):
    arrays = linears(weights, {name: f"{name}_proj" for name in ("q", "k", "v", "z", "a", "b", "out")})
    arrays |= {"A_log": weights["A_log"], "dt_bias": weights["dt_bias"], "norm.weight": weights["norm.weight"]}
    return fill(GatedDelta(), arrays)
