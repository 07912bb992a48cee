"""A twin session over REST and over MCP with its official client: to the divergence, a look at both sides, and the reference's tensor in its place."""

import asyncio
import pathlib
import sys

import pytest
from debug_service import PROGRAM
from test_twin import REFERENCE, WRONG

pytestmark = pytest.mark.skipif(not pathlib.Path(PROGRAM).exists(), reason=f"{PROGRAM} is not built")


async def over_rest(home, steps):
    home.ensure()

    async def call(operation, **arguments):
        ask = home.get if operation in ("vars", "wait", "status") else home.call  # what changes nothing is GET
        return ask(f"debug/twin/{operation}", **arguments)

    await steps(call)


async def over_mcp(home, steps):
    from test_mcp import connect

    async with connect(home, "stdio") as client:

        async def call(operation, **arguments):
            answer = await client.call_tool(f"debug_twin_{operation}", arguments)
            assert not answer.is_error, answer
            return answer.structured_content

        await steps(call)


@pytest.mark.parametrize("face", [over_rest, over_mcp])
def test_a_port_is_followed_to_where_it_parts_and_mended(home, face):
    if face is over_mcp:
        pytest.importorskip("mcp")
    scripts = {
        "reference": str(home.write("reference.py", REFERENCE)),
        "candidate": str(home.write("candidate.py", WRONG)),
    }

    async def steps(call):
        async def together(operation, **arguments):
            answer = await call(operation, **arguments)
            while any(answer[side]["state"] == "running" for side in scripts):
                answer = await call("wait")
            return answer

        assert (await together("start", **scripts, python=sys.executable, cwd=str(home.folder)))["stopped"]
        found = await together("continue", until_divergence=True)
        for side, name in (("reference", "Net"), ("candidate", "Port")):
            assert f"output of {name}.blocks.2.lin, call 0" in found[side]["stop"]["description"]
        rows = {row["name"]: row for row in (await call("vars"))["variables"]}
        assert (rows["scale"]["reference"]["text"], rows["scale"]["candidate"]["text"]) == ("1.0", "1.05")
        looked = await call("eval", expression="self.norm(x) * scale")
        assert looked["difference"]["relative"] == pytest.approx(0.05, rel=1e-3)
        again = await together("substitute")
        assert all("blocks.2.lin, call 1" in again[side]["stop"]["description"] for side in scripts), (
            "the first call is mended"
        )
        done = await together("substitute", name="*.blocks.2.lin")
        assert done["candidate"]["state"] == "ended", done["candidate"]["stop"]["description"]

    asyncio.run(asyncio.wait_for(face(home, steps), 200))
