// The leaf's table: devices, memory, streams, graphs by the CUDA runtime, which is linked in and opens the driver
// itself.
#include <cstdio>
#include <cstring>

#include "backend/cuda/leaf/context.h"
#include "backend/cuda/leaf/kernels.cuh"

namespace lockstep::cuda {
namespace {

thread_local std::string last_message;

Device& device_of(Context context) {
  return *static_cast<Device*>(context);
}
cudaStream_t on(Stream stream) {
  return static_cast<cudaStream_t>(stream);
}

const char* message() {
  return last_message.c_str();
}

Outcome count(int* devices, int* driver_version) {
  *devices = *driver_version = 0;
  if (const Outcome outcome = checked(cudaDriverGetVersion(driver_version), "driver"); outcome != Outcome::kDone)
    return outcome;
  if (*driver_version == 0) return failed("no NVIDIA driver is loaded");
  return checked(cudaGetDeviceCount(devices), "devices");
}

void close(Context context) {
  Device& device = device_of(context);
  cudaSetDevice(device.index);
  cudaDeviceSynchronize();
  device.lt.reset();
  device.dnn.reset();
  for (cudaStream_t stream : device.streams)
    if (stream) cudaStreamDestroy(stream);
  delete &device;
}

Outcome open(int index, const char* lt, const char* dnn, Context* context) {
  auto device = std::make_unique<Device>();
  device->index = index;
  if (const Outcome outcome = checked(cudaSetDevice(index), "device"); outcome != Outcome::kDone) return outcome;
  if (const Outcome outcome = checked(cudaGetDeviceProperties(&device->properties, index), "device");
      outcome != Outcome::kDone)
    return outcome;
  int lowest = 0, highest = 0;
  cudaDeviceGetStreamPriorityRange(&lowest, &highest);
  for (int i = 0; i < kStreams; ++i)
    if (const Outcome outcome =
            checked(cudaStreamCreateWithPriority(&device->streams[i], cudaStreamNonBlocking, i == 1 ? highest : lowest),
                    "streams");
        outcome != Outcome::kDone)
      return outcome;
  std::string why;
  device->lt = open_cublaslt(lt, why);
  if (!device->lt) return failed(("cuBLASLt: " + why).c_str());
  device->dnn = open_cudnn(dnn, why);  // without it our own kernels do, slower
  if (!device->dnn) last_message = "cuDNN: " + why;
  *context = device.release();
  return Outcome::kDone;
}

Outcome facts(Context context, DeviceFacts* facts) {
  const Device& device = device_of(context);
  *facts = {};
  std::snprintf(facts->name, sizeof(facts->name), "%.127s", device.properties.name);
  facts->major = device.properties.major;
  facts->minor = device.properties.minor;
  facts->multiprocessors = device.properties.multiProcessorCount;
  facts->threads_per_multiprocessor = device.properties.maxThreadsPerMultiProcessor;
  facts->leaf_version = CUDART_VERSION;
  cudaDriverGetVersion(&facts->driver_version);
  size_t free = 0, total = 0;
  const Outcome outcome = checked(cudaMemGetInfo(&free, &total), "memory");
  facts->free_bytes = free;
  facts->total_bytes = total;
  if (device.lt) facts->cublaslt_version = version_of(*device.lt);
  if (device.dnn) facts->cudnn_version = version_of(*device.dnn);
  return outcome;
}

Outcome allocate(Context context, size_t bytes, void** data) {
  cudaSetDevice(device_of(context).index);
  const cudaError_t status = cudaMalloc(data, bytes);
  if (status == cudaErrorMemoryAllocation) cudaGetLastError();  // it is answered, not left behind for the next call
  return checked(status, "allocation");
}
void release(Context, void* data) {
  cudaFree(data);
}
Outcome allocate_pinned(Context, size_t bytes, void** data) {
  return checked(cudaMallocHost(data, bytes), "pinned memory");
}
void release_pinned(Context, void* data) {
  cudaFreeHost(data);
}
Stream stream(Context context, int index) {
  return device_of(context).streams[index];
}
Outcome copy(Context, void* to, const void* from, size_t bytes, Stream stream) {
  return checked(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, on(stream)), "copy");
}
Outcome fill(Context, void* to, int value, size_t bytes, Stream stream) {
  return checked(cudaMemsetAsync(to, value, bytes, on(stream)), "fill");
}
Outcome wait_stream(Context, Stream stream) {
  return checked(cudaStreamSynchronize(on(stream)), "kernels");
}
Outcome create_event(Context, int kind, Event* event) {
  const unsigned flags = kind == 1   ? cudaEventDefault
                         : kind == 2 ? cudaEventDisableTiming | cudaEventBlockingSync
                                     : cudaEventDisableTiming;
  cudaEvent_t made = nullptr;
  const Outcome outcome = checked(cudaEventCreateWithFlags(&made, flags), "event");
  *event = made;
  return outcome;
}
void destroy_event(Context, Event event) {
  cudaEventDestroy(static_cast<cudaEvent_t>(event));
}
Outcome record(Context, Event event, Stream stream) {
  return checked(cudaEventRecord(static_cast<cudaEvent_t>(event), on(stream)), "event");
}
Outcome wait_event(Context, Stream stream, Event event) {
  return checked(cudaStreamWaitEvent(on(stream), static_cast<cudaEvent_t>(event), 0), "event");
}
Outcome wait_event_on_host(Context, Event event) {
  return checked(cudaEventSynchronize(static_cast<cudaEvent_t>(event)), "kernels");
}
Outcome elapsed_ms(Context, Event begin, Event end, float* ms) {
  return checked(cudaEventElapsedTime(ms, static_cast<cudaEvent_t>(begin), static_cast<cudaEvent_t>(end)), "event");
}
Outcome begin_capture(Context, Stream stream) {
  return checked(cudaStreamBeginCapture(on(stream), cudaStreamCaptureModeRelaxed), "capture");
}
Outcome end_capture(Context, Stream stream, Graph* graph) {
  *graph = nullptr;
  cudaGraph_t captured = nullptr;
  if (const Outcome outcome = checked(cudaStreamEndCapture(on(stream), &captured), "capture");
      outcome != Outcome::kDone)
    return outcome;
  cudaGraphExec_t made = nullptr;
  const Outcome outcome = checked(cudaGraphInstantiate(&made, captured, 0), "graph");
  cudaGraphDestroy(captured);
  *graph = made;
  return outcome;
}
Outcome launch(Context, Graph graph, Stream stream) {
  return checked(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), on(stream)), "graph");
}
void destroy_graph(Context, Graph graph) {
  cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

}  // namespace

