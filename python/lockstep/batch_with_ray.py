"""The jobs of `lockstep batch --engine ray`: a job a line on stdin, its result a line on stdout, in the order in which they end.

Ray does the rest: it places the jobs, gives a lost one to another node, and hands back what it has. Each of its worker processes
keeps one `lockstep batch --worker` with the model loaded. The output folder must be the same on all nodes.
"""

import argparse
import json
import os
import subprocess
import sys

_workers = {}  # of this process, by the GPUs that it was given


class Retriable(Exception):
    """Another try may succeed; Ray makes it."""


def _worker(command):
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
    worker = _workers.get(gpus)
    if worker is None or worker.poll() is not None:
        worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        _workers[gpus] = worker
    return worker


def do_job(command, line):
    worker = _worker(command)
    try:
        worker.stdin.write(line + "\n")
        worker.stdin.flush()
    except BrokenPipeError:
        pass
    answer = worker.stdout.readline()
    if not answer:
        raise Retriable(f"[batch] the worker was lost: exit status {worker.wait()}")
    result = json.loads(answer)
    if result.get("retriable"):
        raise Retriable(result["error"]["message"])
    return result


def failed(line, error):
    job = json.loads(line)
    message = str(error.__cause__ or error).strip().splitlines()[-1]
    return {"id": job["id"], "kind": job["kind"], "status": "failed", "error": {"code": "internal", "message": message}}


def own_output():
    """Ray tells of nodes that died on stdout, where only results may be: it gets stderr in its place."""
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return results


def run(ray, options, results):
    command = [options.program, "--home", options.home, "batch", "--worker", "--output", options.output]
    command += ["--device", options.device, "--threads", str(options.threads or max(1, int(options.num_cpus)))]
    # Nothing of this package is imported by name on the nodes: the functions travel with the job.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    remote = ray.remote(
        num_cpus=options.num_cpus, num_gpus=options.num_gpus, max_retries=options.retries, retry_exceptions=[Retriable]
    )(do_job)
    waiting = {remote.remote(command, line): line for line in (text.strip() for text in sys.stdin) if line}
    while waiting:
        ended, _ = ray.wait(list(waiting), num_returns=1)
        for reference in ended:
            line = waiting.pop(reference)
            try:
                result = ray.get(reference)
            except (ray.exceptions.RayTaskError, ray.exceptions.RayError) as error:
                result = failed(line, error)
            print(json.dumps(result), file=results, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("program", "output", "home", "device", "address"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--retries", type=int, default=2)
    parser.add_argument("--num-gpus", type=float, default=0)
    parser.add_argument("--num-cpus", type=float, default=1)
    options = parser.parse_args()
    try:
        import ray
    except ImportError:
        sys.exit("[batch] this Python has no Ray; try pip install ray, or --python with one that has it")
    # "local": a cluster of this machine alone, for as long as this batch takes.
    results = own_output()
    ray.init(address=options.address, log_to_driver=False)
    run(ray, options, results)


if __name__ == "__main__":
    main()
