// Which functions of a program run and how often, and, where asked for, which lines. Python asks us for every frame
// that it begins (PEP 523); each code object carries the number of its count.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000
#define Py_BUILD_CORE_MODULE 1
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE_MODULE
#endif

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <unordered_set>
#include <utility>

#include "agent.h"

namespace lockstep_agent {
namespace {

constexpr size_t kMostCodes = 1'000'000;  // a program that makes code without end is not kept alive by us

struct Counted {
  PyCodeObject* code;  // held: its count outlives what it belonged to
  uint64_t calls = 0;
  std::vector<bool> lines{};                  // that ran, from the first line on
  int32_t lines_seen = 0, lines_in_all = -1;  // -1: not counted yet
  bool all_seen = false;                      // there is nothing more to learn from tracing it
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

#if PY_VERSION_HEX >= 0x030B0000
// Python's own table of places, read here: asking each of a hundred thousand functions for it takes a second.
void add_table_lines(PyCodeObject* code, std::vector<int>& lines) {
  const auto* at = reinterpret_cast<const unsigned char*>(PyBytes_AS_STRING(code->co_linetable));
  const unsigned char* const end = at + PyBytes_GET_SIZE(code->co_linetable);
  const auto number = [&] {
    unsigned value = 0;
    for (unsigned shift = 0; at < end && shift < 32; shift += 6) {
      const unsigned byte = *at++;
      value |= (byte & 63U) << shift;
      if ((byte & 64U) == 0) break;
    }
    return value;
  };
  int line = code->co_firstlineno;
  while (at < end) {
    const unsigned kind = (*at++ >> 3) & 15U;
    if (kind == 15) continue;  // an instruction of no line
    if (kind >= 13) {
      const unsigned change = number();
      line += (change & 1U) ? -static_cast<int>(change >> 1) : static_cast<int>(change >> 1);
      for (int i = 0; kind == 14 && i < 3; ++i) number();
    } else if (kind >= 10) {
      line += static_cast<int>(kind) - 10;
      at += 2;
    } else {
      at += 1;
    }
    lines.push_back(line);
  }
}
#else
void add_table_lines(PyCodeObject* code, std::vector<int>& lines) {
  const Ref places(PyObject_CallMethod(reinterpret_cast<PyObject*>(code), "co_lines", nullptr));
  while (places) {
    const Ref place(PyIter_Next(places.get()));
    if (!place) break;
    PyObject* line =
        PyTuple_Check(place.get()) && PyTuple_GET_SIZE(place.get()) == 3 ? PyTuple_GET_ITEM(place.get(), 2) : nullptr;
    if (line && PyLong_Check(line)) lines.push_back(static_cast<int>(PyLong_AsLong(line)));
  }
  PyErr_Clear();
}
#endif

// The lines of a code object but the one of its def, which runs where the function is defined.
std::vector<int> lines_of(PyCodeObject* code, int head) {
  std::vector<int> all;
  add_table_lines(code, all);
  std::erase_if(all, [head](int line) { return line <= 0 || line == head; });
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

int head_of(PyCodeObject* code) {
  return (code->co_flags & CO_OPTIMIZED) != 0 ? code->co_firstlineno : -1;
}

#if PY_VERSION_HEX < 0x030C0000
// Whether a frame that begins or goes on now has lines left to tell. A function is asked for its lines when it has been
// called often, and again ever more rarely: most never are.
bool wants_lines(PyCodeObject* code) {
  Counted* entry = count_of(code);
  if (!entry || entry->all_seen) return entry == nullptr;
  const uint64_t calls = entry->calls;
  if (calls < 2 || (calls & (calls - 1)) != 0) return true;
  if (entry->lines_in_all < 0) {
    PyObject *type, *value, *trace;  // a generator may go on with an exception
    PyErr_Fetch(&type, &value, &trace);
    const auto count = static_cast<int32_t>(lines_of(code, head_of(code)).size());
    PyErr_Restore(type, value, trace);
    entry = count_of(code);
    if (!entry) return true;
    entry->lines_in_all = count;
  }
  entry->all_seen = entry->lines_seen >= entry->lines_in_all;
  return !entry->all_seen;
}

// Tracing is a matter of the C frame that a Python frame runs in: it is taken over from the one below.
int tracing_on = 0;
class TracedIf {
 public:
  TracedIf(PyThreadState* thread, PyCodeObject* code) : thread_(thread), before_(thread->cframe->use_tracing) {
    if (counts_lines && thread->c_tracefunc && thread->tracing == 0)
      thread->cframe->use_tracing = static_cast<decltype(before_)>(wants_lines(code) ? tracing_on : 0);
  }
  ~TracedIf() { thread_->cframe->use_tracing = before_; }
  TracedIf(const TracedIf&) = delete;
  TracedIf& operator=(const TracedIf&) = delete;

 private:
  PyThreadState* thread_;
  decltype(std::declval<PyThreadState>().cframe->use_tracing) before_;
};
#endif

// A generator that goes on begins no call.
#if PY_VERSION_HEX >= 0x030C0000
PyObject* evaluate(PyThreadState* thread, struct _PyInterpreterFrame* frame, int throws) {
  if (PyUnstable_InterpreterFrame_GetLasti(frame) < (PY_VERSION_HEX >= 0x030D0000 ? 1 : 0)) {
    PyObject* code = PyUnstable_InterpreterFrame_GetCode(frame);
    if (code && PyCode_Check(code)) count_start(reinterpret_cast<PyCodeObject*>(code));
    Py_XDECREF(code);
  }
  return _PyEval_EvalFrameDefault(thread, frame, throws);
}
#elif PY_VERSION_HEX >= 0x030B0000
PyObject* evaluate(PyThreadState* thread, struct _PyInterpreterFrame* frame, int throws) {
  if (_PyInterpreterFrame_LASTI(frame) < 0) count_start(frame->f_code);
  if (!counts_lines) return _PyEval_EvalFrameDefault(thread, frame, throws);
  const TracedIf traced(thread, frame->f_code);
  return _PyEval_EvalFrameDefault(thread, frame, throws);
}
#else
PyObject* evaluate(PyThreadState* thread, PyFrameObject* frame, int throws) {
  PyCodeObject* code = frame->f_code;
  if (frame->f_lasti < 0) count_start(code);
  if (!counts_lines) return _PyEval_EvalFrameDefault(thread, frame, throws);
  const TracedIf traced(thread, code);
  return _PyEval_EvalFrameDefault(thread, frame, throws);
}
#endif

void mark_line(PyCodeObject* code, int line) {
  Counted* entry = count_of(code);
  const int at = line - code->co_firstlineno;
  if (!entry || at < 0 || at > 1'000'000) return;
  if (static_cast<size_t>(at) >= entry->lines.size()) entry->lines.resize(static_cast<size_t>(at) + 16);
  if (entry->lines[static_cast<size_t>(at)]) return;
  entry->lines[static_cast<size_t>(at)] = true;
  entry->lines_seen += line != head_of(code);
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
  if (counts_lines) tracing_on = PyThreadState_Get()->cframe->use_tracing;
#endif
  Py_RETURN_NONE;
}

// Writes what has run, a line each, and numbers the files: thousands of modules define more functions than Python could
// tell about in the time that we may take.
class CoverageWriter {
 public:
  CoverageWriter(FILE* out, bool lines) : out_(out), lines_(lines) {}

  void write() {
    std::unordered_set<PyObject*> ran;
    for (const Counted& entry : counted) ran.insert(reinterpret_cast<PyObject*>(entry.code));
    for (const Counted& entry : counted) {
      if (entry.calls > 0 || !entry.lines.empty()) write_code(entry.code, entry.calls, &entry.lines);
      // What a module defines and nothing has called is told too: that is what a port can leave out.
      if (is_module(entry.code)) write_unrun(entry.code, ran);
    }
  }

 private:
  static bool is_module(PyCodeObject* code) { return PyUnicode_CompareWithASCIIString(code->co_name, "<module>") == 0; }

  void write_unrun(PyCodeObject* outer, const std::unordered_set<PyObject*>& ran) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(outer->co_consts); ++i) {
      PyObject* item = PyTuple_GET_ITEM(outer->co_consts, i);
      if (!PyCode_Check(item)) continue;
      PyCodeObject* code = reinterpret_cast<PyCodeObject*>(item);
      if (!ran.contains(item)) write_code(code, 0, nullptr);
      write_unrun(code, ran);
    }
  }

