// Runs as JSON: for the command line and the service alike.
#pragma once
#include "capture/run_reader.h"
#include "capture/store.h"

namespace lockstep {

Json run_entry(const RunSummary& run);   // one line of a list of runs, with its size
Json runs_json(const Store& store);      // {home, runs: [...]}, newest first
Json run_summary(const Run& run);        // counts
Json run_json(const Run& run);           // {run: manifest, path, summary}
Json record_json(const Record& record);  // what records.jsonl says, without the preview

}  // namespace lockstep
