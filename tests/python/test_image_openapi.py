"""The picture routes of /v1/openapi.json: no generated request makes the server fall over, and answers are as promised."""

import os
import pathlib
import subprocess
import sys

import pytest
from image_service import ImageServer
from program import PROGRAM

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    made = ImageServer(tmp_path_factory.mktemp("schema"))
    yield made
    made.close()


def test_every_route_is_described(server):
    paths = server.json("GET", "/v1/openapi.json")["paths"]
    for path, methods in {
        "/v1/images/generations": {"post"},
        "/v1/images/edits": {"post"},
        "/v1/images/{id}/content": {"get"},
        "/v1/models": {"get"},
        "/v1/models/{id}": {"get"},
        "/v1/jobs": {"get", "post"},
        "/v1/jobs/{id}": {"get"},
        "/v1/jobs/{id}/cancel": {"post"},
        "/v1/events": {"get"},
        "/metrics": {"get"},
    }.items():
        assert set(paths[path]) == methods, path


def test_no_generated_request_makes_it_fall_over(server, tmp_path):
    pytest.importorskip("schemathesis")
    command = [
        str(pathlib.Path(sys.executable).parent / "schemathesis"),
        "run",
        f"{server.url}/v1/openapi.json",
        "-H",
        f"Authorization: Bearer {server.token}",
        "--checks",
        "not_a_server_error,content_type_conformance,response_schema_conformance",
        "--phases",
        "examples,coverage,fuzzing",
        "--max-examples",
        "5",
        "--workers",
        "1",
        "--seed",
        "1",
        "--include-path-regex",
        "^(/v1/(images|jobs|models)|/metrics)",  # events have no end
        "--suppress-health-check",
        "all",
        "--request-timeout",
        "60",
        "--no-color",
    ]
    here = pathlib.Path(__file__).parent
    environment = {
        **os.environ,
        "PYTHONWARNINGS": "ignore",
        "PYTHONPATH": str(here),
        "SCHEMATHESIS_HOOKS": "image_schema_hooks",
    }
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert server.request("GET", "/v1/health")[0] == 200
