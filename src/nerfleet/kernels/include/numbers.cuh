// Small vectors and conversions.
#pragma once
#include <cuda_fp16.h>

struct vec3 {
    float x, y, z;
};

__device__ __forceinline__ vec3 operator+(vec3 a, vec3 b) { return {a.x + b.x, a.y + b.y, a.z + b.z}; }
__device__ __forceinline__ vec3 operator-(vec3 a, vec3 b) { return {a.x - b.x, a.y - b.y, a.z - b.z}; }
__device__ __forceinline__ vec3 operator*(vec3 a, vec3 b) { return {a.x * b.x, a.y * b.y, a.z * b.z}; }
__device__ __forceinline__ vec3 operator*(float s, vec3 a) { return {s * a.x, s * a.y, s * a.z}; }
__device__ __forceinline__ float dot(vec3 a, vec3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
__device__ __forceinline__ float sum(vec3 a) { return a.x + a.y + a.z; }

__device__ __forceinline__ float clamped(float value, float low, float high) { return fminf(fmaxf(value, low), high); }
__device__ __forceinline__ vec3 load3(const float* p) { return {p[0], p[1], p[2]}; }
__device__ __forceinline__ void store3(float* p, vec3 v) {
    p[0] = v.x;
    p[1] = v.y;
    p[2] = v.z;
}

// The bits of two floats rounded to halves.
__device__ __forceinline__ unsigned pack_halves(float low, float high) {
    const __half2 h = __floats2half2_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&h);
}
__device__ __forceinline__ __half2 as_half2(unsigned bits) { return *reinterpret_cast<const __half2*>(&bits); }
__device__ __forceinline__ float2 unpack_halves(unsigned bits) { return __half22float2(as_half2(bits)); }
__device__ __forceinline__ bool is_finite(float v) { return fabsf(v) <= 3.4028234e38f; }