Outcome failed(const char* what) {
  last_message = what;
  return Outcome::kFailed;
}
Outcome unsupported(const char* what) {
  last_message = what;
  return Outcome::kUnsupported;
}
Outcome checked(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return Outcome::kDone;
  last_message = std::string(what) + ": " + cudaGetErrorString(status);
  return status == cudaErrorMemoryAllocation ? Outcome::kNoMemory : Outcome::kFailed;
}

}  // namespace lockstep::cuda

extern "C" __attribute__((visibility("default"))) const lockstep::cuda::Leaf* lockstep_cuda_leaf() {
  using namespace lockstep::cuda;
  static const Leaf leaf{.version = kLeafVersion,
                         .message = message,
                         .count = count,
                         .open = open,
                         .close = close,
                         .facts = facts,
                         .allocate = allocate,
                         .release = release,
                         .allocate_pinned = allocate_pinned,
                         .release_pinned = release_pinned,
                         .stream = stream,
                         .copy = copy,
                         .fill = fill,
                         .wait_stream = wait_stream,
                         .create_event = create_event,
                         .destroy_event = destroy_event,
                         .record = record,
                         .wait_event = wait_event,
                         .wait_event_on_host = wait_event_on_host,
                         .elapsed_ms = elapsed_ms,
                         .begin_capture = begin_capture,
                         .end_capture = end_capture,
                         .launch = launch,
                         .destroy_graph = destroy_graph,
                         .matmul = matmul,
                         .attention_by_library = attention_by_library,
                         .attention = attention,
                         .softmax = softmax,
                         .convolve_by_library = convolve_by_library,
                         .unfold = unfold,
                         .dequantise = dequantise,
                         .quantised_rows = quantised_rows,
                         .packed_product = packed_product,
                         .to_fp8_rows = to_fp8_rows,
                         .from_fp8_rows = from_fp8_rows,
                         .rms_norm = rms_norm,
                         .layer_norm = layer_norm,
                         .gated_norm = gated_norm,
                         .channel_norm = channel_norm,
                         .head_norm_rope = head_norm_rope,
                         .add_gated = add_gated,
                         .epilogue = epilogue,
                         .unary = unary,
                         .binary = binary,
                         .copy_view = copy_view,
                         .gather = gather,
                         .guidance = guidance,
                         .euler_step = euler_step,
                         .denormalize = denormalize,
                         .pixels = pixels,
                         .digest = digest,
                         .philox_normals = philox_normals};
  return &leaf;
}
