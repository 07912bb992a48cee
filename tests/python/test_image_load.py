"""The load test in short; `./dev bench image_server load` is the whole: 200 clients for two minutes."""

import pathlib

import pytest
from image_load import Load
from image_service import ImageServer
from program import PROGRAM

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")


def test_many_clients_lose_nothing_and_mix_nothing_up(tmp_path):
    server = ImageServer(tmp_path)
    try:
        done = Load(server, 40, 6).run()
        assert not done.wrong, done.wrong[:5]
        assert done.counts["waited"] + done.counts["streamed"] + done.counts["job"] > 20, done.counts
        assert server.request("GET", "/v1/health")[0] == 200
    finally:
        server.close()
