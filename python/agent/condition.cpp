// Simple conditions of breakpoints in monitored code (Python 3.12 and later), as a few steps on a small stack: no
// Python code runs for `i == 3` or `step > 10 and not done`.
#include "agent.h"

namespace lockstep_agent {

void release(Condition* condition) {
  if (!condition || --condition->held > 0) return;
  for (const ConditionStep& step : condition->steps) Py_XDECREF(step.object);
  delete condition;
}

#if PY_VERSION_HEX >= 0x030C0000
namespace {

constexpr size_t kMostDepth = 8;
constexpr Py_ssize_t kMostSteps = 64;

#if PY_VERSION_HEX < 0x030E0000
// The head of CPython's own frame, which it declares in internal headers only; the same in 3.12 and 3.13.
struct Frame {
  PyObject* code;
  Frame* previous;
  PyObject *function, *globals, *builtins, *locals;
  PyFrameObject* object;
  void* instruction;
  int stack_top;
  uint16_t return_offset;
  char owner;
  PyObject* values[1];  // local variables first
};

Frame* running_frame(PyObject* code) {
  PyThreadState* thread = PyThreadState_Get();
#if PY_VERSION_HEX >= 0x030D0000
  Frame* frame = reinterpret_cast<Frame*>(thread->current_frame);
#else
  Frame* frame = thread->cframe ? reinterpret_cast<Frame*>(thread->cframe->current_frame) : nullptr;
#endif
  return frame && frame->code == code ? frame : nullptr;
}

// Whether frames look as declared above, asked once of Python itself: a build of CPython may differ.
bool frames_are_known(Frame* frame, int index, PyObject* name) {
  static int known = -1;
  if (known >= 0) return known == 1;
  PyFrameObject* object = PyEval_GetFrame();
  Ref value(object ? PyFrame_GetVar(object, name) : nullptr);
  if (!value) {
    PyErr_Clear();
    return false;  // not bound yet: ask again
  }
  known = frame->values[index] == value.get() ? 1 : 0;
  return known == 1;
}

// Borrowed, without a look at Python; nullptr when that is not possible or it is not bound.
PyObject* local_at_once(PyObject* code, const ConditionStep& step) {
  Frame* frame = running_frame(code);
  return frame && frames_are_known(frame, step.argument, step.object) ? frame->values[step.argument] : nullptr;
}

PyObject* local_value(PyObject* code, const ConditionStep& step) {
  Frame* frame = running_frame(code);
  if (!frame || !frames_are_known(frame, step.argument, step.object)) {
    PyFrameObject* object = PyEval_GetFrame();
    return object ? PyFrame_GetVar(object, step.object) : nullptr;
  }
  return Py_XNewRef(frame->values[step.argument]);
}
#else
PyObject* local_at_once(PyObject*, const ConditionStep&) {
  return nullptr;
}

PyObject* local_value(PyObject*, const ConditionStep& step) {
  PyFrameObject* object = PyEval_GetFrame();
  return object ? PyFrame_GetVar(object, step.object) : nullptr;
}
#endif

template <typename Number>
bool ordered(Number left, Number right, int how) {
  switch (how) {
    case Py_LT:
      return left < right;
    case Py_LE:
      return left <= right;
    case Py_EQ:
      return left == right;
    case Py_NE:
      return left != right;
    case Py_GT:
      return left > right;
    default:
      return left >= right;
  }
}

bool is_small(PyObject* value) {
  return PyLong_CheckExact(value) && PyUnstable_Long_IsCompact(reinterpret_cast<PyLongObject*>(value));
}

// Plain numbers, which no code of the program compares; -1 for everything else.
int compared_at_once(PyObject* left, PyObject* right, int how) {
  if (is_small(left) && is_small(right))
    return ordered(PyUnstable_Long_CompactValue(reinterpret_cast<PyLongObject*>(left)),
                   PyUnstable_Long_CompactValue(reinterpret_cast<PyLongObject*>(right)), how);
  if (PyFloat_CheckExact(left) && PyFloat_CheckExact(right))
    return ordered(PyFloat_AS_DOUBLE(left), PyFloat_AS_DOUBLE(right), how);
  return -1;
}

PyObject* compared(PyObject* left, PyObject* right, int how) {
  const int known = compared_at_once(left, right, how);
  return known >= 0 ? PyBool_FromLong(known) : PyObject_RichCompare(left, right, how);
}

// The usual condition, a variable and a number: most loops end here. -1 for everything else.
int holds_at_once(const Condition& condition, PyObject* code) {
  const auto& steps = condition.steps;
  if (steps.size() != 3 || steps[0].kind != ConditionStep::kLocal || steps[1].kind != ConditionStep::kConstant ||
      steps[2].kind != ConditionStep::kCompare)
    return -1;
  PyObject* value = local_at_once(code, steps[0]);
  return value ? compared_at_once(value, steps[1].object, steps[2].argument) : -1;
}

PyObject* calculated(PyObject* left, PyObject* right, int how) {
  switch (how) {
    case '+':
      return PyNumber_Add(left, right);
    case '-':
      return PyNumber_Subtract(left, right);
    case '*':
      return PyNumber_Multiply(left, right);
    case '%':
      return PyNumber_Remainder(left, right);
    case '/':
      return PyNumber_FloorDivide(left, right);
    default:
      return PyNumber_And(left, right);
  }
}

// The operators that take two values from the stack.
PyObject* combined(PyObject* left, PyObject* right, const ConditionStep& step) {
  switch (step.kind) {
    case ConditionStep::kCompare:
      return compared(left, right, step.argument);
    case ConditionStep::kIs:
      return PyBool_FromLong((left == right) == (step.argument == 0));
    case ConditionStep::kCalculate:
      return calculated(left, right, step.argument);
    default:
      return PyObject_GetItem(left, right);
  }
}

}  // namespace

int holds(const Condition& condition, PyObject* code) {
  const int known = holds_at_once(condition, code);
  if (known >= 0) return known;
  Busy inside;
  Ref stack[kMostDepth];
  size_t depth = 0;
  for (size_t at = 0; at < condition.steps.size(); ++at) {
    const ConditionStep& step = condition.steps[at];
    switch (step.kind) {
      case ConditionStep::kLocal:
        stack[depth++].reset(local_value(code, step));
        break;
      case ConditionStep::kConstant:
        stack[depth++].reset(Py_NewRef(step.object));
        break;
      case ConditionStep::kAttribute:
        stack[depth - 1].reset(PyObject_GetAttr(stack[depth - 1].get(), step.object));
        break;
      case ConditionStep::kNot: {
        const int truth = PyObject_IsTrue(stack[depth - 1].get());
        stack[depth - 1].reset(truth < 0 ? nullptr : PyBool_FromLong(!truth));
        break;
      }
      case ConditionStep::kAnd:  // leaves a false value and jumps, else drops it and goes on
      case ConditionStep::kOr: {
        const int truth = PyObject_IsTrue(stack[depth - 1].get());
        if (truth < 0) return -1;
        if ((truth == 0) == (step.kind == ConditionStep::kAnd))
          at = static_cast<size_t>(step.argument) - 1;
        else
          stack[--depth].reset(nullptr);
        continue;
      }
      default: {
        const Ref right(stack[--depth].release());
        stack[depth - 1].reset(combined(stack[depth - 1].get(), right.get(), step));
      }
    }
    if (!stack[depth - 1]) return -1;
  }
  return PyObject_IsTrue(stack[0].get());
}

// [(kind, argument, object or None), ...] → steps; nullptr with an exception for what would leave the stack.
Condition* new_condition(PyObject* steps) {
  if (!PyTuple_Check(steps) || PyTuple_GET_SIZE(steps) < 1 || PyTuple_GET_SIZE(steps) > kMostSteps) {
    PyErr_SetString(PyExc_ValueError, "a condition has 1 to 64 steps");
    return nullptr;
  }
  auto condition = new Condition;
  size_t depth = 0;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(steps); ++i) {
    int kind, argument;
    PyObject* object;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(steps, i), "iiO", &kind, &argument, &object)) break;
    const bool pushes = kind == ConditionStep::kLocal || kind == ConditionStep::kConstant;
    const bool jumps = kind == ConditionStep::kAnd || kind == ConditionStep::kOr;
    const bool one = kind == ConditionStep::kAttribute || kind == ConditionStep::kNot || jumps;
    const size_t needs = pushes ? 0 : one ? 1 : 2;
    if (kind < 0 || kind > ConditionStep::kItem || depth < needs || (pushes && depth == kMostDepth) || argument < 0 ||
        (jumps && (argument <= i || argument > PyTuple_GET_SIZE(steps)))) {
      PyErr_Format(PyExc_ValueError, "step %zd of a condition is wrong", i);
      break;
    }
    depth = pushes ? depth + 1 : one && !jumps ? depth : depth - 1;
    condition->steps.push_back({static_cast<ConditionStep::Kind>(kind), argument, Py_NewRef(object)});
  }
  if (!PyErr_Occurred() && depth != 1) PyErr_SetString(PyExc_ValueError, "a condition leaves one value");
  if (!PyErr_Occurred()) return condition;
  release(condition);
  return nullptr;
}
#endif

}  // namespace lockstep_agent
