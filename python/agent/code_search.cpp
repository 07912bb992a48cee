// Finding code in a running program, and changing what only C can change.
#include <cstring>
#include <string_view>

#include "agent.h"

namespace lockstep_agent {
namespace {

std::string_view text_of(PyObject* unicode) {
  Py_ssize_t size;
  const char* text = PyUnicode_AsUTF8AndSize(unicode, &size);
  if (!text) {
    PyErr_Clear();
    return {};
  }
  return {text, static_cast<size_t>(size)};
}

bool in_file_named(PyCodeObject* code, std::string_view base) {
  const std::string_view file = text_of(code->co_filename);
  return base.empty() || (file.size() >= base.size() && file.substr(file.size() - base.size()) == base &&
                          (file.size() == base.size() || file[file.size() - base.size() - 1] == '/'));
}

PyObject* all_objects() {
  Ref gc(PyImport_ImportModule("gc"));
  return gc ? PyObject_CallMethod(gc.get(), "get_objects", nullptr) : nullptr;
}

PyCodeObject* code_of(PyObject* object) {
  if (PyFunction_Check(object)) return reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(object));
  return nullptr;
}

// scan(base name or "") → functions and suspended generators and coroutines whose code is in a file of that name
PyObject* scan(PyObject*, PyObject* name) {
  const std::string_view base = text_of(name);
  Ref objects(all_objects()), functions(PyList_New(0)), generators(PyList_New(0));
  if (!objects || !functions || !generators) return nullptr;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(objects.get()); ++i) {
    PyObject* object = PyList_GET_ITEM(objects.get(), i);
    if (PyCodeObject* code = code_of(object)) {
      if (in_file_named(code, base) && PyList_Append(functions.get(), object) < 0) return nullptr;
    } else if (PyGen_CheckExact(object) || PyCoro_CheckExact(object) || PyAsyncGen_CheckExact(object)) {
      if (PyList_Append(generators.get(), object) < 0) return nullptr;
    }
  }
  return PyTuple_Pack(2, functions.get(), generators.get());
}

bool has_run([[maybe_unused]] PyCodeObject* code) {
#if PY_VERSION_HEX >= 0x030C0000
  return false;  // start_event knows
#elif PY_VERSION_HEX >= 0x030B0000
  return code->co_warmup != -8;  // counts from -8 towards 0 with each start and each turn of a loop
#else
  return code->co_opcache_flag != 0;
#endif
}

// run_counts() → {file name: [functions, functions that ran]}
PyObject* run_counts(PyObject*, PyObject*) {
  Ref objects(all_objects()), result(PyDict_New());
  if (!objects || !result) return nullptr;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(objects.get()); ++i) {
    PyCodeObject* code = code_of(PyList_GET_ITEM(objects.get(), i));
    if (!code) continue;
    PyObject* counts = PyDict_GetItemWithError(result.get(), code->co_filename);
    if (!counts) {
      Ref fresh(Py_BuildValue("[ii]", 0, 0));
      if (!fresh || PyDict_SetItem(result.get(), code->co_filename, fresh.get()) < 0) return nullptr;
      counts = fresh.get();
    }
    const long total = PyLong_AsLong(PyList_GET_ITEM(counts, 0)), ran = PyLong_AsLong(PyList_GET_ITEM(counts, 1));
    PyList_SetItem(counts, 0, PyLong_FromLong(total + 1));
    if (has_run(code)) PyList_SetItem(counts, 1, PyLong_FromLong(ran + 1));
  }
  return result.release();
}

PyObject* code_has_run(PyObject*, PyObject* code) {
  if (!PyCode_Check(code)) return PyErr_Format(PyExc_TypeError, "not code");
  return PyBool_FromLong(has_run(reinterpret_cast<PyCodeObject*>(code)));
}

// Functions that are not made yet come from their parent's constants, also in parents that are running.
PyObject* replace_const(PyObject*, PyObject* arguments) {
  PyObject *constants, *old, *fresh;
  if (!PyArg_ParseTuple(arguments, "O!OO", &PyTuple_Type, &constants, &old, &fresh)) return nullptr;
  long changed = 0;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(constants); ++i) {
    if (PyTuple_GET_ITEM(constants, i) != old) continue;
    Py_INCREF(fresh);
    PyTuple_SET_ITEM(constants, i, fresh);
    Py_DECREF(old);
    ++changed;
  }
  return PyLong_FromLong(changed);
}

bool name_inside(PyCodeObject* code, std::string_view name, int depth) {
  if (text_of(code->co_name) == name) return true;
  if (depth > 20) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code->co_consts); ++i) {
    PyObject* constant = PyTuple_GET_ITEM(code->co_consts, i);
    if (PyCode_Check(constant) && name_inside(reinterpret_cast<PyCodeObject*>(constant), name, depth + 1)) return true;
  }
  return false;
}

PyObject* has_name(PyObject*, PyObject* arguments) {
  PyObject *code, *name;
  if (!PyArg_ParseTuple(arguments, "O!U", &PyCode_Type, &code, &name)) return nullptr;
  return PyBool_FromLong(name_inside(reinterpret_cast<PyCodeObject*>(code), text_of(name), 0));
}

PyObject* stack_effect(PyObject*, PyObject* arguments) {
  int opcode, argument, jump;
  if (!PyArg_ParseTuple(arguments, "iii", &opcode, &argument, &jump)) return nullptr;
  return PyLong_FromLong(PyCompile_OpcodeStackEffectWithJump(opcode, argument, jump));
}

PyObject* raise_in(PyObject*, PyObject* arguments) {
  unsigned long ident;
  PyObject* exception;
  if (!PyArg_ParseTuple(arguments, "kO", &ident, &exception)) return nullptr;
  return PyLong_FromLong(PyThreadState_SetAsyncExc(ident, exception == Py_None ? nullptr : exception));
}

PyObject* locals_to_fast(PyObject*, PyObject* frame) {
  if (!PyFrame_Check(frame)) return PyErr_Format(PyExc_TypeError, "not a frame");
#if PY_VERSION_HEX < 0x030D0000
  PyFrame_LocalsToFast(reinterpret_cast<PyFrameObject*>(frame), 1);
#endif
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {{"scan", scan, METH_O, nullptr},
                         {"run_counts", run_counts, METH_NOARGS, nullptr},
                         {"code_has_run", code_has_run, METH_O, nullptr},
                         {"replace_const", replace_const, METH_VARARGS, nullptr},
                         {"has_name", has_name, METH_VARARGS, nullptr},
                         {"stack_effect", stack_effect, METH_VARARGS, nullptr},
                         {"raise_in", raise_in, METH_VARARGS, nullptr},
                         {"locals_to_fast", locals_to_fast, METH_O, nullptr},
                         {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_code_search(PyObject* module) {
  return PyModule_AddFunctions(module, methods);
}

}  // namespace lockstep_agent
