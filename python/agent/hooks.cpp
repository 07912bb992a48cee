// What rewritten bytecode calls, and the counters it holds.
#include "agent.h"

namespace lockstep_agent {

Point* point_at(Py_ssize_t index) {
  if (index < 0 || static_cast<size_t>(index) >= state.points.size()) return nullptr;
  return &state.points[static_cast<size_t>(index)];
}

bool wants_file(PyObject* filename) {
  if (!state.names || state.names == Py_None) return true;
  const Py_ssize_t size = PyUnicode_GET_LENGTH(filename);
  const Py_ssize_t slash = PyUnicode_FindChar(filename, '/', 0, size, -1);
  Ref base(PyUnicode_Substring(filename, slash < 0 ? 0 : slash + 1, size));
  const int found = base ? PySet_Contains(state.names, base.get()) : -1;
  if (found < 0) PyErr_Clear();
  return found != 0;
}

int reach(Py_ssize_t index) {
  if (!state.on_point) return 0;
  Busy inside;
  Ref result(PyObject_CallFunction(state.on_point, "n", index));
  return result ? 0 : -1;
}

namespace {

// Rewritten code walks one of these with FOR_ITER: counting costs no call. Its value is never looked at.
struct Counter {
  PyObject_HEAD Py_ssize_t index;
};

PyObject* counter_next(PyObject* self) {
  if (Point* point = point_at(reinterpret_cast<Counter*>(self)->index)) ++point->reached;
  Py_RETURN_NONE;
}

// torch.compile takes what it finds among the builtins only when it can be called.
PyObject* counter_call(PyObject*, PyObject*, PyObject*) {
  Py_RETURN_NONE;
}

PyTypeObject counter_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

PyObject* new_counter(PyObject*, PyObject* index) {
  Counter* counter = PyObject_New(Counter, &counter_type);
  if (!counter) return nullptr;
  counter->index = PyLong_AsSsize_t(index);
  if (PyErr_Occurred()) {
    Py_DECREF(counter);
    return nullptr;
  }
  return reinterpret_cast<PyObject*>(counter);
}

// Index n: point n is reached. ~n: the condition of point n is true (reaching was counted) and -(2^40) - n: it raised.
constexpr Py_ssize_t kErrorBase = Py_ssize_t{1} << 40;

PyObject* hook(PyObject*, PyObject* argument) {
  const Py_ssize_t code = PyLong_AsSsize_t(argument);
  if (code == -1 && PyErr_Occurred()) return nullptr;
  const Py_ssize_t index = code >= 0 ? code : code <= -kErrorBase ? -(code + kErrorBase) : ~code;
  Point* point = point_at(index);
  if (!point || !point->enabled || state.off || busy) Py_RETURN_NONE;
  if (code >= 0) ++point->reached;
  if (reach(code) < 0) return nullptr;
  Py_RETURN_NONE;
}

PyObject* set_callbacks(PyObject*, PyObject* arguments) {
  PyObject *on_point, *on_step, *on_code, *on_start, *names = Py_None;
  if (!PyArg_ParseTuple(arguments, "OOOO|O", &on_point, &on_step, &on_code, &on_start, &names)) return nullptr;
  const auto keep = [](PyObject*& slot, PyObject* value) {
    PyObject* old = slot;
    slot = value == Py_None ? nullptr : value;
    Py_XINCREF(slot);
    Py_XDECREF(old);
  };
  keep(state.on_point, on_point);
  keep(state.on_step, on_step);
  keep(state.on_code, on_code);
  keep(state.on_start, on_start);
  keep(state.names, names);
  Py_RETURN_NONE;
}

PyObject* new_point(PyObject*, PyObject*) {
  state.points.emplace_back();
  return PyLong_FromSize_t(state.points.size() - 1);
}

PyObject* set_point(PyObject*, PyObject* arguments) {
  Py_ssize_t index;
  int enabled;
  PyObject *condition = Py_None, *names = Py_None, *simple = Py_None;
  if (!PyArg_ParseTuple(arguments, "np|OOO", &index, &enabled, &condition, &names, &simple)) return nullptr;
  Point* point = point_at(index);
  if (!point) return PyErr_Format(PyExc_IndexError, "no point %zd", index);
  point->enabled = enabled != 0;
  release(point->simple);
  point->simple = nullptr;
#if PY_VERSION_HEX >= 0x030C0000
  if (simple != Py_None && !(point->simple = new_condition(simple))) return nullptr;
#endif
  Py_XDECREF(point->condition);
  Py_XDECREF(point->names);
  point->condition = point->names = nullptr;
  if (condition != Py_None && PyTuple_Check(names)) {
    Py_INCREF(condition);
    Py_INCREF(names);
    point->condition = condition;
    point->names = names;
  }
  Py_RETURN_NONE;
}

PyObject* reached(PyObject*, PyObject* index) {
  const Point* point = point_at(PyLong_AsSsize_t(index));
  if (PyErr_Occurred()) return nullptr;
  return PyLong_FromUnsignedLongLong(point ? point->reached : 0);
}

PyObject* enter(PyObject*, PyObject*) {
  enter_debugger();
  Py_RETURN_NONE;
}

PyObject* leave(PyObject*, PyObject*) {
  leave_debugger();
  Py_RETURN_NONE;
}

PyObject* set_off(PyObject*, PyObject* value) {
  state.off = PyObject_IsTrue(value) == 1;
  Py_RETURN_NONE;
}

PyObject* is_busy(PyObject*, PyObject*) {
  return PyBool_FromLong(busy);
}

// builtins.exec with a look at the code first: imports come through here too, and no rewritten code is ever written to
// a .pyc file. A C function has no frame, so that exec still finds its caller's variables.
PyObject* original_exec = nullptr;

PyObject* look_and_exec(PyObject*, PyObject* arguments, PyObject* keywords) {
  PyObject* code = PyTuple_GET_SIZE(arguments) > 0 ? PyTuple_GET_ITEM(arguments, 0) : nullptr;
  if (!code || !PyCode_Check(code) || state.off || busy || !state.on_code ||
      !wants_file(reinterpret_cast<PyCodeObject*>(code)->co_filename))
    return PyObject_Call(original_exec, arguments, keywords);
  PyObject* looked;
  {
    Busy inside;
    looked = PyObject_CallFunctionObjArgs(state.on_code, code, nullptr);
  }
  if (!looked) PyErr_Clear();  // our trouble is not the program's
  Ref replaced(looked);
  if (!looked || looked == code) return PyObject_Call(original_exec, arguments, keywords);
  Ref changed(PyTuple_GetSlice(arguments, 0, PyTuple_GET_SIZE(arguments)));
  if (changed && changed.get() == arguments) {  // CPython shares whole slices
    changed.reset(PyTuple_New(PyTuple_GET_SIZE(arguments)));
    for (Py_ssize_t i = 0; changed && i < PyTuple_GET_SIZE(arguments); ++i)
      PyTuple_SET_ITEM(changed.get(), i, Py_NewRef(PyTuple_GET_ITEM(arguments, i)));
  }
  if (!changed) return nullptr;
  PyObject* old = PyTuple_GET_ITEM(changed.get(), 0);
  PyTuple_SET_ITEM(changed.get(), 0, replaced.release());
  Py_DECREF(old);
  return PyObject_Call(original_exec, changed.get(), keywords);
}

PyMethodDef exec_method = {"exec", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(look_and_exec)),
                           METH_VARARGS | METH_KEYWORDS,
                           "Execute the given source in the context of globals and locals."};

PyObject* looking_exec(PyObject*, PyObject* original) {
  Py_INCREF(original);
  Py_XDECREF(original_exec);
  original_exec = original;
  return PyCFunction_New(&exec_method, nullptr);
}

PyMethodDef methods[] = {{"hook", hook, METH_O, nullptr},
                         {"counter", new_counter, METH_O, nullptr},
                         {"set_callbacks", set_callbacks, METH_VARARGS, nullptr},
                         {"new_point", new_point, METH_NOARGS, nullptr},
                         {"set_point", set_point, METH_VARARGS, nullptr},
                         {"reached", reached, METH_O, nullptr},
                         {"enter", enter, METH_NOARGS, nullptr},
                         {"leave", leave, METH_NOARGS, nullptr},
                         {"is_busy", is_busy, METH_NOARGS, nullptr},
                         {"set_off", set_off, METH_O, nullptr},
                         {"looking_exec", looking_exec, METH_O, nullptr},
                         {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_hooks(PyObject* module) {
  counter_type.tp_name = "_lockstep_agent.Counter";
  counter_type.tp_basicsize = sizeof(Counter);
  counter_type.tp_flags = Py_TPFLAGS_DEFAULT;
  counter_type.tp_iter = PyObject_SelfIter;
  counter_type.tp_iternext = counter_next;
  counter_type.tp_call = counter_call;
  if (PyType_Ready(&counter_type) < 0) return -1;
  if (PyModule_AddIntConstant(module, "ERROR_BASE", kErrorBase) < 0) return -1;
  return PyModule_AddFunctions(module, methods);
}

}  // namespace lockstep_agent
