// The functions of the CUDA driver that pipeline.cpp uses, looked up at run time: so it builds without
// the CUDA toolkit, and starts without a GPU.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace cuda {

using Pointer = unsigned long long;

class Driver {
 public:
  Driver() : library_(dlopen("libcuda.so.1", RTLD_NOW)) {
    if (library_ == nullptr) throw std::runtime_error(dlerror());
  }

  // Calls a function by its name, whose result must be CUDA_SUCCESS.
  template <class... Arguments>
  void operator()(const char* name, Arguments... arguments) const {
    void* symbol = dlsym(library_, name);
    if (symbol == nullptr) throw std::runtime_error(dlerror());
    int result = reinterpret_cast<int (*)(Arguments...)>(symbol)(arguments...);
    if (result != 0) throw std::runtime_error(std::string(name) + ": " + text(result));
  }

 private:
  std::string text(int result) const {
    const char* said = nullptr;
    auto error = reinterpret_cast<int (*)(int, const char**)>(dlsym(library_, "cuGetErrorString"));
    if (error != nullptr) error(result, &said);
    return said != nullptr ? said : "error " + std::to_string(result);
  }

  void* library_;
};

}  // namespace cuda
