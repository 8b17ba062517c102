// Rays through the scene box, a cube around 0.5 (slab method), and the transform of a camera ray to internal space.
#pragma once
#include "numbers.cuh"

__device__ __forceinline__ void clip(float origin, float direction, float half_edge, float& near, float& far) {
    const float low = 0.5f - half_edge - origin, high = 0.5f + half_edge - origin;
    if (direction == 0.0f) {
        if (low > 0.0f || high < 0.0f) far = -1.0f, near = 0.0f;
        return;
    }
    const float a = low / direction, b = high / direction;
    near = fmaxf(near, fminf(a, b));
    far = fminf(far, fmaxf(a, b));
}

// Entry (not before 0) and exit; the ray misses where far <= near.
__device__ __forceinline__ void box_interval(vec3 origin, vec3 direction, float half_edge, float& near, float& far) {
    near = 0.0f, far = 1e30f;
    clip(origin.x, direction.x, half_edge, near, far);
    clip(origin.y, direction.y, half_edge, near, far);
    clip(origin.z, direction.z, half_edge, near, far);
}

// pose: [3, 4] row major.
__device__ __forceinline__ vec3 rotate(const float* pose, vec3 v) {
    return {pose[0] * v.x + pose[1] * v.y + pose[2] * v.z, pose[4] * v.x + pose[5] * v.y + pose[6] * v.z, pose[8] * v.x + pose[9] * v.y + pose[10] * v.z};
}
__device__ __forceinline__ vec3 translation(const float* pose) { return {pose[3], pose[7], pose[11]}; }
__device__ __forceinline__ vec3 normalized(vec3 v) { return (1.0f / fmaxf(sqrtf(dot(v, v)), 1e-12f)) * v; }
