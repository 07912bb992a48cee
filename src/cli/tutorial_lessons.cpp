#include "cli/tutorial_lessons.h"

namespace lockstep {
namespace {

constexpr std::string_view kReference =
    R"(# The reference: a very small model in plain Python, three stages behind its input.
from array import array
from math import exp, sin, sqrt

from lockstep import checkpoint


def tensor(rows):
    flat = array("f", [x for row in rows for x in row])
    return memoryview(flat).cast("B").cast("f", [len(rows), len(rows[0])])


rows = [[(1 + i) * sin(0.37 * i + 0.11 * j * j) for j in range(32)] for i in range(16)]
checkpoint("embedded", tensor(rows))

rows = [[x / sqrt(sum(y * y for y in row) / len(row) + 1e-6) for x in row] for row in rows]
checkpoint("normed", tensor(rows))

rows = [[x / sqrt(64) for x in row] for row in rows]
checkpoint("scaled", tensor(rows))

rows = [[x / (1 + exp(-x)) for x in row] for row in rows]
checkpoint("activated", tensor(rows))
)";

// The same with the square root forgotten.
constexpr std::string_view kPort = R"(# The port: the same model, and something in it is wrong.
from array import array
from math import exp, sin, sqrt

from lockstep import checkpoint


def tensor(rows):
    flat = array("f", [x for row in rows for x in row])
    return memoryview(flat).cast("B").cast("f", [len(rows), len(rows[0])])


rows = [[(1 + i) * sin(0.37 * i + 0.11 * j * j) for j in range(32)] for i in range(16)]
checkpoint("embedded", tensor(rows))

rows = [[x / sqrt(sum(y * y for y in row) / len(row) + 1e-6) for x in row] for row in rows]
checkpoint("normed", tensor(rows))

rows = [[x / 64 for x in row] for row in rows]
checkpoint("scaled", tensor(rows))

rows = [[x / (1 + exp(-x)) for x in row] for row in rows]
checkpoint("activated", tensor(rows))
)";

constexpr std::string_view kLoop = R"(def scale(step):
    factor = 10 * step
    return factor


total = 0
for step in range(4):
    total += scale(step)
print("total", total)
)";

constexpr std::string_view kUnused = R"(def encode(text):
    return [ord(c) for c in text]


def encode_with_images(text, images):
    return encode(text) + images


def denoise(tokens, steps):
    for step in range(steps):
        tokens = [one_step(t, step) for t in tokens]
    return tokens


def one_step(token, step):
    return token + step


if __name__ == "__main__":
    print(sum(denoise(encode("a red circle"), 20)))
)";

constexpr std::string_view kDraw = R"(from toy.encoder import encode

print(sum(encode("a red circle")))
)";

constexpr std::string_view kEncoder = R"(def encode(text):
    return [ord(c) for c in text]


def encode_with_images(text, images):
    tokens = encode(text)
    tokens += images
    return tokens
)";

constexpr std::string_view kOldEncoder = R"(def encode(text):
    return list(text)
)";

constexpr std::string_view kAsk =
    R"({"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"tutorial","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"compare","arguments":{"reference":"latest:reference","candidate":"latest:port"}}}
)";

Lesson compare_lesson() {
  return {
      "compare",
      "find the first wrong tensor of a port",
      {{"Here are two programs: reference.py is right, port.py is a port of it with a bug. Both name their tensors "
        "with checkpoint(). Record the reference first. No line of it is changed.",
        "lockstep record -- reference.py",
        0,
        {"4 records"},
        "Python 3 must be on your PATH; or name one with --python.",
        {{"reference.py", kReference}, {"port.py", kPort}}},
       {"Now the port.", "lockstep record -- port.py", 0, {"4 records"}, "Type it as shown."},
       {"Compare them. A run is named by its id, or by latest:NAME. The exit status is 1, because they differ.",
        "lockstep compare latest:reference latest:port",
        1,
        {"first at scaled: affine.scale", "1/sqrt(64)", "port.py:20"},
        "Record both programs first, the reference with the name reference."},
       {"Read the answer from the top: the first tensor that differs is scaled, recorded at port.py:20. Its cause is a "
        "factor of 1/sqrt(64). What comes later differs too, but only because of it. Line 19 divides by 64 and not "
        "by its root. It is fixed for you now. Record the port again.",
        "lockstep record -- port.py",
        0,
        {"4 records"},
        "Type it as shown.",
        {{"port.py", kReference}}},
       {"And compare again.",
        "lockstep compare latest:reference latest:port",
        0,
        {"MATCH"},
        "Record the fixed port first."}},
      "That is the whole loop: record, compare, mend, record again. Models in torch, MLX, Flax and tinygrad need no "
      "checkpoint(): their modules are recorded by themselves. See docs/porting.md."};
}

