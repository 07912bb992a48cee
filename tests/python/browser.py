"""A headless Chromium driven over a pipe: clicks, wheels and keys as a reader makes them. No package is needed."""

import base64
import json
import os
import shutil
import subprocess

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """One page. Commands go to the browser's file descriptor 3 and answers come from its 4, each ended by a zero byte."""

    def __init__(self, folder, width=1280, height=900):
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        # The browser wants 3 and 4; what lies there in this process must not be overwritten.
        command = (
            f'exec 3<&{to_read} 4>&{to_write}; exec "$0" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage'
            f" --remote-debugging-pipe --force-prefers-color-scheme=light --hide-scrollbars --window-size={width},{height}"
            f' --user-data-dir="$1" --no-first-run --disable-background-networking --disable-component-update about:blank'
        )
        self._log = open(folder / "browser.log", "wb")
        self._process = subprocess.Popen(
            ["bash", "-c", command, PROGRAM, str(folder / "profile")],
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        os.close(to_read), os.close(to_write)
        self._next, self._rest, self._session = 0, b"", None
        self.errors = []  # exceptions of the page's script
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime"):
            self._call(f"{domain}.enable")
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._write), os.close(self._read)
        self._process.kill()
        self._process.wait()
        self._log.close()

    def _message(self):
        while b"\0" not in self._rest:
            piece = os.read(self._read, 1 << 20)
            if not piece:
                raise RuntimeError("the browser has ended")
            self._rest += piece
        line, self._rest = self._rest.split(b"\0", 1)
        message = json.loads(line)
        if message.get("method") == "Runtime.exceptionThrown":
            details = message["params"]["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        return message

    def _call(self, method, **parameters):
        self._next += 1
        message = {"id": self._next, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._next:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def open(self, path):
        self.open_url(f"file://{path}")

    def open_url(self, url):
        self._call("Page.navigate", url=url)
        while self._message().get("method") != "Page.loadEventFired":
            pass

    def run(self, expression):
        """The value of a JavaScript expression in the page."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def middle_of(self, selector, across=0.5, down=0.5):
        box = self.run(
            f"(e => (e.scrollIntoView({{block: 'center'}}), e.getBoundingClientRect().toJSON()))"
            f"(document.querySelector({json.dumps(selector)}))"
        )
        return box["x"] + across * box["width"], box["y"] + down * box["height"]

    def _mouse(self, kind, x, y, **more):
        self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, selector, across=0.5, down=0.5):
        x, y = self.middle_of(selector, across, down)
        self._mouse("mouseMoved", x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self._mouse(kind, x, y, button="left", clickCount=1)

    def wheel(self, selector, delta, across=0.5):
        x, y = self.middle_of(selector, across)
        self._mouse("mouseWheel", x, y, deltaX=0, deltaY=delta)

    def drag(self, selector, from_across, to_across):
        x, y = self.middle_of(selector, from_across)
        to, _ = self.middle_of(selector, to_across)
        self._mouse("mousePressed", x, y, button="left", clickCount=1)
        for part in (0.3, 0.7, 1):
            self._mouse("mouseMoved", x + part * (to - x), y, button="left", buttons=1)
        self._mouse("mouseReleased", to, y, button="left", clickCount=1)

    def hover(self, selector, across=0.5, down=0.5):
        self._mouse("mouseMoved", *self.middle_of(selector, across, down))

    def type_into(self, selector, text):
        self.run(f"(e => (e.focus(), e.select()))(document.querySelector({json.dumps(selector)}))")
        self._call("Input.insertText", text=text)

    def pick(self, selector, value):
        """Chooses an option of a <select>, as its own event says."""
        self.run(
            f"(e => (e.value = {json.dumps(value)}, e.dispatchEvent(new Event('input')), e.dispatchEvent(new Event('change'))))"
            f"(document.querySelector({json.dumps(selector)}))"
        )

    def picture(self, path, whole=True):
        """A screenshot, of the whole page or of what is in view."""
        answer = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **(
            {"clip": {"x": 0, "y": 0, "width": self.run("innerWidth"), "height": self.run("document.documentElement.scrollHeight"), "scale": 1}} if whole else {}
        ))  # fmt: skip
        path.write_bytes(base64.b64decode(answer["data"]))
