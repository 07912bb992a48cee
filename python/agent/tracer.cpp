// The trace function: on while a thread is being stepped or paused, or while a frame runs that was entered before its
// function got a breakpoint. Off otherwise, because any tracer slows a thread down.
#include <opcode.h>

#include <unordered_map>
#include <unordered_set>

#include "agent.h"

#if PY_VERSION_HEX >= 0x030D0000
extern "C" __attribute__((weak)) int _PyEval_SetTrace(PyThreadState*, Py_tracefunc, PyObject*);
#endif

namespace lockstep_agent {
namespace {

enum Mode { kNone, kStep, kNext, kFinish, kUntil, kPause, kReturned };

// One a thread; the object that PyEval_SetTrace holds.
struct Tracer {
  PyObject_HEAD Mode mode;
  PyFrameObject* target;  // of next, finish, until; held
  int line;               // of until
  PyObject* entry_file;   // stepping begins with the first line of this file's module code
  PyObject* value;        // what the last frame returned
  Py_tracefunc foreign;   // a tracer of the program (coverage): called first
  PyObject* foreign_object;
  unsigned long thread;
  bool watching;  // for frames that hold new breakpoints
};

PyTypeObject tracer_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
std::unordered_map<unsigned long, Tracer*> tracers;
std::unordered_set<PyFrameObject*> watched_frames;
std::unordered_map<PyObject*, std::unordered_map<int, std::vector<Py_ssize_t>>> watched_lines;  // by code
PyObject* own_folder = nullptr;  // whose code is never shown
uint64_t stops = 0;

int trace(PyObject* self, PyFrameObject* frame, int what, PyObject* argument);
[[maybe_unused]] int install_later(void* tracer);

void set_target(Tracer* tracer, PyFrameObject* frame) {
  PyFrameObject* old = tracer->target;
  Py_XINCREF(frame);
  tracer->target = frame;
  Py_XDECREF(old);
}

void set_object(PyObject*& slot, PyObject* value) {
  PyObject* old = slot;
  Py_XINCREF(value);
  slot = value;
  Py_XDECREF(old);
}

int set_trace(PyThreadState* thread, Py_tracefunc function, PyObject* object) {
#if PY_VERSION_HEX >= 0x030D0000
  if (!_PyEval_SetTrace) {
    if (thread == PyThreadState_Get())
      PyEval_SetTrace(function, object);
    else if (function == trace)
      Py_AddPendingCall(install_later, object);  // reaches the main thread only
    return 0;
  }
#endif
  return _PyEval_SetTrace(thread, function, object);
}

PyThreadState* thread_of(unsigned long ident) {
  PyThreadState* thread = PyInterpreterState_ThreadHead(PyThreadState_Get()->interp);
  while (thread && thread->thread_id != ident) thread = PyThreadState_Next(thread);
  return thread;
}

// Puts our tracer in front of whatever is there.
int install(Tracer* tracer) {
  PyThreadState* thread = thread_of(tracer->thread);
  if (!thread) return 0;
  if (thread->c_tracefunc == trace && thread->c_traceobj == reinterpret_cast<PyObject*>(tracer)) return 0;
  tracer->foreign = thread->c_tracefunc;
  set_object(tracer->foreign_object, thread->c_traceobj);
  return set_trace(thread, trace, reinterpret_cast<PyObject*>(tracer));
}

[[maybe_unused]] int install_later(void* object) {
  Tracer* tracer = static_cast<Tracer*>(object);
  if (tracer->mode == kNone && !tracer->watching) return 0;
  return tracer->thread == PyThread_get_thread_ident() ? install(tracer) : 0;
}

int remove_if_idle(Tracer* tracer) {
  tracer->watching &= !watched_frames.empty();
  if (tracer->mode != kNone || tracer->watching) return 0;
  set_target(tracer, nullptr);
  set_object(tracer->value, nullptr);
  PyThreadState* thread = thread_of(tracer->thread);
  if (!thread || thread->c_tracefunc != trace) return 0;
  Py_tracefunc foreign = tracer->foreign;
  Ref object(tracer->foreign_object);
  tracer->foreign = nullptr;
  tracer->foreign_object = nullptr;
  return set_trace(thread, foreign, object.get());
}

bool is_own(PyFrameObject* frame) {
  Ref code(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
  PyObject* file = reinterpret_cast<PyCodeObject*>(code.get())->co_filename;
  return own_folder && PyUnicode_Tailmatch(file, own_folder, 0, PY_SSIZE_T_MAX, -1) == 1;
}

// Whether a frame that "returns" only gives a value and will go on later.
bool only_yields(PyFrameObject* frame, PyObject* value) {
  Ref code(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
  const int flags = reinterpret_cast<PyCodeObject*>(code.get())->co_flags;
  if (!value || !(flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR))) return false;
#if PY_VERSION_HEX >= 0x030B0000
  const int at = PyFrame_GetLasti(frame);
  Ref bytes(PyCode_GetCode(reinterpret_cast<PyCodeObject*>(code.get())));
#else
  const int at = frame->f_lasti * 2;
  Ref bytes(Py_NewRef(reinterpret_cast<PyCodeObject*>(code.get())->co_code));
#endif
  if (!bytes || at < 0 || at >= PyBytes_GET_SIZE(bytes.get())) return false;
  const int opcode = static_cast<unsigned char>(PyBytes_AS_STRING(bytes.get())[at]);
#if PY_VERSION_HEX < 0x030B0000
  if (opcode == YIELD_FROM) return true;
#endif
#if PY_VERSION_HEX >= 0x030B0000
  if (opcode == RETURN_GENERATOR) return true;
  // Python 3.13 tells of it when it stands behind the yield, at the instruction where it will go on.
  if (opcode == RESUME && at >= 2 && static_cast<unsigned char>(PyBytes_AS_STRING(bytes.get())[at - 2]) == YIELD_VALUE)
    return true;
#endif
  return opcode == YIELD_VALUE;
}

int stop(Tracer* tracer, PyFrameObject* frame, const char* reason) {
  tracer->mode = kNone;
  if (!state.on_step) return 0;
  Busy inside;
  Ref value(tracer->value ? Py_NewRef(tracer->value) : Py_NewRef(Py_None));
  const bool returned = tracer->value != nullptr;
  set_object(tracer->value, nullptr);
  Ref result(PyObject_CallFunction(state.on_step, "OsOi", frame, reason, value.get(), returned ? 1 : 0));
  return result ? 0 : -1;
}

int on_line(Tracer* tracer, PyFrameObject* frame) {
  const int line = PyFrame_GetLineNumber(frame);
  if (tracer->entry_file) {
    Ref code(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
    auto* object = reinterpret_cast<PyCodeObject*>(code.get());
    if (PyUnicode_Compare(object->co_filename, tracer->entry_file) != 0 ||
        PyUnicode_CompareWithASCIIString(object->co_name, "<module>") != 0)
      return 0;
    set_object(tracer->entry_file, nullptr);
    set_target(tracer, frame);
    return 0;  // the stop before the first line has shown it
  }
  const uint64_t before = stops;
  if (!watched_lines.empty()) {
    Ref code(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
    const auto lines = watched_lines.find(code.get());
    if (lines != watched_lines.end() && watched_frames.count(frame)) {
      const auto points = lines->second.find(line);
      if (points != lines->second.end()) {
        const std::vector<Py_ssize_t> indices = points->second;
        for (const Py_ssize_t index : indices) {
          Point* point = point_at(index);
          if (!point || !point->enabled) continue;
          ++point->reached;
          if (reach(index) < 0) return -1;
        }
      }
    }
  }
  if (stops != before) return 0;  // the step has ended at a breakpoint
  switch (tracer->mode) {
    case kPause:
      return stop(tracer, frame, "pause");
    case kStep:
      return is_own(frame) ? 0 : stop(tracer, frame, "step");
    case kNext:
      return frame == tracer->target ? stop(tracer, frame, "step") : 0;
    case kUntil:
      return frame == tracer->target && line > tracer->line ? stop(tracer, frame, "step") : 0;
    case kReturned:
      return frame == tracer->target ? stop(tracer, frame, "step") : 0;
    case kFinish:
    case kNone:
      return 0;
  }
  return 0;
}

void on_return(Tracer* tracer, PyFrameObject* frame, PyObject* value) {
  const bool watched = watched_frames.count(frame) != 0, target = frame == tracer->target;
  if (!watched && !target && tracer->mode != kStep) return;
  const bool yields = only_yields(frame, value);
  if (watched && !yields) {
    watched_frames.erase(frame);
    Py_DECREF(frame);
  }
  if (tracer->mode == kStep && !is_own(frame) && !yields) set_object(tracer->value, value);
  if (!target || yields || tracer->mode == kNone || tracer->mode == kStep) return;
  if (tracer->mode != kReturned) set_object(tracer->value, value);
  PyFrameObject* back = PyFrame_GetBack(frame);
  set_target(tracer, back);
  if (!back)
    tracer->mode = kNone;
  else
    tracer->mode = kReturned;
  Py_XDECREF(back);
}

int trace(PyObject* self, PyFrameObject* frame, int what, PyObject* argument) {
  Tracer* tracer = reinterpret_cast<Tracer*>(self);
  if (busy) return 0;
  if (state.off) tracer->mode = kNone, tracer->watching = false;
  if (tracer->foreign && tracer->foreign(tracer->foreign_object, frame, what, argument) < 0) return -1;
  int status = 0;
  if (what == PyTrace_LINE && !state.off) status = on_line(tracer, frame);
  if (what == PyTrace_RETURN && !state.off) on_return(tracer, frame, argument);
  if (status < 0) return -1;
  return what == PyTrace_LINE || what == PyTrace_RETURN ? remove_if_idle(tracer) : 0;
}

void tracer_free(PyObject* self) {
  Tracer* tracer = reinterpret_cast<Tracer*>(self);
  set_target(tracer, nullptr);
  set_object(tracer->entry_file, nullptr);
  set_object(tracer->value, nullptr);
  set_object(tracer->foreign_object, nullptr);
  PyObject_Free(self);
}

Tracer* tracer_for(unsigned long ident) {
  Tracer*& tracer = tracers[ident];
  if (!tracer) {
    tracer = PyObject_New(Tracer, &tracer_type);
    if (!tracer) return nullptr;
    tracer->mode = kNone;
    tracer->target = nullptr;
    tracer->entry_file = tracer->value = tracer->foreign_object = nullptr;
    tracer->foreign = nullptr;
    tracer->thread = ident;
    tracer->watching = false;
    tracer->line = 0;
  }
  return tracer;
}

// attach(thread, mode, frame or None, line, entry_file or None)
PyObject* attach(PyObject*, PyObject* arguments) {
  unsigned long ident;
  int mode, line;
  PyObject *frame, *entry;
  if (!PyArg_ParseTuple(arguments, "kiOiO", &ident, &mode, &frame, &line, &entry)) return nullptr;
  Tracer* tracer = tracer_for(ident);
  if (!tracer) return nullptr;
  tracer->mode = static_cast<Mode>(mode);
  tracer->line = line;
  set_target(tracer, PyFrame_Check(frame) ? reinterpret_cast<PyFrameObject*>(frame) : nullptr);
  set_object(tracer->entry_file, entry == Py_None ? nullptr : entry);
  set_object(tracer->value, nullptr);
  if ((mode == kNone ? remove_if_idle(tracer) : install(tracer)) < 0) return nullptr;
  Py_RETURN_NONE;
}

PyObject* watch_frame(PyObject*, PyObject* arguments) {
  unsigned long ident;
  PyObject* frame;
  if (!PyArg_ParseTuple(arguments, "kO!", &ident, &PyFrame_Type, &frame)) return nullptr;
  if (watched_frames.insert(reinterpret_cast<PyFrameObject*>(frame)).second) Py_INCREF(frame);
  Tracer* tracer = tracer_for(ident);
  if (!tracer) return nullptr;
  tracer->watching = true;
  if (install(tracer) < 0) return nullptr;
  Py_RETURN_NONE;
}

PyObject* watch_point(PyObject*, PyObject* arguments) {
  PyObject* code;
  int line, on;
  Py_ssize_t index;
  if (!PyArg_ParseTuple(arguments, "O!inp", &PyCode_Type, &code, &line, &index, &on)) return nullptr;
  auto& lines = watched_lines[code];
  if (lines.empty()) Py_INCREF(code);
  auto& points = lines[line];
  std::erase(points, index);
  if (on) points.push_back(index);
  if (points.empty()) lines.erase(line);
  if (lines.empty()) {
    watched_lines.erase(code);
    Py_DECREF(code);
  }
  if (watched_lines.empty()) {
    for (PyFrameObject* frame : watched_frames) Py_DECREF(frame);
    watched_frames.clear();
  }
  Py_RETURN_NONE;
}

// A settrace of the program has taken our place: go in front of it. True when that was so.
PyObject* rearm(PyObject*, PyObject*) {
  bool lost = false;
  for (auto& [ident, tracer] : tracers) {
    if (tracer->mode == kNone && !tracer->watching) continue;
    PyThreadState* thread = thread_of(ident);
    if (!thread || thread->c_tracefunc == trace) continue;
    lost = true;
    if (install(tracer) < 0) return nullptr;
  }
  return PyBool_FromLong(lost);
}

PyObject* detach_all(PyObject*, PyObject*) {
  for (PyFrameObject* frame : watched_frames) Py_DECREF(frame);
  watched_frames.clear();
  for (auto& [ident, tracer] : tracers) {
    tracer->mode = kNone;
    set_object(tracer->entry_file, nullptr);
    if (remove_if_idle(tracer) < 0) return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* note_stop(PyObject*, PyObject*) {
  ++stops;
  Py_RETURN_NONE;
}

PyObject* set_own_folder(PyObject*, PyObject* folder) {
  set_object(own_folder, folder);
  Py_RETURN_NONE;
}

PyObject* mode_of(PyObject*, PyObject* ident) {
  const auto found = tracers.find(PyLong_AsUnsignedLong(ident));
  if (PyErr_Occurred()) return nullptr;
  return PyLong_FromLong(found == tracers.end() ? 0 : found->second->mode);
}

PyMethodDef methods[] = {{"attach", attach, METH_VARARGS, nullptr},
                         {"watch_frame", watch_frame, METH_VARARGS, nullptr},
                         {"watch_point", watch_point, METH_VARARGS, nullptr},
                         {"rearm", rearm, METH_NOARGS, nullptr},
                         {"detach_all", detach_all, METH_NOARGS, nullptr},
                         {"note_stop", note_stop, METH_NOARGS, nullptr},
                         {"mode_of", mode_of, METH_O, nullptr},
                         {"set_own_folder", set_own_folder, METH_O, nullptr},
                         {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_tracer(PyObject* module) {
  tracer_type.tp_name = "_lockstep_agent.Tracer";
  tracer_type.tp_basicsize = sizeof(Tracer);
  tracer_type.tp_flags = Py_TPFLAGS_DEFAULT;
  tracer_type.tp_dealloc = tracer_free;
  if (PyType_Ready(&tracer_type) < 0) return -1;
  return PyModule_AddFunctions(module, methods);
}

}  // namespace lockstep_agent
