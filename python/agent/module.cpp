#include "agent.h"

namespace lockstep_agent {

State state;
thread_local int busy = 0;

namespace {

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_lockstep_agent", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace lockstep_agent

PyMODINIT_FUNC PyInit__lockstep_agent() {
  using namespace lockstep_agent;
  Ref module(PyModule_Create(&definition));
  if (!module) return nullptr;
  for (auto add : {add_hooks, add_tracer, add_monitor, add_json, add_channel, add_code_search, add_statistics,
                   add_likeness, add_call_counts, add_coverage, add_profile})
    if (add(module.get()) < 0) return nullptr;
  return module.release();
}
