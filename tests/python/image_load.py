"""Many clients at once, bounded in number and time: pictures of mixed sizes, cancels, hang-ups, bad bodies."""

import collections
import json
import random
import socket
import threading
import time

from image_service import EventStream, opened, picture_of
from system import resident_bytes

SIZES = ("64x64", "128x64", "96x96", "128x128")


class Load:
    def __init__(self, server, clients, secs):
        self.server, self.secs = server, secs
        self.until = time.monotonic() + secs
        self.counts = collections.Counter()
        self.wrong = []
        self.memory = []
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.client, args=(number,)) for number in range(clients)]

    def count(self, what):
        with self.lock:
            self.counts[what] += 1

    def check(self, picture, fields, what):
        told = (picture.info.get("prompt"), picture.info.get("seed"), picture.info.get("size"))
        if told != (fields["prompt"], str(fields["seed"]), fields["size"]) or picture.size != tuple(
            map(int, fields["size"].split("x"))
        ):
            with self.lock:
                self.wrong.append((what, told, fields))
        self.count(what)

    def client(self, number):
        dice = random.Random(number)
        ways = (self.waits, self.waits, self.streams, self.jobs, self.cancels, self.hangs_up, self.bad_body)
        while time.monotonic() < self.until:
            fields = {
                "prompt": f"client {number} picture {dice.randrange(10**6)}",
                "seed": dice.randrange(2**31),
                "size": dice.choice(SIZES),
                "steps": dice.randint(2, 4),
                "user": f"user {number}",
            }
            try:
                dice.choice(ways)(fields, dice)
            except Exception as problem:  # noqa: BLE001 - whatever it is, it is told at the end
                with self.lock:
                    self.wrong.append((type(problem).__name__, str(problem)[:300], fields))

    def refused(self, status, headers, data):
        if status != 429:
            return False
        assert int(headers["Retry-After"]) >= 1 and json.loads(data)["error"]["code"] in (
            "queue_full",
            "too_many_requests",
            "too_many_pictures",
        )
        self.count("429")
        time.sleep(0.2)  # a client that was told to come later
        return True

    def waits(self, fields, dice):
        status, headers, data = self.server.request("POST", "/v1/images/generations", fields)
        if self.refused(status, headers, data):
            return
        assert status == 200, (status, data[:300])
        self.check(picture_of(json.loads(data)["data"][0]["b64_json"]), fields, "waited")

    def streams(self, fields, dice):
        stream = EventStream(
            self.server, "/v1/images/generations", "POST", {**fields, "stream": True, "partial_images": 1}, timeout=120
        )
        if stream.status == 429:
            self.count("429")
            stream.close()
            time.sleep(0.2)
            return
        last = None
        while event := stream.next():
            last = event
        stream.close()
        assert last and last["event"] == "image_generation.completed", last and last["event"]
        self.check(picture_of(last["data"]["b64_json"]), fields, "streamed")

    def job(self, fields):
        status, headers, data = self.server.request("POST", "/v1/jobs", fields)
        if self.refused(status, headers, data):
            return None
        assert status == 200, (status, data[:300])
        return json.loads(data)["id"]

    def jobs(self, fields, dice):
        if not (job := self.job(fields)):
            return
        done = self.server.ended(job, 120)
        assert done["status"] == "completed", done
        self.check(opened(self.server.request("GET", done["images"][0]["url"])[2]), fields, "job")

    def cancels(self, fields, dice):
        if not (job := self.job({**fields, "steps": 200})):
            return
        state = self.server.json("POST", f"/v1/jobs/{job}/cancel")["status"]
        assert state == "cancelled", state
        self.count("cancelled")

    def hangs_up(self, fields, dice):
        body = json.dumps({**fields, "steps": 200}).encode()
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=60) as connection:
            head = f"POST /v1/images/generations HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self.server.token}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body[: dice.choice((0, 5, len(body)))])
        self.count("hung up")

    def bad_body(self, fields, dice):
        body = dice.choice(
            (b"{", b"[]", b'{"prompt": 5}', b'{"prompt": "x", "n": 99}', b'{"prompt": "x", "no": 1}', b"\xff" * 1000)
        )
        status, _, data = self.server.request(
            "POST", "/v1/images/generations", body, {"Content-Type": "application/json"}
        )
        assert status == 400 and json.loads(data)["error"]["message"], (status, data[:200])
        self.count("bad body")

    def run(self):
        for thread in self.threads:
            thread.start()
        while any(thread.is_alive() for thread in self.threads):
            self.memory.append(resident_bytes(self.server.process.pid))
            time.sleep(0.25)
        for thread in self.threads:
            thread.join()
        return self


def run(server, clients, secs, told):
    print(f"{clients} clients at once for {secs:g} s")
    done = Load(server, clients, secs).run()
    until = time.monotonic() + 60
    while server.metric("lockstep_jobs_running") + server.metric("lockstep_jobs_waiting") and time.monotonic() < until:
        time.sleep(0.1)
    for what, count in sorted(done.counts.items()):
        told(what, str(count))
    told("lost, mixed up or wrong", str(len(done.wrong)), "0", not done.wrong)
    for one in done.wrong[:5]:
        print("   ", one)
    third = len(done.memory) // 3
    early, late = (
        (max(part) for part in (done.memory[third : 2 * third], done.memory[2 * third :])) if third else (0, 0)
    )
    told(
        "memory, middle and last third",
        f"{early / 1e6:.0f} and {late / 1e6:.0f} MB",
        "flat (10 %)",
        late <= early * 1.1,
    )
    return done