  // [file, name, line, calls, runs with its module, lines that ran, all lines]
  void write_code(PyCodeObject* code, uint64_t calls, const std::vector<bool>* ran) {
    const bool inside = (code->co_flags & CO_OPTIMIZED) != 0;  // the body of a class runs with its module
    if (is_generated(code->co_filename) || (!is_module(code) && is_generated(code->co_name))) return;
    const size_t file = file_number(code->co_filename);
    if (file == 0) return;
    std::fprintf(out_, "[%zu,", file);
#if PY_VERSION_HEX >= 0x030B0000
    write_text(code->co_qualname);
#else
    write_text(code->co_name);
#endif
    std::fprintf(out_, ",%d,%llu,%s,[", code->co_firstlineno, static_cast<unsigned long long>(calls),
                 inside ? "false" : "true");
    if (lines_) write_lines(code, head_of(code), ran);
    std::fputs("]]\n", out_);
  }

  // `def` itself runs where the function is defined.
  void write_lines(PyCodeObject* code, int head, const std::vector<bool>* ran) {
    const char* between = "";
    for (size_t at = 0; ran && at < ran->size(); ++at)
      if (const int line = static_cast<int>(at) + code->co_firstlineno; (*ran)[at] && line != head) {
        std::fprintf(out_, "%s%d", between, line);
        between = ",";
      }
    std::fputs("],[", out_);
    between = "";
    for (const int line : lines_of(code, head)) {
      std::fprintf(out_, "%s%d", between, line);
      between = ",";
    }
  }