Lesson debug_lesson() {
  return {"debug",
          "stop a program and look into it",
          {{"Start a program under the debugger. It stops before its first line, and the prompt is yours again.",
            "lockstep debug start loop.py",
            0,
            {"before the first line"},
            "Type it as shown.",
            {{"loop.py", kLoop}}},
           {"Stop in scale(), but only in step 2.",
            "lockstep debug break loop.py:3 --if 'step == 2'",
            0,
            {"loop.py:3"},
            "Mind the quotes: the condition is one word for the shell."},
           {"Let it run to there.", "lockstep debug continue", 0, {"return factor"}, "Set the breakpoint first."},
           {"Look at the variables of this frame.",
            "lockstep debug vars",
            0,
            {"factor", "20"},
            "The program must be stopped at the breakpoint."},
           {"Evaluate any expression in it.", "lockstep debug eval 'factor * 100'", 0, {"2000"}, "Type it as shown."},
           {"Run on to the end.", "lockstep debug continue", 0, {"exit code 0"}, "Once more, perhaps."},
           {"What it printed is kept.", "lockstep debug log", 0, {"total 60"}, "Type it as shown."}},
          "Each command ends at once and the program waits, so a person, a script or an agent can drive it. "
          "See docs/debugger.md."};
}

Lesson coverage_lesson() {
  return {"coverage",
          "see which code really runs before porting it",
          {{"A repository holds much more code than one program uses. Run a program and see what ran.",
            "lockstep coverage -- encode.py",
            0,
            {"encode.py", "one_step", "240"},
            "Type it as shown.",
            {{"encode.py", kUnused}}},
           {"one_step was called 240 times: a breakpoint there stops 240 times. The whole list, with functions that "
            "never ran, goes into a file.",
            "lockstep coverage --run latest --markdown ran.md",
            0,
            {"encode.py"},
            "Run the program first."},
           {"The same for a program to read.",
            "lockstep --json coverage --run latest",
            0,
            {"encode_with_images", "\"calls\":0"},
            "Run the program first."}},
          "encode_with_images never ran: the port can leave it out. See docs/toolbox.md."};
}

Lesson prune_lesson() {
  return {
      "prune",
      "keep a copy of the reference that holds only what ran",
      {{"draw.py uses a package named toy. See what a copy of the package would hold; nothing is written yet.",
        "lockstep prune --packages toy --dry-run -- draw.py",
        0,
        {"would be kept", "toy/encoder.py", "nothing was written"},
        "Type it as shown.",
        {{"draw.py", kDraw},
         {"toy/__init__.py", ""},
         {"toy/encoder.py", kEncoder},
         {"toy/old_encoder.py", kOldEncoder}}},
       {"old_encoder.py is not in the list. Now make the copy, and cut out functions that never ran. The program is "
        "run again on the copy, and must do the same.",
        "lockstep prune --packages toy --functions --into pruned -- draw.py",
        0,
        {"what the program prints is the same", "pruned"},
        "Type it as shown."},
       {"The copy is never written over: the same command is refused now.",
        "lockstep prune --packages toy --functions --into pruned -- draw.py",
        2,
        {"exists"},
        "Make the copy first."}},
      "In pruned/toy the body of encode_with_images raises NotImplementedError and names its old place; PRUNED.md "
      "lists "
      "all that is left. With --branch NAME the copy becomes a branch of a git checkout. See docs/toolbox.md."};
}

Lesson agents_lesson() {
  return {
      "agents",
      "answers for programs: JSON, exit statuses, MCP",
      {{"Everything that people can type, programs can call. First two runs to talk about.",
        "lockstep record -- reference.py",
        0,
        {"4 records"},
        "Type it as shown.",
        {{"reference.py", kReference}, {"port.py", kPort}}},
       {"And the port.", "lockstep record -- port.py", 0, {"4 records"}, "Type it as shown."},
       {"Every command takes --json: one document on stdout. The exit status says match (0), different (1), bad "
        "input (2) or failed (3).",
        "lockstep --json compare latest:reference latest:port",
        1,
        {"\"verdict\":\"mismatch\"", "affine.scale"},
        "Record both first."},
       {"An agent starts `lockstep mcp` and talks JSON-RPC over its stdin. Here it asks the same question.",
        "lockstep mcp",
        0,
        {"affine.scale"},
        "Type it as shown.",
        {},
        kAsk}},
      "Add `lockstep mcp` to your agent's configuration as a stdio server. The same operations are served over HTTP by "
      "`lockstep serve`. See docs/debugger.md."};
}

}  // namespace

std::span<const Lesson> lessons() {
  static const std::vector<Lesson> all{compare_lesson(), debug_lesson(), coverage_lesson(), prune_lesson(),
                                       agents_lesson()};
  return all;
}

}  // namespace lockstep
