import torch
import torch.nn as nn


class EncoderLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.layer_norm1, self.layer_norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.q_proj, self.k_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.v_proj, self.out_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.fc1, self.fc2 = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def attention(self, x, mask):
        batch, length, dim = x.shape
        q = self.q_proj(x).view(batch, length, self.heads, -1).transpose(1, 2)
        k = self.k_proj(x).view(batch, length, self.heads, -1).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, self.heads, -1).transpose(1, 2)
        weights = q @ k.transpose(2, 3) * (dim // self.heads) ** -0.5
        weights = weights + mask
        weights = weights.softmax(dim=-1)
        return self.out_proj((weights @ v).transpose(1, 2).reshape(batch, length, dim))

    def forward(self, x, mask):
        x = x + self.attention(self.layer_norm1(x), mask)
        h = self.fc1(self.layer_norm2(x))
        h = h * torch.sigmoid(1.702 * h)
        return x + self.fc2(h)


class TextEncoder(nn.Module):
    """Causal text encoder; the token that ends the text, the highest of all, gives the pooled result."""

    def __init__(self, vocabulary=50, length=9, dim=24, heads=3, layers=2, projection=16):
        super().__init__()
        self.token_embedding = nn.Embedding(vocabulary, dim)
        self.position_embedding = nn.Embedding(length, dim)
        self.layers = nn.ModuleList(EncoderLayer(dim, heads) for _ in range(layers))
        self.final_layer_norm = nn.LayerNorm(dim)
        self.text_projection = nn.Linear(dim, projection, bias=False)

    def forward(self, tokens):
        length = tokens.shape[1]
        x = self.token_embedding(tokens)
        x = x + self.position_embedding(torch.arange(length))
        mask = torch.full((length, length), -1e9).triu(1).to(x.dtype)
        for layer in self.layers:
            x = layer(x, mask)
        x = self.final_layer_norm(x)
        last = tokens.argmax(dim=-1)
        pooled = x[torch.arange(x.shape[0]), last]
        return self.text_projection(pooled)


def build():
    return TextEncoder()


def inputs():
    tokens = torch.randint(1, 48, (3, 9))
    tokens[:, 0] = 48
    for row, end in enumerate((4, 7, 6)):
        tokens[row, end] = 49
        tokens[row, end + 1 :] = 0
    return (tokens,)