  static bool is_generated(PyObject* name) {  // made at run time; lambdas and comprehensions belong to their function
    return PyUnicode_GET_LENGTH(name) > 0 && PyUnicode_READ_CHAR(name, 0) == '<';
  }

  size_t file_number(PyObject* name) {
    const auto [entry, is_new] = files_.try_emplace(name, files_.size() + 1);
    if (is_new) {
      std::fprintf(out_, "{\"file\":%zu,\"path\":", entry->second);
      write_text(name);
      std::fputs("}\n", out_);
    }
    return entry->second;
  }

  // Beyond ASCII as \u escapes: any string, halves of surrogate pairs included, is then good JSON.
  void write_text(PyObject* text) {
    std::fputc('"', out_);
    for (Py_ssize_t i = 0; i < PyUnicode_GET_LENGTH(text); ++i) {
      const Py_UCS4 c = PyUnicode_READ_CHAR(text, i);
      if (c == '"' || c == '\\')
        std::fprintf(out_, "\\%c", static_cast<char>(c));
      else if (c >= 32 && c < 127)
        std::fputc(static_cast<char>(c), out_);
      else if (c < 0x10000)
        std::fprintf(out_, "\\u%04x", (c & 0xF800) == 0xD800 ? 0xFFFDU : static_cast<unsigned>(c));
      else
        std::fprintf(out_, "\\u%04x\\u%04x", static_cast<unsigned>(0xD7C0 + (c >> 10)),
                     static_cast<unsigned>(0xDC00 + (c & 0x3FF)));
    }
    std::fputc('"', out_);
  }

  FILE* out_;
  bool lines_;
  std::unordered_map<PyObject*, size_t> files_;  // by address: their code holds them
};

// write_covered(descriptor, lines): all of it, and the descriptor stays open.
PyObject* write_covered(PyObject*, PyObject* arguments) {
  int descriptor, lines;
  if (!PyArg_ParseTuple(arguments, "ip", &descriptor, &lines)) return nullptr;
  FILE* out = ::fdopen(::dup(descriptor), "w");
  if (!out) return PyErr_SetFromErrno(PyExc_OSError);
  CoverageWriter(out, lines != 0).write();
  if (std::fclose(out) != 0) return PyErr_SetFromErrno(PyExc_OSError);
  Py_RETURN_NONE;
}

// In the child of a fork: what its parent did is the parent's.
PyObject* forget_covered(PyObject*, PyObject*) {
  for (Counted& entry : counted) entry = {.code = entry.code, .lines_in_all = entry.lines_in_all};
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

PyMethodDef coverage_methods[] = {{"cover", cover, METH_VARARGS, nullptr},
                                  {"write_covered", write_covered, METH_VARARGS, nullptr},
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
