// One stream fills a buffer, another one sums it up: once without an edge between them, once with an
// event that the second stream waits for. Kernels are functions of this program, or, with --gpu, those of
// kernels.cu.
//
//     c++ -std=c++17 pipeline.cpp $(pkg-config --cflags --libs gsan) -Wl,-rpath,$HOME/gsan/lib -ldl -o pipeline
//     ./pipeline racy                       # finds a race: exit code 1
//     ./pipeline                            # finds none: exit code 0
//     ./pipeline racy --gpu kernels.ptx     # the same on a GPU
#include <gsan.h>

#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "cuda.hpp"

namespace {

constexpr int kDevice = 0;
constexpr std::uint32_t kCtas = 16;
constexpr std::uint32_t kThreads = 64;
constexpr std::size_t kValues = std::size_t{kCtas} * kThreads;

void check(gsan_status status) {
  if (status != GSAN_OK) throw std::runtime_error(gsan_last_error());
}

gsan_launch_info launch_info(const char* kernel) {
  gsan_launch_info info{};
  info.size = sizeof info;
  info.kernel = kernel;
  info.grid[0] = kCtas;
  info.grid[1] = info.grid[2] = 1;
  info.block[0] = kThreads;
  info.block[1] = info.block[2] = 1;
  return info;
}

// Memory of the device whose accesses are checked.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes)
      : memory_(gsanMalloc(std::ptrdiff_t(bytes), kDevice, nullptr)), bytes_(bytes) {
    if (memory_ == nullptr) throw std::runtime_error(gsan_last_error());
  }
  ~Buffer() { gsanFree(memory_, std::ptrdiff_t(bytes_), kDevice, nullptr); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::uint64_t address() const { return std::uint64_t(reinterpret_cast<std::uintptr_t>(memory_)); }

 private:
  void* memory_;
  std::size_t bytes_;
};

// What the program needs of a machine.
class Machine {
 public:
  virtual ~Machine() = default;
  virtual void* stream() = 0;
  virtual std::uint64_t event() = 0;
  virtual void clear(std::uint64_t address, std::size_t bytes) = 0;
  virtual void fill(void* stream, std::uint64_t values) = 0;
  virtual void sum(void* stream, std::uint64_t values, std::uint64_t total) = 0;
  virtual void record(std::uint64_t event, void* stream) = 0;
  virtual void wait(void* stream, std::uint64_t event) = 0;
  virtual void synchronize(void* stream) = 0;
};

// Without a GPU: streams and events are GSan's, kernels are functions.
class Host : public Machine {
 public:
  void* stream() override {
    void* stream = nullptr;
    check(gsan_host_stream_create(kDevice, 0, &stream));
    return stream;
  }
  std::uint64_t event() override {
    std::uint64_t event = 0;
    check(gsan_host_event_create(&event));
    return event;
  }
  void clear(std::uint64_t address, std::size_t bytes) override {
    std::memset(reinterpret_cast<void*>(address), 0, bytes);
  }
  void fill(void* stream, std::uint64_t values) override {
    values_ = values;
    launch(stream, "fill", fill_cta, &values_);
  }
  void sum(void* stream, std::uint64_t values, std::uint64_t total) override {
    arguments_ = {values, total};
    launch(stream, "sum", sum_cta, &arguments_);
  }
  void record(std::uint64_t event, void* stream) override {
    check(gsan_event_recorded(event, kDevice, stream));
  }
  void wait(void* stream, std::uint64_t event) override {
    check(gsan_event_waited(event, kDevice, stream));
  }
  void synchronize(void* stream) override {
    check(gsan_stream_synchronized(kDevice, stream));
  }

 private:
  using Arguments = std::pair<std::uint64_t, std::uint64_t>;

  void launch(void* stream, const char* name, gsan_host_kernel kernel, void* arguments) {
    gsan_launch_info info = launch_info(name);
    check(gsan_host_launch(kDevice, stream, &info, kernel, arguments));
  }

  // Kernels are called by GSan, so nothing is thrown out of them.
  static void fill_cta(gsan_cta* cta, const std::uint32_t* index, void* user) {
    std::uint64_t values = *static_cast<std::uint64_t*>(user);
    float ones[kThreads];
    for (float& one : ones) one = 1;
    gsan_host_write(cta, values + index[0] * sizeof ones, ones, sizeof ones, __FILE__, __LINE__);
  }
  static void sum_cta(gsan_cta* cta, const std::uint32_t* index, void* user) {
    auto [values, total] = *static_cast<Arguments*>(user);
    float read[kThreads];
    gsan_host_read(cta, values + index[0] * sizeof read, read, sizeof read, __FILE__, __LINE__);
    float part = 0;
    for (float value : read) part += value;
    for (std::uint64_t before = 0;;) {
      float sum = 0;
      std::memcpy(&sum, &before, sizeof sum);
      sum += part;
      std::uint64_t after = 0, found = 0;
      std::memcpy(&after, &sum, sizeof sum);
      gsan_host_atomic(cta, GSAN_HOST_COMPARE_AND_SWAP, total, sizeof sum, after, before, &found,
                       GSAN_MEMORY_ORDER_RELAXED, GSAN_MEMORY_SCOPE_GPU, __FILE__, __LINE__);
      if (found == before) return;
      before = found;
    }
  }

