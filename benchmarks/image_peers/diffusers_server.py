"""QwenImagePipeline behind FastAPI: the few lines that tutorials show. Arguments: port, model, threads."""

import base64
import io
import sys
import time

import torch
from diffusers import QwenImagePipeline

torch.set_num_threads(int(sys.argv[3]))
PIPELINE = QwenImagePipeline.from_pretrained(sys.argv[2], dtype=torch.float32)
PIPELINE.set_progress_bar_config(disable=True)


def draw(prompt, seed):
    began = time.perf_counter()
    image = PIPELINE(
        prompt,
        negative_prompt=" ",
        true_cfg_scale=3.5,
        width=128,
        height=128,
        num_inference_steps=20,
        generator=torch.Generator().manual_seed(seed),
    ).images[0]
    out = io.BytesIO()
    image.save(out, "PNG")
    return {"data": [{"b64_json": base64.b64encode(out.getvalue()).decode()}], "secs": time.perf_counter() - began}


def make_app():
    try:
        from fastapi import FastAPI
        from pydantic import BaseModel
    except ImportError:
        from starlette.applications import Starlette
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import JSONResponse
        from starlette.routing import Route

        async def starlette_answer(request):
            body = await request.json()
            return JSONResponse(await run_in_threadpool(draw, body["prompt"], body["seed"]))

        async def starlette_name(_):
            return JSONResponse("diffusers behind Starlette")

        return Starlette(
            routes=[Route("/v1/images/generations", starlette_answer, methods=["POST"]), Route("/name", starlette_name)]
        )

    class Body(BaseModel):
        prompt: str
        seed: int = 0

    app = FastAPI()

    @app.post("/v1/images/generations")
    def answer(body: Body):
        return draw(body.prompt, body.seed)

    @app.get("/name")
    def name():
        return "diffusers behind FastAPI"

    return app


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(make_app(), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
