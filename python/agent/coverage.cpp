// Which functions of a program run and how often, and, where asked for, which lines. Python asks us for every frame
// that it begins (PEP 523); each code object carries the number of its count.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000
#define Py_BUILD_CORE_MODULE 1
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE_MODULE
#endif

#include "agent.h"

namespace lockstep_agent {
namespace {

constexpr size_t kMostCodes = 1'000'000;  // a program that makes code without end is not kept alive by us

struct Counted {
  PyCodeObject* code;  // held: its count outlives what it belonged to
  uint64_t calls = 0;
  std::vector<bool> lines{};  // that ran, from the first line on
};
std::vector<Counted> counted;
Py_ssize_t extra_index = -1;
bool counts = false, counts_lines = false;

#if PY_VERSION_HEX >= 0x030C0000
const auto get_extra = PyUnstable_Code_GetExtra;
const auto set_extra = PyUnstable_Code_SetExtra;
const auto request_extra = PyUnstable_Eval_RequestCodeExtraIndex;
#else
const auto get_extra = _PyCode_GetExtra;
const auto set_extra = _PyCode_SetExtra;
const auto request_extra = _PyEval_RequestCodeExtraIndex;
#endif

Counted* count_of(PyCodeObject* code) {
  PyObject* object = reinterpret_cast<PyObject*>(code);
  void* extra = nullptr;
  if (get_extra(object, extra_index, &extra) < 0) {
    PyErr_Clear();
    return nullptr;
  }
  if (!extra) {
    if (counted.size() >= kMostCodes) return nullptr;
    counted.push_back({code});
    Py_INCREF(code);
    extra = reinterpret_cast<void*>(counted.size());  // NOLINT: a number in the place of a pointer
    if (set_extra(object, extra_index, extra) < 0) PyErr_Clear();
  }
  return &counted[reinterpret_cast<size_t>(extra) - 1];
}

void count_start(PyCodeObject* code) {
  if (Counted* entry = count_of(code)) ++entry->calls;
}

// A generator that goes on begins no call.
#if PY_VERSION_HEX >= 0x030C0000
PyObject* evaluate(PyThreadState* thread, struct _PyInterpreterFrame* frame, int throws) {
  if (PyUnstable_InterpreterFrame_GetLasti(frame) < 0) {
    PyObject* code = PyUnstable_InterpreterFrame_GetCode(frame);
    if (code && PyCode_Check(code)) count_start(reinterpret_cast<PyCodeObject*>(code));
    Py_XDECREF(code);
  }
  return _PyEval_EvalFrameDefault(thread, frame, throws);
}
#elif PY_VERSION_HEX >= 0x030B0000
PyObject* evaluate(PyThreadState* thread, struct _PyInterpreterFrame* frame, int throws) {
  if (_PyInterpreterFrame_LASTI(frame) < 0) count_start(frame->f_code);
  return _PyEval_EvalFrameDefault(thread, frame, throws);
}
#else
PyObject* evaluate(PyThreadState* thread, PyFrameObject* frame, int throws) {
  if (frame->f_lasti < 0) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    count_start(code);
    Py_DECREF(code);
  }
  return _PyEval_EvalFrameDefault(thread, frame, throws);
}
#endif

void mark_line(PyCodeObject* code, int line) {
  Counted* entry = count_of(code);
  const int at = line - code->co_firstlineno;
  if (!entry || at < 0 || at > 1'000'000) return;
  if (static_cast<size_t>(at) >= entry->lines.size()) entry->lines.resize(static_cast<size_t>(at) + 16);
  entry->lines[static_cast<size_t>(at)] = true;
}

// sys.monitoring's callback: each place reports once.
PyObject* line_ran(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (count == 2 && PyCode_Check(arguments[0]))
    mark_line(reinterpret_cast<PyCodeObject*>(arguments[0]), static_cast<int>(PyLong_AsLong(arguments[1])));
  if (PyErr_Occurred()) PyErr_Clear();
  return Py_NewRef(state.disable ? state.disable : Py_None);
}

#if PY_VERSION_HEX < 0x030C0000
int trace_line(PyObject*, PyFrameObject* frame, int what, PyObject*) {
  if (what != PyTrace_LINE) return 0;
  PyCodeObject* code = PyFrame_GetCode(frame);
  mark_line(code, PyFrame_GetLineNumber(frame));
  Py_DECREF(code);
  return 0;
}
#endif

// threading.settrace calls it at a new thread's first event.
PyObject* cover_this_thread(PyObject*, PyObject* const*, Py_ssize_t) {
#if PY_VERSION_HEX < 0x030C0000
  if (_PyEval_SetTrace(PyThreadState_Get(), counts_lines ? trace_line : nullptr, nullptr) < 0) return nullptr;
#endif
  Py_RETURN_NONE;
}

// cover(functions, lines): from now on. Lines of Python 3.12 and later come through line_ran.
PyObject* cover(PyObject*, PyObject* arguments) {
  int functions, lines;
  if (!PyArg_ParseTuple(arguments, "pp", &functions, &lines)) return nullptr;
  if (extra_index < 0) extra_index = request_extra(nullptr);
  if (extra_index < 0) return PyErr_Format(PyExc_RuntimeError, "Python has no room for our counts");
  counts = functions != 0;
  counts_lines = lines != 0;
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  const auto now = _PyInterpreterState_GetEvalFrameFunc(interpreter);
  if (counts && now == _PyEval_EvalFrameDefault) _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate);
  if (!counts && now == evaluate) _PyInterpreterState_SetEvalFrameFunc(interpreter, _PyEval_EvalFrameDefault);
#if PY_VERSION_HEX < 0x030C0000
  if (_PyEval_SetTrace(PyThreadState_Get(), counts_lines ? trace_line : nullptr, nullptr) < 0) return nullptr;
#endif
  Py_RETURN_NONE;
}

