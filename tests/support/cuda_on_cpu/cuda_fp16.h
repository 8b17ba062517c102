// CUDA's names for a C++ compiler, as far as the kernels use them. A block's threads are fibers of one thread: a warp's
// collective operation suspends a lane until all 32 lanes have come, so a lane that does not come is found as a deadlock,
// and a lane that reads what another has not yet written finds poison or old values.
#pragma once
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) alignas(n)
#define __CUDA_ARCH__ 900

struct uint2 { unsigned x, y; };
struct int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct float2 { float x, y; };
struct uint3 { unsigned x, y, z; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct uchar4 { unsigned char x, y, z, w; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) short4 { short x, y, z, w; };
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline short4 make_short4(short x, short y, short z, short w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline float2 make_float2(float x, float y) { return {x, y}; }

// ---- fibers
struct Warp {
    int arrived = 0;
    unsigned generation = 0;
    uint64_t slots[32][8];
};
struct Fiber {
    ucontext_t context;
    uint3 index;
    bool done;
};
struct Block {
    std::vector<Fiber> fibers;
    std::vector<Warp> warps;
    std::vector<std::unique_ptr<char[]>> stacks;
    ucontext_t scheduler;
    Fiber* current = nullptr;
    int arrived = 0, alive = 0;
    unsigned generation = 0;
    bool progress = false;
    std::function<void()> body;
};
inline Block block;
inline uint3 threadIdx, blockIdx, blockDim, gridDim;

inline void pause_fiber() {
    Fiber* self = block.current;
    swapcontext(&self->context, &block.scheduler);
    block.current = self;
    threadIdx = self->index;
}
inline void fiber_main() {
    block.body();
    block.current->done = true;
    block.alive--;
    block.progress = true;
    swapcontext(&block.current->context, &block.scheduler);
}
inline Warp& warp() { return block.warps[threadIdx.x / 32]; }
inline int lane() { return threadIdx.x & 31; }
inline void __syncwarp() {
    Warp& w = warp();
    block.progress = true;
    if (++w.arrived == 32) {
        w.arrived = 0;
        w.generation++;
        return;
    }
    for (unsigned generation = w.generation; w.generation == generation;) pause_fiber();
}
inline void __syncthreads() {
    block.progress = true;
    if (++block.arrived == block.alive) {
        block.arrived = 0;
        block.generation++;
        return;
    }
    for (unsigned generation = block.generation; block.generation == generation;) {
        pause_fiber();
        if (block.generation == generation && block.arrived == block.alive) {  // others have returned meanwhile
            block.arrived = 0;
            block.generation++;
        }
    }
}

alignas(16) inline unsigned char block_shared_memory[256 * 1024];

inline void run_grid(int gx, int gy, int gz, int threads, bool backwards, std::function<void()> body) {
    gridDim = {unsigned(gx), unsigned(gy), unsigned(gz)};
    blockDim = {unsigned(threads), 1, 1};
    block.body = std::move(body);
    constexpr size_t STACK = 128 * 1024;
    while (block.stacks.size() < size_t(threads)) block.stacks.emplace_back(new char[STACK]);
    for (int b = 0; b < gx * gy * gz; ++b) {
        blockIdx = {unsigned(b % gx), unsigned(b / gx % gy), unsigned(b / gx / gy)};
        std::memset(block_shared_memory, 0xFF, sizeof block_shared_memory);
        block.fibers = std::vector<Fiber>(threads);
        block.warps = std::vector<Warp>((threads + 31) / 32);
        block.arrived = 0;
        block.alive = threads;
        for (int t = 0; t < threads; ++t) {
            Fiber& f = block.fibers[t];
            f.index = {unsigned(t), 0, 0};
            f.done = false;
            getcontext(&f.context);
            f.context.uc_stack.ss_sp = block.stacks[t].get();
            f.context.uc_stack.ss_size = STACK;
            f.context.uc_link = &block.scheduler;
            makecontext(&f.context, fiber_main, 0);
        }
        while (block.alive > 0) {
            block.progress = false;
            for (int i = 0; i < threads; ++i) {
                Fiber& f = block.fibers[backwards ? threads - 1 - i : i];
                if (f.done) continue;
                block.current = &f;
                threadIdx = f.index;
                swapcontext(&block.scheduler, &f.context);
            }
            if (!block.progress && block.alive > 0) {
                static int stuck = 0;
                if (++stuck > 4) {
                    std::fprintf(stderr, "deadlock: %d threads wait for others that do not come\n", block.alive);
                    std::abort();
                }
            }
        }
    }
}

// ---- warp operations, all lanes
template <typename T>
inline uint64_t to_bits(T value) {
    uint64_t bits = 0;
    static_assert(sizeof(T) <= 8);
    std::memcpy(&bits, &value, sizeof(T));
    return bits;
}
template <typename T>
inline T from_bits(uint64_t bits) {
    T value;
    std::memcpy(&value, &bits, sizeof(T));
    return value;
}
template <typename T>
inline T exchange(T value, int source) {
    warp().slots[lane()][0] = to_bits(value);
    __syncwarp();
    const T result = from_bits<T>(warp().slots[source & 31][0]);
    __syncwarp();
    return result;
}
template <typename T>
inline T __shfl_sync(unsigned, T value, int source) { return exchange(value, source); }
template <typename T>
inline T __shfl_xor_sync(unsigned, T value, int mask) { return exchange(value, lane() ^ mask); }
template <typename T>
inline T __shfl_up_sync(unsigned, T value, unsigned delta, int width = 32) {
    return exchange(value, (lane() & (width - 1)) >= int(delta) ? lane() - int(delta) : lane());
}
inline unsigned __ballot_sync(unsigned, bool value) {
    warp().slots[lane()][0] = value;
    __syncwarp();
    unsigned mask = 0;
    for (int i = 0; i < 32; ++i) mask |= unsigned(warp().slots[i][0] & 1) << i;
    __syncwarp();
    return mask;
}
inline bool __any_sync(unsigned all, bool value) { return __ballot_sync(all, value) != 0; }

// ---- halves
inline uint16_t half_bits(float value) {
    uint32_t x;
    std::memcpy(&x, &value, 4);
    const uint32_t sign = x >> 16 & 0x8000, magnitude = x & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) return sign | 0x7E00;
    if (magnitude >= 0x477FF000) return sign | 0x7C00;
    if (magnitude < 0x38800000) {  // subnormal: steps of 2^-24
        float f;
        std::memcpy(&f, &magnitude, 4);
        return sign | uint16_t(std::nearbyint(f * 16777216.0f));
    }
    const uint32_t rounded = magnitude + 0xFFF + (magnitude >> 13 & 1);
    return sign | uint16_t((rounded - 0x38000000) >> 13);
}
inline float half_value(uint16_t h) {
    const int exponent = h >> 10 & 31, mantissa = h & 1023;
    float v = exponent == 0 ? std::ldexp(float(mantissa), -24) : exponent == 31 ? (mantissa ? NAN : INFINITY) : std::ldexp(float(mantissa + 1024), exponent - 25);
    return h & 0x8000 ? -v : v;
}
struct __half {
    uint16_t bits;
    __half() = default;
    __half(float v) : bits(half_bits(v)) {}
};
struct alignas(4) __half2 { __half x, y; };
inline __half __float2half(float v) { return __half(v); }
inline __half2 __float2half2_rn(float v) { return {__half(v), __half(v)}; }
inline __half __float2half_rn(float v) { return __half(v); }
inline float __half2float(__half v) { return half_value(v.bits); }
inline __half2 __floats2half2_rn(float a, float b) { return {__half(a), __half(b)}; }
inline float2 __half22float2(__half2 v) { return {half_value(v.x.bits), half_value(v.y.bits)}; }
inline unsigned short __half_as_ushort(__half v) { return v.bits; }

// ---- numbers
template <typename T>
inline T min(T a, T b) { return a < b ? a : b; }
template <typename T>
inline T max(T a, T b) { return a > b ? a : b; }
inline float __log2f(float v) { return std::log2(v); }
inline float __expf(float v) { return std::exp(v); }
inline float __sinf(float v) { return std::sin(v); }
inline float __cosf(float v) { return std::cos(v); }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float v) { return 1.0f / std::sqrt(v); }
inline float __saturatef(float v) { return v > 0.0f ? (v < 1.0f ? v : 1.0f) : 0.0f; }
inline unsigned __umulhi(unsigned a, unsigned b) { return uint64_t(a) * b >> 32; }
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __ffs(unsigned v) { return __builtin_ffs(int(v)); }
inline int __float_as_int(float v) { return from_bits<int>(to_bits(v)); }
inline int __float2int_rn(float v) {  // saturates; not a number becomes 0
    return v != v ? 0 : v >= 2147483648.0f ? INT32_MAX : v <= -2147483648.0f ? INT32_MIN : int(std::nearbyint(v));
}
inline float __int_as_float(int v) { return from_bits<float>(to_bits(v)); }
template <typename T>
inline T __ldg(const T* p) { return *p; }
template <typename T>
inline T __ldcs(const T* p) { return *p; }
template <typename T>
inline void __stcs(T* p, T v) { *p = v; }
template <typename T>
inline T atomicAdd(T* p, T v) { const T old = *p; *p = old + v; return old; }
inline int atomicMax(int* p, int v) { const int old = *p; *p = max(old, v); return old; }
