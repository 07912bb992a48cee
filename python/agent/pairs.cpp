// Python 3.12 runs some pairs of instructions as one. It takes a function's pairs apart when anything of it is
// reported, be it that it starts or its lines, and leaves them so when nothing is any more: every function that has run
// once would stay slower, a hot loop by a tenth. Here they are put together again. Python takes them apart by itself
// before it reports further lines.
#include <array>

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

// How many units of a plain instruction's own data follow it; -1: it is specialised, or reports, and what follows is
// not known here. The numbers are those of 3.12's opcode.h and do not change within 3.12.
constexpr std::array<signed char, 256> kDataUnits = [] {
  constexpr struct {
    int first, last;
  } kNotPlain[] = {{0, 0},   {6, 8},     {10, 10},   {13, 14},   {16, 16},   {18, 24},   {28, 29},  {34, 34},
                   {38, 48}, {56, 59},   {62, 67},   {70, 70},   {72, 73},   {76, 82},   {84, 84},  {86, 86},
                   {88, 88}, {111, 113}, {148, 148}, {153, 154}, {158, 161}, {166, 170}, {177, 255}};
  std::array<signed char, 256> units{};
  for (const auto& range : kNotPlain)
    for (int op = range.first; op <= range.last; ++op) units[static_cast<size_t>(op)] = -1;
  units[INSTRUMENTED_RESUME] = 0;  // where it reports that it starts
  for (const int op :
       {BINARY_SUBSCR, STORE_SUBSCR, UNPACK_SEQUENCE, FOR_ITER, COMPARE_OP, BINARY_OP, SEND, LOAD_SUPER_ATTR})
    units[static_cast<size_t>(op)] = 1;
  units[CALL] = 3;
  units[LOAD_GLOBAL] = units[STORE_ATTR] = 4;
  units[LOAD_ATTR] = 9;
  return units;
}();

unsigned char* instructions(PyObject* code) {
  return reinterpret_cast<unsigned char*>(reinterpret_cast<PyCodeObject*>(code)->co_code_adaptive);
}

}  // namespace

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

void join_pairs_of_new(PyObject* code) {
  if (!(reinterpret_cast<PyCodeObject*>(code)->co_flags & CO_OPTIMIZED)) return;  // no fast variables, no pairs
  unsigned char* current = instructions(code);
  const Py_ssize_t size = Py_SIZE(code);
  int previous = 0;
  for (Py_ssize_t at = 0; at < size;) {
    const int op = current[2 * at], data = kDataUnits[static_cast<size_t>(op)];
    if (data < 0) return;  // it has run before, or somebody else looks at it
    if (previous)
      for (const Pair& pair : kPairs)
        if (pair.first == previous && pair.second == op)
          current[2 * (at - 1)] = static_cast<unsigned char>(pair.joined);
    previous = op == LOAD_FAST || op == LOAD_CONST || op == STORE_FAST ? op : 0;
    at += 1 + data;
  }
}

void join_pairs_again(PyObject* code) {
  if (!(reinterpret_cast<PyCodeObject*>(code)->co_flags & CO_OPTIMIZED)) return;
  const Ref untouched(PyObject_CallMethod(code, "replace", nullptr));
  if (untouched)
    join_pairs(code, untouched.get());
  else
    PyErr_Clear();  // it is only slower
}

}  // namespace lockstep_agent
#else
namespace lockstep_agent {

void join_pairs(PyObject*, PyObject*) {}

void join_pairs_of_new(PyObject*) {}

void join_pairs_again(PyObject*) {}

}  // namespace lockstep_agent
#endif
