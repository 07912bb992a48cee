"""The jobs of `lockstep batch --engine ray`: a job a line on stdin, its result a line on stdout, in the order in which they end.

Ray does the rest: it places the jobs, gives a lost one to another node, and hands back what it has. Each of its worker processes
keeps one `lockstep batch --worker` with the model loaded. The output folder must be the same on all nodes.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys

MOST_TOGETHER = 4  # jobs of one task

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
    (result,) = do_jobs(command, [line])
    if isinstance(result, str):
        raise Retriable(result)
    return result


def do_jobs(command, lines):
    """Several jobs in one task, a result each. A text says why a job is to be tried again, by itself."""
    worker = _worker(command)
    try:
        worker.stdin.write("".join(line + "\n" for line in lines))  # at once: it does not wait for us between two
        worker.stdin.flush()
    except BrokenPipeError:
        pass
    results = []
    for _ in lines:
        answer = worker.stdout.readline()
        if not answer:
            lost = f"[batch] the worker was lost: exit status {worker.wait()}"
            return results + [lost] * (len(lines) - len(results))
        result = json.loads(answer)
        results.append(result["error"]["message"] if result.get("retriable") else result)
    return results


def together(lines, slots):
    """What Ray takes for a task is some milliseconds, which several short jobs share. The last ones go one by one, so that all
    workers end at the same time; and so do few."""
    most = max(1, min(MOST_TOGETHER, len(lines) // (8 * slots)))
    single = 0 if most == 1 else min(len(lines), 2 * most * slots)
    shared, rest = lines[: len(lines) - single], lines[len(lines) - single :]
    return [shared[at : at + most] for at in range(0, len(shared), most)] + [[line] for line in rest]


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
    needs = {"num_cpus": options.num_cpus, "num_gpus": options.num_gpus, "max_retries": options.retries}
    alone = ray.remote(**needs, retry_exceptions=[Retriable])(do_job)
    several = ray.remote(**needs)(do_jobs)
    lines = [line for line in (text.strip() for text in sys.stdin) if line]
    slots = max(1, int(ray.cluster_resources().get("CPU", 1) / max(options.num_cpus, 1e-3)))
    if options.num_gpus > 0:
        slots = max(1, int(ray.cluster_resources().get("GPU", 1) / options.num_gpus))
    waiting = {
        alone.remote(command, group[0]) if len(group) == 1 else several.remote(command, group): group
        for group in together(lines, slots)
    }
    while waiting:
        # The first ones are those that run: to ask for all at every end would take longer the more there are.
        ended, _ = ray.wait(list(itertools.islice(waiting, 4 * slots + 16)), num_returns=1)
        for reference in ended:
            group = waiting.pop(reference)
            try:
                done = ray.get(reference)
            except (ray.exceptions.RayTaskError, ray.exceptions.RayError) as error:
                done = failed(group[0], error) if len(group) == 1 else [str(error)] * len(group)
            for line, result in zip(group, [done] if len(group) == 1 else done):
                if isinstance(result, str):
                    waiting[alone.remote(command, line)] = [line]
                else:
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
