"""What 8-bit activations would cost in accuracy: a product with 4-bit weights, 3072 wide, against the same in bf16.

    ./dev bench int8_activations

Int8 dot products need both sides in 8 bits. MLX keeps activations in bf16 and widens the weights, and so do we.
"""

import ml_dtypes
import numpy as np

WIDTH, OUTPUTS, TOKENS, GROUP = 3072, 512, 64, 64
BF16 = ml_dtypes.bfloat16


def exact_weight(rng):
    """As 4 bits mean it: for each group of a row a lowest value and a step."""
    groups = 0.02 * rng.standard_normal((OUTPUTS, WIDTH // GROUP, GROUP))
    low, high = groups.min(-1, keepdims=True), groups.max(-1, keepdims=True)
    step = (high - low) / 15
    return (np.rint((groups - low) / step) * step + low).reshape(OUTPUTS, WIDTH)


def in_8_bits(x, group):
    """One step for each `group` values of a token, as large as the largest of them needs."""
    parts = x.reshape(TOKENS, -1, group)
    step = np.abs(parts).max(-1, keepdims=True) / 127
    return (np.rint(parts / step) * step).reshape(x.shape)


def main():
    rng = np.random.default_rng(0)
    weight = exact_weight(rng)
    plain = rng.standard_normal((TOKENS, WIDTH))
    peaks = plain.copy()
    peaks[:, rng.choice(WIDTH, 6, replace=False)] *= 50
    print("relative error of the product    bf16      int8, one step a token   int8, one step for 64 values")
    for name, given in (("normal activations", plain), ("six channels 50 times larger", peaks)):
        x = given.astype(BF16).astype(np.float64)
        exact = x @ weight.T

        def error(of, exact=exact):
            return np.linalg.norm(of - exact) / np.linalg.norm(exact)

        in_bf16 = error(x @ weight.astype(BF16).astype(np.float64).T)
        rows = [error(in_8_bits(x, group) @ weight.T) for group in (WIDTH, GROUP)]
        print(
            f"{name:<32} {in_bf16:.2e}  {rows[0]:.2e} ({rows[0] / in_bf16:.0f}x)           {rows[1]:.2e} ({rows[1] / in_bf16:.0f}x)"
        )


if __name__ == "__main__":
    main()
