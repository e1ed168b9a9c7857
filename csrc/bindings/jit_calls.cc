// SPDX-License-Identifier: Apache-2.0
#include "bindings/jit_calls.h"

#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <utility>

namespace hloenv {

namespace py = pybind11;

namespace {

// A running call of a decided function.
struct Frame {
  PyObject* self;
  PyObject* args;
  PyObject* kwargs;  // or null
  Frame* outer;
};

thread_local Frame* innermost = nullptr;

// The fields of an instance; null before its __init__.
JitCalls* FieldsOf(PyObject* self) {
  auto* instance = reinterpret_cast<py::detail::instance*>(self);
  return instance->get_value_and_holder().value_ptr<JitCalls>();
}

// The functions below have no destructors: where Python ends, it ends daemon
// threads inside PyObject_Call by unwinding their stacks, without the GIL.

// The number of signatures in the cache of a function of jax.jit; -1 with an
// exception set if it fails. The bound method is not kept: the garbage
// collector does not see through it.
Py_ssize_t NumCached(PyObject* plain) {
  static PyObject* const name = PyUnicode_InternFromString("_cache_size");
  PyObject* count = PyObject_CallMethodNoArgs(plain, name);
  if (count == nullptr) return -1;
  const Py_ssize_t value = PyLong_AsSsize_t(count);
  Py_DECREF(count);
  return value;
}

// self.name(args, kwargs) or self.name(args, kwargs, outputs).
PyObject* CallMethod(PyObject* self, const char* name, PyObject* args,
                     PyObject* kwargs, PyObject* outputs) {
  PyObject* keywords = kwargs == nullptr ? PyDict_New() : Py_NewRef(kwargs);
  if (keywords == nullptr) return nullptr;
  PyObject* result =
      outputs == nullptr
          ? PyObject_CallMethod(self, name, "OO", args, keywords)
          : PyObject_CallMethod(self, name, "OOO", args, keywords, outputs);
  Py_DECREF(keywords);
  return result;
}

PyObject* CallPlain(PyObject* self, const JitCalls* fields, PyObject* plain,
                    PyObject* args, PyObject* kwargs) {
  const Py_ssize_t before = NumCached(plain);
  if (before < 0) return nullptr;
  PyObject* outputs = PyObject_Call(plain, args, kwargs);
  if (outputs == nullptr) return nullptr;
  const Py_ssize_t after = NumCached(plain);
  const bool is_new = before != after || after != fields->num_compiled;
  if (after >= 0 && !is_new && !fields->waits) return outputs;
  PyObject* done =
      after < 0 ? nullptr
                : CallMethod(self, "_consider_after", args, kwargs, outputs);
  if (done == nullptr) Py_CLEAR(outputs);
  Py_XDECREF(done);
  return outputs;
}

PyObject* CallDecided(PyObject* self, PyObject* decided, PyObject* args,
                      PyObject* kwargs) {
  Frame frame{self, args, kwargs, innermost};
  innermost = &frame;
  PyObject* outputs = PyObject_Call(decided, args, kwargs);
  innermost = frame.outer;
  return outputs;
}

// The slot tp_call.
PyObject* Call(PyObject* self, PyObject* args, PyObject* kwargs) {
  JitCalls* fields = FieldsOf(self);
  if (fields == nullptr) {
    PyErr_SetString(PyExc_TypeError, "this function was not initialized");
    return nullptr;
  }
  // References of their own: another thread may replace the attributes.
  PyObject* plain = Py_NewRef(fields->plain.ptr());
  PyObject* decided = Py_NewRef(fields->decided.ptr());
  PyObject* outputs = nullptr;
  if (Py_IsNone(decided) && fields->num_compiled != 0) {
    outputs = CallPlain(self, fields, plain, args, kwargs);
  } else if (PyObject* found =
                 PyObject_CallNoArgs(fields->is_at_top_level.ptr())) {
    const int is_at_top_level = PyObject_IsTrue(found);
    Py_DECREF(found);
    if (is_at_top_level == 0) {
      outputs = PyObject_Call(plain, args, kwargs);
    } else if (is_at_top_level == 1) {
      outputs = Py_IsNone(decided)
                    ? CallMethod(self, "_call_first", args, kwargs, nullptr)
                    : CallDecided(self, decided, args, kwargs);
    }
  }
  Py_DECREF(decided);
  Py_DECREF(plain);
  return outputs;
}

int Traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (JitCalls* fields = FieldsOf(self)) {
    Py_VISIT(fields->plain.ptr());
    Py_VISIT(fields->is_at_top_level.ptr());
    Py_VISIT(fields->decided.ptr());
  }
  return 0;
}

int Clear(PyObject* self) {
  if (JitCalls* fields = FieldsOf(self)) {
    fields->plain = py::none();
    fields->is_at_top_level = py::none();
    fields->decided = py::none();
  }
  return 0;
}

std::optional<py::tuple> CurrentCall(py::handle self) {
  for (const Frame* frame = innermost; frame != nullptr; frame = frame->outer) {
    if (frame->self != self.ptr()) continue;
    const auto kwargs = frame->kwargs == nullptr
                            ? py::dict()
                            : py::reinterpret_borrow<py::dict>(frame->kwargs);
    return py::make_tuple(py::handle(frame->args), kwargs);
  }
  return std::nullopt;
}

}  // namespace

void BindJitCalls(py::module_& m) {
  py::class_<JitCalls, std::unique_ptr<JitCalls>>(
      m, "JitCalls", py::custom_type_setup([](PyHeapTypeObject* type) {
        type->ht_type.tp_flags |= Py_TPFLAGS_HAVE_GC;
        type->ht_type.tp_traverse = Traverse;
        type->ht_type.tp_clear = Clear;
        type->ht_type.tp_call = Call;
      }))
      .def(py::init([](py::object plain, py::object is_at_top_level) {
             return std::make_unique<JitCalls>(JitCalls{
                 std::move(plain), std::move(is_at_top_level), py::none()});
           }),
           py::arg("plain"), py::arg("is_at_top_level"))
      .def_readwrite("_decided", &JitCalls::decided)
      .def_readwrite("_num_compiled", &JitCalls::num_compiled)
      .def_readwrite("_waits", &JitCalls::waits)
      // (args, kwargs) of this thread's running call of the decided function;
      // None if there is none.
      .def("_current_call", &CurrentCall);
}

}  // namespace hloenv
