/* A CUDA driver and runtime without a device, for tests of what a library asks of them.

   Device memory is the host's.  A kernel launch is handed to the function given to
   fake_on_launch, and written to the file named by FAKE_CUDA_LOG, one JSON object
   a line.  Compiled twice, once for each library: with FAKE_DRIVER, and without. */
#define cuTensorMapEncodeTiled declared_with_twelve_parameters
#include <cuda.h>
#undef cuTensorMapEncodeTiled
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef FAKE_DRIVER

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  const unsigned magic = *(const unsigned *)image;
  *module = (CUmodule)image;
  return magic == 0xBA55ED50u ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

CUresult cuModuleUnload(CUmodule module) { return CUDA_SUCCESS; }

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  *function = (CUfunction)strdup(name);
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  return CUDA_SUCCESS;
}

typedef int (*on_launch)(const char *kernel, const unsigned *grid, const unsigned *block, unsigned shared,
                         void **values);
static on_launch handler;

void fake_on_launch(on_launch given) { handler = given; }

CUresult cuLaunchKernelEx(const CUlaunchConfig *at, CUfunction function, void **values, void **extra) {
  const unsigned grid[] = {at->gridDimX, at->gridDimY, at->gridDimZ};
  const unsigned block[] = {at->blockDimX, at->blockDimY, at->blockDimZ};
  const char *name = (const char *)function, *path = getenv("FAKE_CUDA_LOG");
  if (path) {
    FILE *log = fopen(path, "a");
    fprintf(log, "{\"kernel\": \"%s\", \"grid\": [%u, %u, %u], \"block\": [%u, %u, %u], \"shared\": %u}\n", name,
            grid[0], grid[1], grid[2], block[0], block[1], block[2], at->sharedMemBytes);
    fclose(log);
  }
  if (handler && handler(name, grid, block, at->sharedMemBytes, values)) return CUDA_ERROR_LAUNCH_FAILED;
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared, CUstream stream, void **values, void **extra) {
  const CUlaunchConfig at = {gx, gy, gz, bx, by, bz, shared, stream, NULL, 0};
  return cuLaunchKernelEx(&at, function, values, extra);
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
  snprintf(name, length, "fake");
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **text) { *text = "FAKE"; return CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult error, const char **text) { *text = "fake"; return CUDA_SUCCESS; }
CUresult cuTensorMapEncodeTiled(void) { return CUDA_ERROR_NOT_SUPPORTED; }

#else

#ifndef FAKE_MAJOR /* of the compute capability */
#define FAKE_MAJOR 8
#endif
#define NOTHING(name, ...) cudaError_t name(__VA_ARGS__) { return cudaSuccess; }

cudaError_t cudaGetDeviceCount(int *count) { *count = 1; return cudaSuccess; }
cudaError_t cudaGetDevice(int *device) { *device = 0; return cudaSuccess; }

/* What is allocated, for those who run kernels: addresses and sizes. */
static struct { void *memory; size_t bytes; } allocated[1 << 16];
static int count;

int fake_allocations(void **memory, size_t *bytes, int most) {
  int found = 0;
  for (int i = 0; i < count && found < most; ++i)
    if (allocated[i].memory) memory[found] = allocated[i].memory, bytes[found++] = allocated[i].bytes;
  return found;
}

cudaError_t cudaMalloc(void **memory, size_t bytes) {
  *memory = aligned_alloc(256, (bytes + 255) / 256 * 256 + 256);
  memset(*memory, 0xff, bytes);
  if (count < 1 << 16) allocated[count].memory = *memory, allocated[count++].bytes = bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void *memory) {
  for (int i = 0; i < count; ++i)
    if (allocated[i].memory == memory) allocated[i].memory = NULL;
  free(memory);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void **memory, size_t bytes) { *memory = malloc(bytes); return cudaSuccess; }
cudaError_t cudaFreeHost(void *memory) { free(memory); return cudaSuccess; }
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t s) {
  memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
  *available = *total = (size_t)1 << 34;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? FAKE_MAJOR : 0;
  return cudaSuccess;
}
/* TVM's timer repeats until the time is long enough: none at all would never end. */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) { *ms = 25; return cudaSuccess; }
const char *cudaGetErrorName(cudaError_t error) { return "fake"; }
const char *cudaGetErrorString(cudaError_t error) { return "fake"; }
NOTHING(cudaGetDeviceProperties, struct cudaDeviceProp *properties, int device)
NOTHING(cudaSetDevice, int device)
NOTHING(cudaGetLastError, void)
NOTHING(cudaPeekAtLastError, void)
NOTHING(cudaStreamCreate, cudaStream_t *stream)
NOTHING(cudaStreamCreateWithFlags, cudaStream_t *stream, unsigned flags)
NOTHING(cudaStreamDestroy, cudaStream_t stream)
NOTHING(cudaStreamSynchronize, cudaStream_t stream)
NOTHING(cudaStreamWaitEvent, cudaStream_t stream, cudaEvent_t event, unsigned flags)
NOTHING(cudaStreamBeginCapture, cudaStream_t stream, enum cudaStreamCaptureMode mode)
NOTHING(cudaStreamEndCapture, cudaStream_t stream, cudaGraph_t *graph)
NOTHING(cudaEventCreate, cudaEvent_t *event)
NOTHING(cudaEventDestroy, cudaEvent_t event)
NOTHING(cudaEventRecord, cudaEvent_t event, cudaStream_t stream)
NOTHING(cudaEventSynchronize, cudaEvent_t event)
NOTHING(cudaGraphDestroy, cudaGraph_t graph)
NOTHING(cudaGraphExecDestroy, cudaGraphExec_t graph)
NOTHING(cudaGraphInstantiate, cudaGraphExec_t *made, cudaGraph_t graph, unsigned long long flags)
NOTHING(cudaGraphLaunch, cudaGraphExec_t graph, cudaStream_t stream)
NOTHING(cudaMemcpyPeerAsync, void *to, int t, const void *from, int f, size_t bytes, cudaStream_t stream)

#endif
