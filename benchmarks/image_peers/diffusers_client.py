import http.client
import json
import time


def wait_until_ready(process, port):
    """What it calls itself, once it answers."""
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/name")
            return json.loads(connection.getresponse().read())
        except OSError:
            time.sleep(0.2)
        finally:
            connection.close()
    raise SystemExit(f"the peer does not start: {process.stderr.read()[-2000:]}")


def asked(port, prompt):
    """Seconds of a request, and of the pipeline in it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    began = time.perf_counter()
    connection.request("POST", "/v1/images/generations", json.dumps({"prompt": prompt, "seed": 1}), {"Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    secs = time.perf_counter() - began
    connection.close()
    return secs, answer["secs"]