  // The kernels' own, until they have run.
  std::uint64_t values_ = 0;
  Arguments arguments_;
};

// On a GPU: the driver's streams and events, of which GSan is told.
class Gpu : public Machine {
 public:
  explicit Gpu(const std::string& kernels) {
    std::ifstream file(kernels);
    std::string ptx((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (ptx.empty()) throw std::runtime_error("cannot read " + kernels);
    int device = 0;
    void* context = nullptr;
    driver_("cuInit", 0u);
    driver_("cuDeviceGet", &device, kDevice);
    driver_("cuDevicePrimaryCtxRetain", &context, device);
    driver_("cuCtxSetCurrent", context);
    driver_("cuModuleLoadData", &module_, static_cast<const void*>(ptx.c_str()));
    std::uint32_t rank = 0;
    check(gsan_state_pointer(&globals_));
    check(gsan_device_rank(kDevice, &rank));
    globals_ += rank * gsan_state_stride();
  }
  void* stream() override {
    void* stream = nullptr;
    constexpr unsigned kNonBlocking = 1;
    driver_("cuStreamCreate", &stream, kNonBlocking);
    return stream;
  }
  std::uint64_t event() override {
    void* event = nullptr;
    driver_("cuEventCreate", &event, 0u);
    return reinterpret_cast<std::uintptr_t>(event);
  }
  void clear(std::uint64_t address, std::size_t bytes) override {
    driver_("cuMemsetD8_v2", cuda::Pointer(address), static_cast<unsigned char>(0), bytes);
  }
  void fill(void* stream, std::uint64_t values) override { launch(stream, "fill", values); }
  void sum(void* stream, std::uint64_t values, std::uint64_t total) override {
    launch(stream, "sum", values, total);
  }
  void record(std::uint64_t event, void* stream) override {
    driver_("cuEventRecord", handle(event), stream);
    check(gsan_event_recorded(event, kDevice, stream));
  }
  void wait(void* stream, std::uint64_t event) override {
    driver_("cuStreamWaitEvent", stream, handle(event), 0u);
    check(gsan_event_waited(event, kDevice, stream));
  }
  void synchronize(void* stream) override {
    driver_("cuStreamSynchronize", stream);
    check(gsan_stream_synchronized(kDevice, stream));
  }

 private:
  static void* handle(std::uint64_t event) { return reinterpret_cast<void*>(event); }

  // Every kernel takes, behind its own arguments, those of gsan::Kernel.
  template <class... Own>
  void launch(void* stream, const char* name, Own... own) {
    gsan_launch_info info = launch_info(name);
    gsan_launch* launch = nullptr;
    std::uint64_t table = 0, index = 0;
    void* function = nullptr;
    driver_("cuModuleGetFunction", &function, module_, name);
    check(gsan_launch_begin(kDevice, stream, &info, &launch, &table, &index));
    void* arguments[] = {&own..., &globals_, &table, &index};
    void** none = nullptr;
    try {
      driver_("cuLaunchKernel", function, kCtas, 1u, 1u, kThreads, 1u, 1u, 0u, stream, +arguments,
              none);
    } catch (...) {
      gsan_launch_end(launch, 0);
      throw;
    }
    check(gsan_launch_end(launch, 1));
  }

  cuda::Driver driver_;
  void* module_ = nullptr;
  std::uint64_t globals_ = 0;
};

int run(bool racy, const std::string& kernels) {
  gsan_config config{};
  config.size = sizeof config;
  config.backend = kernels.empty() ? GSAN_BACKEND_HOST : GSAN_BACKEND_CUDA;
  check(gsan_configure(&config));
  std::unique_ptr<Machine> machine;
  if (kernels.empty()) {
    machine = std::make_unique<Host>();
  } else {
    machine = std::make_unique<Gpu>(kernels);
  }

  std::uint64_t races = 0;
  {
    Buffer values(kValues * sizeof(float));
    Buffer total(sizeof(float));
    machine->clear(total.address(), sizeof(float));
    void* first = machine->stream();
    void* second = machine->stream();
    machine->fill(first, values.address());
    if (!racy) {
      std::uint64_t filled = machine->event();
      machine->record(filled, first);
      machine->wait(second, filled);
    }
    machine->sum(second, values.address(), total.address());
    machine->synchronize(first);
    machine->synchronize(second);

    std::size_t bytes = 0;
    check(gsan_report("human", nullptr, &bytes));
    std::string report(bytes, '\0');
    check(gsan_report("human", report.data(), &bytes));
    std::cout << report.c_str();
    check(gsan_race_count(&races, nullptr));
  }
  return races != 0;
}

}  // namespace

int main(int count, char** arguments) {
  bool racy = false;
  std::string kernels;
  for (int i = 1; i < count; ++i) {
    std::string argument = arguments[i];
    if (argument == "racy") {
      racy = true;
    } else if (argument == "--gpu" && i + 1 < count) {
      kernels = arguments[++i];
    } else {
      std::cerr << "usage: pipeline [racy] [--gpu KERNELS.ptx]\n";
      return 2;
    }
  }
  try {
    return run(racy, kernels);
  } catch (const std::exception& error) {
    std::cerr << "pipeline: " << error.what() << "\n";
    return 2;
  }
}
