// Python 3.12 runs some pairs of instructions as one. It takes a function's pairs apart when lines of it are reported,
// and leaves them so when they no longer are: the function that holds a breakpoint would stay slower by a tenth. Here
// they are put together again. Python takes them apart by itself before it reports further lines.
#include "agent.h"

#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030D0000
#include <opcode.h>

namespace lockstep_agent {
namespace {

struct Pair {
  int joined, first, second;
};
constexpr Pair kPairs[] = {{LOAD_FAST__LOAD_FAST, LOAD_FAST, LOAD_FAST},
                           {LOAD_FAST__LOAD_CONST, LOAD_FAST, LOAD_CONST},
                           {LOAD_CONST__LOAD_FAST, LOAD_CONST, LOAD_FAST},
                           {STORE_FAST__LOAD_FAST, STORE_FAST, LOAD_FAST},
                           {STORE_FAST__STORE_FAST, STORE_FAST, STORE_FAST}};

unsigned char* instructions(PyObject* code) {
  return reinterpret_cast<unsigned char*>(reinterpret_cast<PyCodeObject*>(code)->co_code_adaptive);
}

}  // namespace

PyObject* untouched_copy(PyObject* code) {
  return PyObject_CallMethod(code, "replace", nullptr);
}

void join_pairs(PyObject* code, PyObject* untouched) {
  if (Py_SIZE(code) != Py_SIZE(untouched)) return;
  unsigned char* current = instructions(code);
  const unsigned char* original = instructions(untouched);
  const Py_ssize_t size = 2 * Py_SIZE(code);  // an opcode and its argument each
  for (Py_ssize_t at = 0; at + 3 < size; at += 2) {
    if (current[at + 1] != original[at + 1] || current[at + 3] != original[at + 3]) continue;
    for (const Pair& pair : kPairs) {
      // The second must be plain: a line that still reports must not be jumped over.
      if (original[at] == pair.joined && current[at] == pair.first &&
          (current[at + 2] == pair.second || current[at + 2] == original[at + 2]))
        current[at] = static_cast<unsigned char>(pair.joined);
    }
  }
}

}  // namespace lockstep_agent
#else
namespace lockstep_agent {

PyObject* untouched_copy(PyObject*) {
  Py_RETURN_NONE;
}

void join_pairs(PyObject*, PyObject*) {}

}  // namespace lockstep_agent
#endif
