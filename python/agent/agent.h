// The debugger's part inside a Python program, where speed counts: hooks that breakpoints call, the tracer used while
// stepping, monitoring callbacks, JSON and the socket. Decisions are made in python/lockstep/agent.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <frameobject.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace lockstep_agent {

// A reference that is given back.
class Ref {
 public:
  explicit Ref(PyObject* owned = nullptr) : object_(owned) {}
  Ref(const Ref&) = delete;
  Ref& operator=(const Ref&) = delete;
  Ref(Ref&& other) noexcept : object_(other.object_) { other.object_ = nullptr; }
  ~Ref() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  PyObject* release() {
    PyObject* object = object_;
    object_ = nullptr;
    return object;
  }
  void reset(PyObject* owned) {
    PyObject* old = object_;
    object_ = owned;
    Py_XDECREF(old);
  }

 private:
  PyObject* object_;
};

// A condition that needs no Python code: steps on a small stack.
struct ConditionStep {
  enum Kind { kLocal, kConstant, kCompare, kIs, kCalculate, kAttribute, kNot, kAnd, kOr, kItem };
  Kind kind;
  int argument;      // index of a local variable, comparison, operator, or where kAnd and kOr jump to
  PyObject* object;  // constant, or name; held
};
struct Condition {
  std::vector<ConditionStep> steps;
  int held = 1;  // by its point, and while it is looked at: that may run Python code, which may change the point
};
void release(Condition* condition);
#if PY_VERSION_HEX >= 0x030C0000
Condition* new_condition(PyObject* steps);
// 1 or 0 for the frame that is running this code; -1, perhaps with an exception, when Python must evaluate it.
int holds(const Condition& condition, PyObject* code);
#endif

// A place in a program at which something may happen; Python knows it by its index.
struct Point {
  bool enabled = true;
  uint64_t reached = 0;           // how often; counted here or by the Counter that rewritten code holds
  PyObject* condition = nullptr;  // function of `names`, for monitored code: false means nothing happens
  PyObject* names = nullptr;      // tuple of local variables
  Condition* simple = nullptr;    // the same without Python code, where that is possible
};

struct State {
  PyObject* on_point = nullptr;  // (index) → None: decides whether to stop, and stops
  PyObject* on_step = nullptr;   // (frame, reason, value) → None
  PyObject* on_code = nullptr;   // (code) → code, of code that exec is about to run
  PyObject* on_start = nullptr;  // (code) → None, of monitored programs: the first start of each function
  PyObject* names = nullptr;     // set of file names without folders that on_code and on_start want; None: all
  PyObject* disable = nullptr;   // sys.monitoring.DISABLE
  bool off = false;              // a forked child, or no one listens any more
  std::vector<Point> points;
};
extern State state;
extern thread_local int busy;  // > 0: this thread is inside the debugger, nothing stops it

// Into the debugger and out again, in this thread. What runs in between is not the program: tracers and tools of others
// (coverage) do not see it.
inline void enter_debugger() {
  ++busy;
  PyThreadState* thread = PyThreadState_Get();
#if PY_VERSION_HEX >= 0x030B0000
  PyThreadState_EnterTracing(thread);
#else
  ++thread->tracing;
  thread->cframe->use_tracing = 0;
#endif
}

inline void leave_debugger() {
  --busy;
  PyThreadState* thread = PyThreadState_Get();
#if PY_VERSION_HEX >= 0x030B0000
  PyThreadState_LeaveTracing(thread);
#else
  --thread->tracing;
  thread->cframe->use_tracing = !thread->tracing && (thread->c_tracefunc || thread->c_profilefunc);
#endif
}

class Busy {
 public:
  Busy() { enter_debugger(); }
  ~Busy() { leave_debugger(); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
};

Point* point_at(Py_ssize_t index);
// Whether on_code and on_start want code of this file: most imports end here.
bool wants_file(PyObject* filename);
// Calls on_point; -1 with an exception when the program shall end here.
int reach(Py_ssize_t index);

// The pairs of instructions that a copy of code from before lines of it were reported has, and code has lost.
void join_pairs(PyObject* code, PyObject* untouched);
void join_pairs_of_new(PyObject* code);  // of code that starts for the first time
void join_pairs_again(PyObject* code);   // of code that has run

// Where the instructions of each line lie, in bytes; and a line without a breakpoint that reports no more, at all of
// them.
std::unordered_map<int, std::vector<Py_ssize_t>> places_of_lines(PyObject* code);
void quiet_line(PyObject* code, PyObject* untouched, const std::vector<Py_ssize_t>& places);

// Calls of each file, while they are counted (debug start --count-calls).
extern bool counting_calls;
void count_call(PyCodeObject* code);

int add_hooks(PyObject* module);
int add_tracer(PyObject* module);
int add_monitor(PyObject* module);
int add_json(PyObject* module);
int add_channel(PyObject* module);
int add_code_search(PyObject* module);
int add_statistics(PyObject* module);
int add_likeness(PyObject* module);
int add_call_counts(PyObject* module);
int add_coverage(PyObject* module);
int add_profile(PyObject* module);

}  // namespace lockstep_agent
