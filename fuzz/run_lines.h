// What the lines of run.json and records.jsonl hold, for mutations of them.
#pragma once
#include <string>
#include <vector>

#include "structure.h"

namespace lockstep {

inline const std::vector<std::string> kWordsOfRuns = {
    "format",  "lockstep-run", "version", "id",       "name",     "status",   "finished",   "running",       "killed",
    "created", "program",      "aliases", "model",    "settings", "versions", "producer",   "weights",       "seq",
    "step",    "hit",          "tags",    "role",     "output",   "input",    "checkpoint", "gradient",      "weight",
    "dtype",   "f32",          "f16",     "bf16",     "i64",      "u8",       "bool",       "c64",           "f8_e4m3",
    "f4_e2m1", "shape",        "stats",   "min",      "max",      "mean",     "std",        "rms",           "absmax",
    "nan",     "inf",          "zero",    "denormal", "preview",  "checksum", "file",       "tensors/t.npy", "where",
    "line",    "function",     "secs",    "call",     "module",   "parent"};

inline const std::vector<std::string> kExamplesOfRuns = {
    R"({"format":"lockstep-run","version":1,"id":"x","name":"n","status":"running","aliases":{"a":"b"},"program":{"argv":["a"],"exit_code":0}})",
    R"({"seq":0,"name":"a","step":null,"hit":0,"tags":{},"role":"output","dtype":"f32","shape":[2,3],"stats":null,"preview":[],"checksum":"","file":"tensors/t.npy","where":null,"secs":0})",
    R"({"seq":1,"name":"a.b","step":3,"hit":1,"tags":{"k":"v"},"role":"input","dtype":"f32","shape":[2,3],"stats":{"min":0,"max":1,"mean":0.5,"std":0.1,"rms":0.5,"absmax":1,"nan":0,"inf":0,"zero":1,"denormal":0},"preview":[0,1,"NaN"],"checksum":"xxh3:0123456789abcdef","file":"","where":{"file":"a.py","line":3,"function":"f"},"secs":0.25})"};

}  // namespace lockstep
