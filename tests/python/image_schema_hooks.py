"""Generated requests for pictures are made quick; what is wrong with them stays."""

import schemathesis


@schemathesis.hook
def map_body(context, body):
    if not isinstance(body, dict):
        return body
    quick = dict(body)
    for name, most in (("steps", 3), ("num_inference_steps", 3), ("n", 1), ("max_wait", 0), ("layers", 1)):
        value = quick.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > most:
            quick[name] = most
    if "steps" not in quick and "num_inference_steps" not in quick:
        quick["steps"] = 2
    if isinstance(quick.get("size"), str) and "x" in quick["size"]:
        quick["size"] = "64x64" if quick["size"].replace("x", "").isdigit() else quick["size"]
    return quick
