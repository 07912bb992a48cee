"""What is run with and without a debugger: programs.py NAME prints the processor seconds, of all threads, of the part that counts."""

import os
import sys
import time

SCALE = float(os.environ.get("LOCKSTEP_BENCH_SCALE", "1"))  # of the loops; less only shows that everything runs


def turns(full):
    return max(1000, int(full * SCALE))


def add(a, b):
    return a + b


def calls():
    """3 M calls."""
    total = 0
    began = time.process_time()
    for i in range(turns(3_000_000)):
        total = add(total, i)
    return time.process_time() - began


def lines():
    """10 M lines in one function."""
    total = 0
    began = time.process_time()
    for i in range(turns(3_000_000)):
        total += i
        if total < 0:
            total = 0  # COLD: never reached
    return time.process_time() - began


def one_line():
    """A loop of one line: what its function costs more shows most here."""
    total = 0
    if total < 0:
        total = 1  # COLD beside the loop
    began = time.process_time()
    for i in range(turns(10_000_000)):
        total += i
    return time.process_time() - began


def false_condition():
    """A line that is reached 1 M times; its breakpoint's condition is never true."""
    total = 0
    wanted = [1, 2]
    began = time.process_time()
    for i in range(turns(1_000_000)):
        total += 1  # CONDITION
    return (time.process_time() - began) + 0 * len(wanted)


def models():
    """Import, load and forwards of a small diffusers transformer. argv[2]: a folder where the model is kept between runs."""
    began = time.process_time()
    import diffusers  # noqa: F401
    import torch
    import transformers  # noqa: F401
    from diffusers import QwenImageTransformer2DModel

    imported = time.process_time() - began
    torch.set_num_threads(1)
    torch.manual_seed(0)
    folder = sys.argv[2]
    if not os.path.exists(os.path.join(folder, "config.json")):
        QwenImageTransformer2DModel(
            patch_size=2,
            in_channels=16,
            out_channels=4,
            num_layers=2,
            attention_head_dim=16,
            num_attention_heads=3,
            joint_attention_dim=16,
            axes_dims_rope=(8, 4, 4),
        ).save_pretrained(folder)
    began = time.process_time()
    for _ in range(10):
        model = QwenImageTransformer2DModel.from_pretrained(folder).eval()
    loaded = time.process_time() - began
    arguments = dict(
        hidden_states=torch.randn(1, 16, 16),
        encoder_hidden_states=torch.randn(1, 7, 16),
        encoder_hidden_states_mask=torch.ones(1, 7).long(),
        timestep=torch.tensor([0.5]),
        img_shapes=[[(1, 4, 4)]],
        return_dict=False,
    )
    with torch.no_grad():
        for _ in range(20):
            model(**arguments)
        began = time.process_time()
        for _ in range(150):
            model(**arguments)
    forwards = time.process_time() - began
    print(f"PARTS {imported:.6f} {loaded:.6f} {forwards:.6f}")
    return imported + loaded + forwards


def tensors():
    import torch

    torch.set_num_threads(1)
    frame_of_tensors([torch.randn(64, 64) for _ in range(30)], torch.randn(4_000_000))
    return 0.0


def frame_of_tensors(many, big):
    (
        a0,
        a1,
        a2,
        a3,
        a4,
        a5,
        a6,
        a7,
        a8,
        a9,
        b0,
        b1,
        b2,
        b3,
        b4,
        b5,
        b6,
        b7,
        b8,
        b9,
        c0,
        c1,
        c2,
        c3,
        c4,
        c5,
        c6,
        c7,
        c8,
        c9,
    ) = many
    many = None
    for i in range(100_000):
        x = i  # STOP
        y = x
    return a0, big, y


if __name__ == "__main__":
    print(f"SECONDS {globals()[sys.argv[1]]():.6f}")
