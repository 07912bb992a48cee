// How often each file's functions are called. Off unless asked for: every call then costs a look into a table.
#include <unordered_map>

#include "agent.h"

namespace lockstep_agent {

bool counting_calls = false;

namespace {

std::unordered_map<PyObject*, uint64_t> calls;  // by file name, held; equal names of two modules are added up later

#if PY_VERSION_HEX < 0x030C0000
// From Python 3.12 on monitoring tells us of each start; before, the profiler does.
int profile(PyObject*, PyFrameObject* frame, int what, PyObject*) {
  if (what != PyTrace_CALL || state.off || busy) return 0;
  PyCodeObject* code = PyFrame_GetCode(frame);
  count_call(code);
  Py_DECREF(code);
  return 0;
}

int install(PyThreadState* thread, bool on) {
  if (on && thread->c_profilefunc == nullptr)
    return _PyEval_SetProfile(thread, profile, nullptr);  // not over another's
  if (!on && thread->c_profilefunc == profile) return _PyEval_SetProfile(thread, nullptr, nullptr);
  return 0;
}
#endif

// count_calls(on, own thread): from now on, in all threads but the debugger's own.
PyObject* count_calls(PyObject*, PyObject* arguments) {
  int on;
  unsigned long own;
  if (!PyArg_ParseTuple(arguments, "pk", &on, &own)) return nullptr;
  counting_calls = on != 0;
#if PY_VERSION_HEX < 0x030C0000
  PyThreadState* thread = PyInterpreterState_ThreadHead(PyThreadState_Get()->interp);
  for (; thread; thread = PyThreadState_Next(thread))
    if (thread->thread_id != own && install(thread, counting_calls) < 0) return nullptr;
#endif
  Py_RETURN_NONE;
}

// What threading.setprofile calls at a new thread's first event: from then on the thread is counted here.
PyObject* count_this_thread(PyObject*, PyObject* const*, Py_ssize_t) {
#if PY_VERSION_HEX < 0x030C0000
  PyThreadState* thread = PyThreadState_Get();
  if (_PyEval_SetProfile(thread, counting_calls ? profile : nullptr, nullptr) < 0) return nullptr;
  PyFrameObject* frame = PyEval_GetFrame();
  if (frame && counting_calls) profile(nullptr, frame, PyTrace_CALL, nullptr);  // the call that has brought us here
#endif
  Py_RETURN_NONE;
}

PyObject* call_counts(PyObject*, PyObject*) {
  Ref result(PyDict_New());
  if (!result) return nullptr;
  for (const auto& [file, count] : calls) {
    PyObject* before = PyDict_GetItemWithError(result.get(), file);
    Ref number(PyLong_FromUnsignedLongLong(count + (before ? PyLong_AsUnsignedLongLong(before) : 0)));
    if (!number || PyDict_SetItem(result.get(), file, number.get()) < 0) return nullptr;
  }
  return result.release();
}

PyObject* counting(PyObject*, PyObject*) {
  return PyBool_FromLong(counting_calls);
}

int call_pending(void* function) {
  Ref held(static_cast<PyObject*>(function));
  Busy inside;
  const Ref result(PyObject_CallNoArgs(held.get()));
  if (!result) PyErr_Clear();  // our trouble is not the program's
  return 0;
}

// call_in_main(function): as soon as the main thread runs Python.
PyObject* call_in_main(PyObject*, PyObject* function) {
  Py_INCREF(function);
  if (Py_AddPendingCall(call_pending, function) < 0) {
    Py_DECREF(function);
    return PyErr_Format(PyExc_RuntimeError, "too many calls wait for the main thread");
  }
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"count_calls", count_calls, METH_VARARGS, nullptr},
    {"count_this_thread", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(count_this_thread)), METH_FASTCALL,
     nullptr},
    {"call_counts", call_counts, METH_NOARGS, nullptr},
    {"counting", counting, METH_NOARGS, nullptr},
    {"call_in_main", call_in_main, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void count_call(PyCodeObject* code) {
  const auto [entry, is_new] = calls.try_emplace(code->co_filename, 0);
  if (is_new) Py_INCREF(code->co_filename);
  ++entry->second;
}

int add_call_counts(PyObject* module) {
  return PyModule_AddFunctions(module, methods);
}

}  // namespace lockstep_agent