// [(code, calls, [lines that ran])] of all code that has run.
PyObject* covered(PyObject*, PyObject*) {
  Ref result(PyList_New(0));
  if (!result) return nullptr;
  for (size_t i = 0; i < counted.size(); ++i) {  // by number: making a tuple may run a finaliser, which is counted
    Ref lines(PyList_New(0));
    if (!lines) return nullptr;
    for (size_t at = 0; at < counted[i].lines.size(); ++at) {
      if (!counted[i].lines[at]) continue;
      Ref line(PyLong_FromSize_t(at + static_cast<size_t>(counted[i].code->co_firstlineno)));
      if (!line || PyList_Append(lines.get(), line.get()) < 0) return nullptr;
    }
    Ref item(Py_BuildValue("OKO", counted[i].code, static_cast<unsigned long long>(counted[i].calls), lines.get()));
    if (!item || PyList_Append(result.get(), item.get()) < 0) return nullptr;
  }
  return result.release();
}

// In the child of a fork: what its parent did is the parent's.
PyObject* forget_covered(PyObject*, PyObject*) {
  for (Counted& entry : counted) {
    entry.calls = 0;
    entry.lines.clear();
  }
  Py_RETURN_NONE;
}

PyObject* set_disable(PyObject*, PyObject* value) {
  Py_INCREF(value);
  Py_XSETREF(state.disable, value);
  Py_RETURN_NONE;
}

template <typename Function>
PyCFunction as_method(Function function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef coverage_methods[] = {
    {"cover", cover, METH_VARARGS, nullptr},
    {"covered", covered, METH_NOARGS, nullptr},
    {"forget_covered", forget_covered, METH_NOARGS, nullptr},
    {"cover_this_thread", as_method(cover_this_thread), METH_FASTCALL, nullptr},
    {"line_ran", as_method(line_ran), METH_FASTCALL, nullptr},
    {"set_monitoring_disable", set_disable, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_coverage(PyObject* module) {
  return PyModule_AddFunctions(module, coverage_methods);
}

}  // namespace lockstep_agent
