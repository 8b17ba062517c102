// sRGB transfer curves (IEC 61966-2-1).
#pragma once
#include "numbers.cuh"

__device__ __forceinline__ float srgb_to_linear(float v) {
    return v <= 0.04045f ? v * (1.0f / 12.92f) : powf((v + 0.055f) * (1.0f / 1.055f), 2.4f);
}
__device__ __forceinline__ float linear_to_srgb(float v) {
    return v <= 0.0031308f ? v * 12.92f : 1.055f * powf(v, 1.0f / 2.4f) - 0.055f;
}
__device__ __forceinline__ vec3 srgb_to_linear(vec3 v) { return {srgb_to_linear(v.x), srgb_to_linear(v.y), srgb_to_linear(v.z)}; }
__device__ __forceinline__ vec3 linear_to_srgb(vec3 v) { return {linear_to_srgb(v.x), linear_to_srgb(v.y), linear_to_srgb(v.z)}; }
