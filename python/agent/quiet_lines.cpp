// A line can have several places that report it: its start, and where a loop within the line comes back. Python asks a
// place whether to report only when the line before was another, so that the place inside the loop is never asked,
// never switched off, and a loop of one line stays slower by a fifth to a third for as long as its function has a
// breakpoint elsewhere. When a line without a breakpoint has been switched off at one place, its other places are
// switched off here, as Python does it: the instruction takes the place of the reporting one. Python puts the reporting
// one back by itself when lines are to be reported anew.
#include <algorithm>

#include "agent.h"

#if PY_VERSION_HEX >= 0x030C0000 && !defined(Py_GIL_DISABLED)
#include <opcode.h>

namespace lockstep_agent {
namespace {

constexpr int kStart = 0, kLine = 5;  // numbers of sys.monitoring's events
#if PY_VERSION_HEX >= 0x030E0000
constexpr int kLocalEvents = 11, kRoom = 11;
#elif PY_VERSION_HEX >= 0x030D0000
constexpr int kLocalEvents = 10, kRoom = 10;
#else
constexpr int kLocalEvents = 10, kRoom = 15;
#endif

// Whether lines and starts are all that is reported of this code, and to one tool alone: another's must go on.
bool reports_to_one_alone(const PyCodeObject* code) {
  const auto* data = reinterpret_cast<const unsigned char*>(code->_co_monitoring);
  if (!data) return false;
  const unsigned char* active = data + kRoom;  // bits of tools for each event; those of this code alone come before
  const unsigned char ours = active[kLine];
  if (ours == 0 || (ours & (ours - 1)) != 0 || (active[kStart] | ours) != ours) return false;
  for (int event = 0; event < kLocalEvents; ++event)
    if (event != kStart && event != kLine && active[event] != 0) return false;
  return true;
}

}  // namespace

std::unordered_map<int, std::vector<Py_ssize_t>> places_of_lines(PyObject* code) {
  std::unordered_map<int, std::vector<Py_ssize_t>> places;
  const Ref plain(
      PyCode_GetCode(reinterpret_cast<PyCodeObject*>(code)));  // what follows an instruction as its data is 0
  const Ref ranges(plain ? PyObject_CallMethod(code, "co_lines", nullptr) : nullptr);
  if (!ranges) {
    PyErr_Clear();  // it is only slower
    return places;
  }
  const char* bytes = PyBytes_AS_STRING(plain.get());
  const Py_ssize_t size = PyBytes_GET_SIZE(plain.get());
  while (const Ref range{PyIter_Next(ranges.get())}) {
    Py_ssize_t from, to;
    PyObject* line;
    if (!PyArg_ParseTuple(range.get(), "nnO", &from, &to, &line)) break;
    if (line == Py_None) continue;
    for (Py_ssize_t at = from; at < std::min(to, size); at += 2)
      if (bytes[at] != CACHE) places[static_cast<int>(PyLong_AsLong(line))].push_back(at);
  }
  PyErr_Clear();
  return places;
}

void quiet_line(PyObject* code, PyObject* untouched, const std::vector<Py_ssize_t>& places) {
  auto* object = reinterpret_cast<PyCodeObject*>(code);
  if (Py_SIZE(code) != Py_SIZE(untouched) || !reports_to_one_alone(object)) return;
  auto* current = reinterpret_cast<unsigned char*>(object->co_code_adaptive);
  const auto* fresh =
      reinterpret_cast<const unsigned char*>(reinterpret_cast<PyCodeObject*>(untouched)->co_code_adaptive);
  const Ref plain(PyCode_GetCode(object));
  if (!plain) return PyErr_Clear();
  const auto* bytes = reinterpret_cast<const unsigned char*>(PyBytes_AS_STRING(plain.get()));
  const Py_ssize_t size = PyBytes_GET_SIZE(plain.get());
  for (const Py_ssize_t at : places) {
    if (current[at] != INSTRUMENTED_LINE) continue;
    if (at + 3 < size && bytes[at + 2] == CACHE)  // it counts from the beginning until it is specialised
      std::copy_n(fresh + at + 2, 2, current + at + 2);
    current[at] = bytes[at];
  }
}

}  // namespace lockstep_agent
#else
namespace lockstep_agent {

std::unordered_map<int, std::vector<Py_ssize_t>> places_of_lines(PyObject*) {
  return {};
}

void quiet_line(PyObject*, PyObject*, const std::vector<Py_ssize_t>&) {}

}  // namespace lockstep_agent
#endif
