// Statistics of a tensor's values by the capture library, which is loaded when they are asked for the first time.
#include <dlfcn.h>

#include "agent.h"
#include "lockstep/lockstep.h"

namespace lockstep_agent {
namespace {

using StatisticsFunction = lockstep_status (*)(const lockstep_view*, lockstep_statistics*);
StatisticsFunction compute = nullptr;

PyObject* load_statistics(PyObject*, PyObject* path) {
  PyObject* converted = nullptr;
  if (!PyUnicode_FSConverter(path, &converted)) return nullptr;
  Ref bytes(converted);
  void* library = dlopen(PyBytes_AS_STRING(converted), RTLD_NOW | RTLD_LOCAL);
  if (library) compute = reinterpret_cast<StatisticsFunction>(dlsym(library, "lockstep_view_statistics"));
  return PyBool_FromLong(compute != nullptr);
}

PyObject* computed(const lockstep_view& view) {
  lockstep_statistics out{};
  lockstep_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = compute(&view, &out);
  Py_END_ALLOW_THREADS;
  if (status < 0) Py_RETURN_NONE;
  return Py_BuildValue("{sdsdsdsdsdsdsLsLsLsL}", "min", out.min, "max", out.max, "mean", out.mean, "std", out.std,
                       "rms", out.rms, "absmax", out.absmax, "nan", static_cast<long long>(out.nan), "inf",
                       static_cast<long long>(out.inf), "zero", static_cast<long long>(out.zero), "denormal",
                       static_cast<long long>(out.denormal));
}

// statistics(address, dtype code, shape, strides in elements or None) → dict, None when the library refuses
PyObject* statistics(PyObject*, PyObject* arguments) {
  Py_ssize_t address;
  int dtype;
  PyObject *shape, *strides;
  if (!PyArg_ParseTuple(arguments, "niO!O", &address, &dtype, &PyTuple_Type, &shape, &strides)) return nullptr;
  if (!compute) Py_RETURN_NONE;
  std::vector<int64_t> sizes, steps;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(shape); ++i)
    sizes.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(shape, i)));
  if (PyTuple_Check(strides))
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(strides); ++i)
      steps.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(strides, i)));
  if (PyErr_Occurred()) return nullptr;
  return computed({reinterpret_cast<const void*>(address), dtype, static_cast<int32_t>(sizes.size()), sizes.data(),
                   steps.empty() ? nullptr : steps.data()});
}

// buffer_statistics(object with a buffer, dtype code): the code may differ from the buffer's own (bfloat16 as integers)
PyObject* buffer_statistics(PyObject*, PyObject* arguments) {
  PyObject* object;
  int dtype;
  if (!PyArg_ParseTuple(arguments, "Oi", &object, &dtype)) return nullptr;
  if (!compute) Py_RETURN_NONE;
  Py_buffer buffer;
  if (PyObject_GetBuffer(object, &buffer, PyBUF_STRIDES | PyBUF_FORMAT) < 0) {
    PyErr_Clear();
    Py_RETURN_NONE;
  }
  std::vector<int64_t> sizes(buffer.shape, buffer.shape + buffer.ndim), steps;
  bool whole = buffer.itemsize > 0;
  for (int i = 0; i < buffer.ndim && whole; ++i) {
    whole = buffer.strides[i] % buffer.itemsize == 0;
    steps.push_back(buffer.strides[i] / buffer.itemsize);
  }
  PyObject* result = nullptr;
  if (whole)
    result = computed(
        {buffer.buf, dtype, static_cast<int32_t>(sizes.size()), sizes.data(), steps.empty() ? nullptr : steps.data()});
  else
    result = Py_NewRef(Py_None);
  PyBuffer_Release(&buffer);
  return result;
}

PyMethodDef methods[] = {{"load_statistics", load_statistics, METH_O, nullptr},
                         {"statistics", statistics, METH_VARARGS, nullptr},
                         {"buffer_statistics", buffer_statistics, METH_VARARGS, nullptr},
                         {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_statistics(PyObject* module) {
  return PyModule_AddFunctions(module, methods);
}

}  // namespace lockstep_agent
