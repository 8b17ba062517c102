// Rays through axis-aligned boxes (slab method), and the transform of a camera ray to internal space.
#pragma once
#include "numbers.cuh"

struct Box {
    vec3 low, high;
};

__device__ __forceinline__ void clip(float origin, float direction, float box_low, float box_high, float& near, float& far) {
    const float low = box_low - origin, high = box_high - origin;
    if (direction == 0.0f) {
        if (low > 0.0f || high < 0.0f) far = -1.0f;
        return;
    }
    const float a = low / direction, b = high / direction;
    near = fmaxf(near, fminf(a, b));
    far = fminf(far, fmaxf(a, b));
}

// Entry (not before 0) and exit; the ray misses where far <= near.
__device__ __forceinline__ void box_interval(vec3 origin, vec3 direction, const Box& box, float& near, float& far) {
    near = 0.0f, far = 1e30f;
    clip(origin.x, direction.x, box.low.x, box.high.x, near, far);
    clip(origin.y, direction.y, box.low.y, box.high.y, near, far);
    clip(origin.z, direction.z, box.low.z, box.high.z, near, far);
}

// pose: [3, 4] row major.
__device__ __forceinline__ vec3 rotate(const float* pose, vec3 v) {
    return {pose[0] * v.x + pose[1] * v.y + pose[2] * v.z, pose[4] * v.x + pose[5] * v.y + pose[6] * v.z, pose[8] * v.x + pose[9] * v.y + pose[10] * v.z};
}
__device__ __forceinline__ vec3 translation(const float* pose) { return {pose[3], pose[7], pose[11]}; }
__device__ __forceinline__ vec3 normalized(vec3 v) { return (1.0f / fmaxf(sqrtf(dot(v, v)), 1e-12f)) * v; }
