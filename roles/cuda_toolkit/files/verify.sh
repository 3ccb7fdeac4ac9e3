#!/bin/sh
# usage: verify.sh NVCC M.m ARCHITECTURE...
# Proves that NVCC is release M.m, compiles a kernel for every architecture, and runs it where a driver is loaded.
# Everything is said on stdout; leaves nothing behind.
exec 2>&1
nvcc=$1 release=$2
shift 2
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

said=$("$nvcc" --version) || { echo "$nvcc --version failed: $said"; exit 1; }
case $said in
  *"release $release,"*) ;;
  *) echo "$nvcc says '$(echo "$said" | grep release)', expected release $release"; exit 1 ;;
esac

cat > "$work/verify.cu" <<'CU'
#include <cstdio>
#include <cuda_runtime.h>

__global__ void sum(int *total) { atomicAdd(total, threadIdx.x); }

int main()
{
    int devices = 0, *total = nullptr, result = 0;
    cudaError_t error = cudaGetDeviceCount(&devices);
    for (int device = 0; error == cudaSuccess && device < devices; device++) {
        cudaSetDevice(device);
        cudaMalloc(&total, sizeof(int));
        cudaMemset(total, 0, sizeof(int));
        sum<<<1, 256>>>(total);
        error = cudaMemcpy(&result, total, sizeof(int), cudaMemcpyDeviceToHost);
        cudaFree(total);
        if (error == cudaSuccess && result != 32640) {
            printf("GPU %d computed %d, expected 32640\n", device, result);
            return 1;
        }
    }
    if (error != cudaSuccess) {
        printf("the compiled kernel did not run: %s\n", cudaGetErrorString(error));
        return 1;
    }
    printf("ran on %d GPUs\n", devices);
    return 0;
}
CU

codes=
for architecture in "$@"; do
  codes="$codes -gencode arch=compute_$architecture,code=sm_$architecture"
done
# shellcheck disable=SC2086 # a list of words
"$nvcc" $codes -o "$work/verify" "$work/verify.cu" || { echo "$nvcc could not compile for $*"; exit 1; }
echo "compiled for $*"
if [ "$CUDA_TOOLKIT_RUN" = no ]; then
  echo "not run: cuda_toolkit_run_kernel is false"
  exit 0
fi
if [ ! -e /proc/driver/nvidia/version ]; then
  echo "not run: the test kernel compiles, but no NVIDIA driver is loaded here"
  exit 0
fi
"$work/verify"
