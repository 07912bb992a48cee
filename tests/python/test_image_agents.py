"""Agents ask for pictures and see them, over both transports of MCP."""

import asyncio
import base64
import pathlib
import time

import pytest
from debug_service import PROGRAM
from image_service import opened
from test_mcp import connect

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")
pytest.importorskip("mcp")


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_an_agent_asks_for_a_picture_and_sees_it(home, transport):
    async def talk():
        async with connect(home, transport) as client:
            models = (await client.call_tool("models_list", {})).structured_content
            assert [model["id"] for model in models["data"]] == ["tiny", "tiny-edit"]
            asked = {"prompt": "a red circle", "seed": 7, "steps": 3, "max_wait": 40, "show": True}
            result = await client.call_tool("jobs_create", asked)
            assert result.structured_content["status"] == "completed" and "shown" not in result.structured_content
            text, picture = result.content
            assert text.type == "text" and picture.type == "image" and picture.mime_type == "image/png"
            assert opened(base64.b64decode(picture.data)).info["seed"] == "7"
            again = await client.call_tool("jobs_show", {"id": result.structured_content["id"], "show": True})
            assert again.content[1].data == picture.data
            wrong = await client.call_tool("jobs_create", {"prompt": "x", "size": "17x17"})
            assert wrong.is_error and "divisible by 16" in wrong.content[0].text

    asyncio.run(asyncio.wait_for(talk(), 120))


def test_an_agent_watches_a_job_and_cancels_it(home):
    async def talk():
        async with connect(home, "http") as client:
            job = (
                await client.call_tool("jobs_create", {"prompt": "a star", "steps": 1000, "size": "256x256"})
            ).structured_content
            until = time.monotonic() + 60
            state = job
            while state["status"] == "queued" and time.monotonic() < until:
                state = (await client.call_tool("jobs_show", {"id": job["id"], "max_wait": 0.1})).structured_content
            assert state["status"] == "running" and state["eta_s"] >= 0
            ended = (await client.call_tool("jobs_cancel", {"id": job["id"]})).structured_content
            assert ended["status"] == "cancelled"
            listed = (await client.call_tool("jobs_list", {"status": "cancelled"})).structured_content
            assert [one["id"] for one in listed["data"]] == [job["id"]]

    asyncio.run(asyncio.wait_for(talk(), 120))
