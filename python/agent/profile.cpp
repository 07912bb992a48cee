// When each module of a program begins and ends, and what memory it takes in between: kept here, because a large model
// has a hundred thousand such calls, and written when the process ends.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "agent.h"
#include "platform.h"

namespace lockstep_agent {
namespace {

constexpr size_t kMostCalls = 1'000'000;  // 80 MB; further ones are counted alone

struct ProfiledCall {
  int32_t name, parent;  // parent: an index, -1 for none
  uint32_t thread;
  bool evaluation, open;
  int64_t begin_ns, end_ns, cpu_ns, allocated, live_before, live_after, peak;
};

// As count_memory_linux.c and its sibling have it.
struct MemoryCounts {
  std::atomic<int64_t> live, allocated, peak;
};

std::vector<ProfiledCall> calls;
uint64_t left_out = 0;
MemoryCounts* memory = nullptr;
uint32_t threads = 0;

struct ThreadCalls {
  uint32_t number = ++threads;
  std::vector<int32_t> open;  // indices; -1 for one that is left out
};
thread_local ThreadCalls thread_calls;

int64_t now_ns(clockid_t clock) {
  timespec now;
  ::clock_gettime(clock, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

struct Memory {
  int64_t live, allocated, peak;  // peak: since this was last asked
};
Memory read_memory() {
  if (!memory) {  // nothing counts: what the process holds
    const int64_t bytes = resident_bytes();
    return {bytes, 0, bytes};
  }
  const int64_t live = memory->live.load(std::memory_order_relaxed);
  return {live, memory->allocated.load(std::memory_order_relaxed),
          memory->peak.exchange(live, std::memory_order_relaxed)};
}

// The highest mark since the last border belongs to every call that is open.
void raise_peak(int32_t index, int64_t peak) {
  if (index >= 0 && calls[static_cast<size_t>(index)].peak < peak) calls[static_cast<size_t>(index)].peak = peak;
}

// enter_call(name)
PyObject* enter_call(PyObject*, PyObject* name) {
  const long number = PyLong_AsLong(name);
  if (number == -1 && PyErr_Occurred()) return nullptr;
  std::vector<int32_t>& open = thread_calls.open;
  const int32_t parent = open.empty() ? -1 : open.back();
  if (calls.size() >= kMostCalls) {
    ++left_out;
    open.push_back(parent);  // what happens inside lands in the one around it
    Py_RETURN_NONE;
  }
  const Memory at = read_memory();
  raise_peak(parent, at.peak);
  open.push_back(static_cast<int32_t>(calls.size()));
  calls.push_back({static_cast<int32_t>(number), parent, thread_calls.number, false, true, 0, 0,
                   now_ns(CLOCK_PROCESS_CPUTIME_ID), at.allocated, at.live, at.live, at.live});
  calls.back().begin_ns = now_ns(CLOCK_MONOTONIC);
  Py_RETURN_NONE;
}

// leave_call(evaluation)
PyObject* leave_call(PyObject*, PyObject* evaluation) {
  std::vector<int32_t>& open = thread_calls.open;
  if (open.empty()) Py_RETURN_NONE;
  const int32_t index = open.back();
  open.pop_back();
  // One that was left out stands for the call around it.
  if (index < 0 || (!open.empty() && open.back() == index)) Py_RETURN_NONE;
  ProfiledCall& call = calls[static_cast<size_t>(index)];
  call.end_ns = now_ns(CLOCK_MONOTONIC);
  call.cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID) - call.cpu_ns;
  const Memory at = read_memory();
  call.allocated = at.allocated - call.allocated;
  call.live_after = at.live;
  call.evaluation = PyObject_IsTrue(evaluation) == 1;
  call.open = false;
  raise_peak(index, at.peak);
  raise_peak(call.parent, call.peak);
  Py_RETURN_NONE;
}

// begin_profile() → what memory is counted by
PyObject* begin_profile(PyObject*, PyObject*) {
  memory = static_cast<MemoryCounts*>(::dlsym(RTLD_DEFAULT, "lockstep_memory_counts"));
  return PyUnicode_FromString(memory ? "heap" : tells_resident_bytes() ? "resident" : "none");
}

// In the child of a fork.
PyObject* forget_profile(PyObject*, PyObject*) {
  calls.clear();
  left_out = 0;
  thread_calls.open.clear();
  Py_RETURN_NONE;
}

// write_profile(descriptor) → how many were left out. [name, parent, thread, begin, end, cpu, allocated, before, after,
// peak, evaluation]; times in nanoseconds. A call that has not ended ends now.
PyObject* write_profile(PyObject*, PyObject* descriptor) {
  FILE* out = ::fdopen(::dup(static_cast<int>(PyLong_AsLong(descriptor))), "w");
  if (!out) return PyErr_SetFromErrno(PyExc_OSError);
  const int64_t now = now_ns(CLOCK_MONOTONIC);
  for (const ProfiledCall& call : calls)
    std::fprintf(out,
                 "[%d,%d,%u,%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%d]\n",
                 call.name, call.parent, call.thread, call.begin_ns, call.open ? now : call.end_ns,
                 call.open ? int64_t{0} : call.cpu_ns, call.open ? int64_t{0} : call.allocated, call.live_before,
                 call.live_after, call.peak, call.evaluation ? 1 : 0);
  if (std::fclose(out) != 0) return PyErr_SetFromErrno(PyExc_OSError);
  return PyLong_FromUnsignedLongLong(left_out);
}

PyObject* profile_clock(PyObject*, PyObject*) {
  return Py_BuildValue("LL", now_ns(CLOCK_MONOTONIC), now_ns(CLOCK_PROCESS_CPUTIME_ID));
}

PyMethodDef profile_methods[] = {{"begin_profile", begin_profile, METH_NOARGS, nullptr},
                                 {"enter_call", enter_call, METH_O, nullptr},
                                 {"leave_call", leave_call, METH_O, nullptr},
                                 {"forget_profile", forget_profile, METH_NOARGS, nullptr},
                                 {"write_profile", write_profile, METH_O, nullptr},
                                 {"profile_clock", profile_clock, METH_NOARGS, nullptr},
                                 {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_profile(PyObject* module) {
  return PyModule_AddFunctions(module, profile_methods);
}

}  // namespace lockstep_agent
