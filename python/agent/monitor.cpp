// Callbacks of sys.monitoring (Python 3.12 and later). A line without a breakpoint switches itself off.
#include <unordered_map>
#include <unordered_set>

#include "agent.h"

namespace lockstep_agent {
namespace {

struct Monitored {
  std::unordered_map<int, std::vector<Py_ssize_t>> lines;   // breakpoints, by line
  std::unordered_map<int, std::vector<Py_ssize_t>> places;  // of the instructions, by line
  PyObject* untouched = nullptr;                            // held; None before 3.12
  bool changed = false;  // a line has switched itself off since its pairs were joined
};
std::unordered_map<PyObject*, Monitored> monitored;       // by code, held
std::unordered_map<PyObject*, Py_ssize_t> started_files;  // functions that ran at least once, by file name, held
std::unordered_set<PyObject*> started_codes;              // by address only: nothing is kept alive

std::unordered_set<unsigned long> pausing;  // threads that shall stop at their next line, wherever that is

// The place of the last event: a loop asks for the same one again and again.
struct {
  PyObject* code = nullptr;
  int line = 0;
  const std::vector<Py_ssize_t>* points = nullptr;
} last;

// Points at a line of code; nullptr when there are none.
const std::vector<Py_ssize_t>* points_at(PyObject* code, int line) {
  if (last.code == code && last.line == line) return last.points;
  const auto found = monitored.find(code);
  if (found == monitored.end()) return nullptr;
  const auto points = found->second.lines.find(line);
  if (points == found->second.lines.end()) return nullptr;
  last.code = code, last.line = line, last.points = &points->second;
  return last.points;
}

constexpr bool kTakesApart = PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030D0000;  // see pairs.cpp
bool join_is_queued = false;

// Between two instructions of the main thread, when the lines that switched themselves off have done so.
int join_all(void*) {
  join_is_queued = false;
  for (auto& [code, entry] : monitored) {
    if (entry.changed) join_pairs(code, entry.untouched);
    entry.changed = false;
  }
  return 0;
}

PyObject* untouched_copy([[maybe_unused]] PyObject* code) {
#if PY_VERSION_HEX >= 0x030C0000
  return PyObject_CallMethod(code, "replace", nullptr);
#else
  return Py_NewRef(Py_None);
#endif
}

// A line of this code without a breakpoint: it reports no more.
PyObject* switch_line_off(PyObject* code, int line) {
  const auto found = monitored.find(code);
  if (found == monitored.end()) {
    if (!pausing.empty()) Py_RETURN_NONE;
  } else if (Monitored& entry = found->second; entry.untouched != Py_None) {
    if (const auto places = entry.places.find(line); places != entry.places.end())
      quiet_line(code, entry.untouched, places->second);
    entry.changed = true;
    if (kTakesApart && !join_is_queued) join_is_queued = Py_AddPendingCall(join_all, nullptr) == 0;
  }
  return Py_NewRef(state.disable ? state.disable : Py_None);
}

int pause_here() {
  PyFrameObject* frame = PyEval_GetFrame();
  if (!frame || !state.on_step) return 0;
  pausing.erase(PyThread_get_thread_ident());
  Busy inside;
  Ref result(PyObject_CallFunction(state.on_step, "OsOi", frame, "pause", Py_None, 0));
  return result ? 0 : -1;
}

int pause_if_wanted() {
  return !pausing.empty() && pausing.count(PyThread_get_thread_ident()) ? pause_here() : 0;
}

#if PY_VERSION_HEX >= 0x030C0000
// 1: true or unknown, 0: false, and nothing more is to be done.
int condition_holds(const Point& point, PyObject* code) {
  if (Condition* simple = point.simple) {
    ++simple->held;
    const int known = holds(*simple, code);
    release(simple);
    if (known < 0) PyErr_Clear();
    return known != 0;
  }
  constexpr Py_ssize_t kMost = 16;
  const Ref condition(Py_NewRef(point.condition)), names(Py_NewRef(point.names));
  const Py_ssize_t count = PyTuple_GET_SIZE(names.get());
  PyFrameObject* frame = PyEval_GetFrame();
  if (!frame || count > kMost) return 1;
  PyObject* values[kMost];
  Py_ssize_t have = 0;
  for (; have < count; ++have) {
    values[have] = PyFrame_GetVar(frame, PyTuple_GET_ITEM(names.get(), have));
    if (!values[have]) break;
  }
  int holds = 1;
  if (have == count) {
    Busy inside;
    Ref result(PyObject_Vectorcall(condition.get(), values, static_cast<size_t>(count), nullptr));
    if (result) holds = PyObject_IsTrue(result.get());
  }
  for (Py_ssize_t i = 0; i < have; ++i) Py_DECREF(values[i]);
  if (PyErr_Occurred()) {  // Python evaluates it again and reports what it raised
    PyErr_Clear();
    return 1;
  }
  return holds;
}
#endif

PyObject* line_event(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (count != 2) Py_RETURN_NONE;
  if (state.off || busy) Py_RETURN_NONE;
  if (pause_if_wanted() < 0) return nullptr;
  const int line = static_cast<int>(PyLong_AsLong(arguments[1]));
  const std::vector<Py_ssize_t>* points = points_at(arguments[0], line);
  if (!points) return switch_line_off(arguments[0], line);
  if (points->size() == 1) {
    const Py_ssize_t index = points->front();
    Point& point = state.points[static_cast<size_t>(index)];
    if (!point.enabled) Py_RETURN_NONE;
    ++point.reached;
#if PY_VERSION_HEX >= 0x030C0000
    if (point.condition && condition_holds(point, arguments[0]) == 0) Py_RETURN_NONE;
#endif
    if (reach(index) < 0) return nullptr;
    Py_RETURN_NONE;
  }
  const std::vector<Py_ssize_t> indices = *points;  // stopping may change the table
  for (const Py_ssize_t index : indices) {
    Point& point = state.points[static_cast<size_t>(index)];
    if (!point.enabled) continue;
    ++point.reached;
    if (reach(index) < 0) return nullptr;
  }
  Py_RETURN_NONE;
}

// While a thread is to be paused: the lines of a loop in one line are not reported again, its jumps are.
PyObject* jump_event(PyObject*, PyObject* const*, Py_ssize_t) {
  if (state.off || busy) Py_RETURN_NONE;
  if (pause_if_wanted() < 0) return nullptr;
  Py_RETURN_NONE;
}

PyObject* start_event(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (count < 1 || state.off || busy) Py_RETURN_NONE;
  auto* code = reinterpret_cast<PyCodeObject*>(arguments[0]);
  if (counting_calls) count_call(code);
  if (started_codes.insert(arguments[0]).second) {  // counted calls and a pause report the same function again
    auto [entry, is_new] = started_files.try_emplace(code->co_filename, 0);
    if (is_new) Py_INCREF(code->co_filename);
    const Py_UCS4 first = PyUnicode_READ_CHAR(code->co_name, 0);
    if (code->co_flags & CO_OPTIMIZED && first != '<')
      ++entry->second;  // a module, a class, a comprehension: no function
    join_pairs_of_new(arguments[0]);
  } else if (!counting_calls) {  // once more after a pause, or when calls are counted no longer
    join_pairs_again(arguments[0]);
  }
  if (state.on_start && PyUnicode_CompareWithASCIIString(code->co_name, "<module>") == 0 &&
      wants_file(code->co_filename)) {
    Busy inside;
    Ref result(PyObject_CallFunctionObjArgs(state.on_start, arguments[0], nullptr));
    if (!result) PyErr_Clear();
  }
  if (counting_calls) Py_RETURN_NONE;
  return Py_NewRef(state.disable ? state.disable : Py_None);
}

// monitor(code, {line: [index, ...]} or None)
PyObject* monitor(PyObject*, PyObject* arguments) {
  PyObject *code, *lines;
  if (!PyArg_ParseTuple(arguments, "O!O", &PyCode_Type, &code, &lines)) return nullptr;
  last.code = nullptr;
  if (lines == Py_None) {
    const auto found = monitored.find(code);
    if (found == monitored.end()) Py_RETURN_NONE;
    const Ref untouched(found->second.untouched), held(code);
    monitored.erase(found);
    Py_RETURN_NONE;
  }
  Monitored fresh;
  PyObject *line, *indices;
  Py_ssize_t at = 0;
  while (PyDict_Next(lines, &at, &line, &indices)) {
    auto& points = fresh.lines[static_cast<int>(PyLong_AsLong(line))];
    for (Py_ssize_t i = 0; i < PyList_Size(indices); ++i) {
      const Py_ssize_t index = PyLong_AsSsize_t(PyList_GetItem(indices, i));
      if (PyErr_Occurred()) return nullptr;
      if (!point_at(index)) return PyErr_Format(PyExc_IndexError, "no point %zd", index);
      points.push_back(index);
    }
  }
  if (PyErr_Occurred()) return nullptr;
  const auto found = monitored.find(code);
  if (found == monitored.end()) {
    fresh.untouched = untouched_copy(code);
    if (!fresh.untouched) return nullptr;
    fresh.places = places_of_lines(code);
    Py_INCREF(code);
    monitored.emplace(code, std::move(fresh));
  } else {
    found->second.lines = std::move(fresh.lines);
  }
  Py_RETURN_NONE;
}

// pause_at_line(thread, whether it shall)
PyObject* pause_at_line(PyObject*, PyObject* arguments) {
  unsigned long ident;
  int on;
  if (!PyArg_ParseTuple(arguments, "kp", &ident, &on)) return nullptr;
  if (on)
    pausing.insert(ident);
  else
    pausing.erase(ident);
  Py_RETURN_NONE;
}

// Of a function that runs: the next start of it may be far away.
PyObject* join_pairs_in(PyObject*, PyObject* code) {
  if (PyCode_Check(code)) join_pairs_again(code);
  Py_RETURN_NONE;
}

PyObject* set_disable(PyObject*, PyObject* value) {
  Py_INCREF(value);
  Py_XDECREF(state.disable);
  state.disable = value;
  Py_RETURN_NONE;
}

PyObject* started(PyObject*, PyObject*) {
  Ref result(PyDict_New());
  if (!result) return nullptr;
  for (const auto& [file, count] : started_files) {
    PyObject* before = PyDict_GetItemWithError(result.get(), file);
    Ref number(PyLong_FromSsize_t(count + (before ? PyLong_AsSsize_t(before) : 0)));
    if (!number || PyDict_SetItem(result.get(), file, number.get()) < 0) return nullptr;
  }
  return result.release();
}

PyMethodDef methods[] = {
    {"line_event", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(line_event)), METH_FASTCALL, nullptr},
    {"start_event", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(start_event)), METH_FASTCALL, nullptr},
    {"jump_event", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(jump_event)), METH_FASTCALL, nullptr},
    {"monitor", monitor, METH_VARARGS, nullptr},
    {"set_disable", set_disable, METH_O, nullptr},
    {"pause_at_line", pause_at_line, METH_VARARGS, nullptr},
    {"join_pairs_in", join_pairs_in, METH_O, nullptr},
    {"started", started, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_monitor(PyObject* module) {
  return PyModule_AddFunctions(module, methods);
}

}  // namespace lockstep_agent
