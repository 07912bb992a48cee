"""Training steps captured as CUDA graphs, and how long a step takes."""

import time

import torch


def capture_steps(keys, free_step, whole_step, optimizer, say):
    """One graph for each key, all in one memory pool; empty, with the reason said, where the device refuses."""
    graphs = {}
    try:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for key in keys:
                for _ in range(2):
                    free_step(key)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        pool = None
        for key in keys:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                whole_step(key)
            pool = graph.pool()
            graphs[key] = graph
            optimizer.zero_grad(set_to_none=True)
    except Exception as error:
        say("no CUDA graphs:", repr(error)[:500])
        graphs = {}
        optimizer.zero_grad(set_to_none=True)
    return graphs


def milliseconds(work, count):
    """The mean over so many calls, with the device's queue drained before and after."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.time()
    for _ in range(count):
        work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return 1000 * (time.time() - start) / count
