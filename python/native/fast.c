/* checkpoint() as a C function: while nothing is recorded it is one branch and a return, whatever its arguments. Built
 * against the limited API, so that one file serves every CPython from 3.10 on. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

static int off = 1;
static PyObject* slow_path;  /* lockstep._record_call, used while recording */
static PyObject* debug_path; /* the Python form of debug_checkpoint */

/* What checkpoint() returns when it does nothing: the tensor, or the named tensors in order. */
static PyObject* given(PyObject* const* args, Py_ssize_t count, PyObject* names) {
  Py_ssize_t named = names ? PyTuple_Size(names) : 0, tensors = 0;
  PyObject* only = NULL;
  if (count > 1 && args[1] != Py_None) {
    only = args[1];
    ++tensors;
  }
  for (Py_ssize_t i = 0; i < named; ++i) {
    PyObject* name = PyTuple_GetItem(names, i);
    if (!PyUnicode_CompareWithASCIIString(name, "step") || !PyUnicode_CompareWithASCIIString(name, "tags")) continue;
    only = args[count + i];
    ++tensors;
  }
  if (tensors == 0) Py_RETURN_NONE;
  if (tensors == 1) {
    Py_INCREF(only);
    return only;
  }
  PyObject* result = PyTuple_New(tensors);
  if (!result) return NULL;
  Py_ssize_t at = 0;
  if (count > 1 && args[1] != Py_None) {
    Py_INCREF(args[1]);
    PyTuple_SetItem(result, at++, args[1]);
  }
  for (Py_ssize_t i = 0; i < named; ++i) {
    PyObject* name = PyTuple_GetItem(names, i);
    if (!PyUnicode_CompareWithASCIIString(name, "step") || !PyUnicode_CompareWithASCIIString(name, "tags")) continue;
    Py_INCREF(args[count + i]);
    PyTuple_SetItem(result, at++, args[count + i]);
  }
  return result;
}

static PyObject* call(PyObject* function, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  PyObject* positional = PyTuple_New(count);
  PyObject* keywords = PyDict_New();
  PyObject* result = NULL;
  if (!positional || !keywords) goto done;
  for (Py_ssize_t i = 0; i < count; ++i) {
    Py_INCREF(args[i]);
    PyTuple_SetItem(positional, i, args[i]);
  }
  for (Py_ssize_t i = 0; names && i < PyTuple_Size(names); ++i)
    if (PyDict_SetItem(keywords, PyTuple_GetItem(names, i), args[count + i]) < 0) goto done;
  result = PyObject_Call(function, positional, keywords);
done:
  Py_XDECREF(positional);
  Py_XDECREF(keywords);
  return result;
}

static PyObject* checkpoint(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  (void)self;
  if (!off) return call(slow_path, args, count, names);
  if (!names && count == 2) {
    Py_INCREF(args[1]);
    return args[1];
  }
  return given(args, count, names);
}

/* Off, it does nothing but end the program where it is told to; what that takes is left to the Python form. */
static PyObject* debug_checkpoint(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  (void)self;
  int may_end = !off || count != 1;
  for (Py_ssize_t i = 0; !may_end && names && i < PyTuple_Size(names); ++i)
    may_end = !PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, i), "terminate_after");
  if (may_end) return call(debug_path, args, count, names);
  Py_RETURN_NONE;
}

static PyObject* set_off(PyObject* self, PyObject* value) {
  (void)self;
  const int is_off = PyObject_IsTrue(value);
  if (is_off < 0) return NULL;
  off = is_off;
  Py_RETURN_NONE;
}

static PyObject* keep(PyObject** place, PyObject* function) {
  Py_INCREF(function);
  Py_XDECREF(*place);
  *place = function;
  Py_RETURN_NONE;
}

static PyObject* set_slow_path(PyObject* self, PyObject* function) {
  (void)self;
  return keep(&slow_path, function);
}

static PyObject* set_debug_path(PyObject* self, PyObject* function) {
  (void)self;
  return keep(&debug_path, function);
}

static PyMethodDef methods[] = {
    {"checkpoint", (PyCFunction)(void (*)(void))checkpoint, METH_FASTCALL | METH_KEYWORDS,
     "checkpoint(name=None, tensor=None, /, *, step=None, tags=None, **named)\n--\n\n"
     "Records a tensor and returns it, or the reference's value where that is to be substituted."},
    {"debug_checkpoint", (PyCFunction)(void (*)(void))debug_checkpoint, METH_FASTCALL | METH_KEYWORDS,
     "debug_checkpoint(checkpoint_name, stream=None, context=None, metadata=None, skip=False, verified=False,\n"
     "                 terminate_after=False, **variables)\n--\n\n"
     "checkpoint() under the name and with the arguments that mflux ports use."},
    {"set_off", set_off, METH_O, NULL},
    {"set_slow_path", set_slow_path, METH_O, NULL},
    {"set_debug_path", set_debug_path, METH_O, NULL},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "lockstep._fast", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__fast(void) {
  return PyModule_Create(&module);
}
