// Lens models: from the image plane (pixel - principal) / focal to a camera-space ray. Formulas: geometry/lenses.py.
#pragma once
#include "box.cuh"

enum Lens { PERSPECTIVE, OPENCV, OPENCV_FISHEYE, FTHETA, LATLONG, EQUIRECTANGULAR, ORTHOGRAPHIC };

constexpr int N_LENS_PARAMS = 7;
constexpr int N_NEWTON_STEPS = 12;
constexpr float WIDE_ANGLE_COSINE = 0.01f;

__device__ __forceinline__ vec3 opencv_ray(float u, float v, const float* params) {
    const float k1 = params[0], k2 = params[1], p1 = params[2], p2 = params[3];
    float x = u, y = v;
    for (int i = 0; i < N_NEWTON_STEPS; ++i) {
        const float r2 = x * x + y * y, radial = 1.0f + r2 * (k1 + r2 * k2), slope = 2.0f * (k1 + 2.0f * k2 * r2);
        const float error_x = x * radial + 2.0f * p1 * x * y + p2 * (r2 + 2.0f * x * x) - u;
        const float error_y = y * radial + 2.0f * p2 * x * y + p1 * (r2 + 2.0f * y * y) - v;
        const float xx = radial + slope * x * x + 2.0f * p1 * y + 6.0f * p2 * x;
        const float yy = radial + slope * y * y + 2.0f * p2 * x + 6.0f * p1 * y;
        const float xy = slope * x * y + 2.0f * p1 * x + 2.0f * p2 * y;
        float determinant = xx * yy - xy * xy;
        if (fabsf(determinant) < 1e-9f) determinant = 1.0f;
        const float dx = (yy * error_x - xy * error_y) / determinant, dy = (xx * error_y - xy * error_x) / determinant;
        x -= dx, y -= dy;
        if (fabsf(dx) + fabsf(dy) < 1e-8f) break;
    }
    return {x, y, 1.0f};
}

__device__ __forceinline__ vec3 fisheye_ray(float u, float v, const float* k) {
    constexpr float PI = 3.14159265358979f;
    const float radius = sqrtf(u * u + v * v);
    float theta = fminf(radius, PI);
    for (int i = 0; i < N_NEWTON_STEPS; ++i) {
        const float t2 = theta * theta;
        const float value = theta * (1.0f + t2 * (k[0] + t2 * (k[1] + t2 * (k[2] + t2 * k[3]))));
        float slope = 1.0f + t2 * (3.0f * k[0] + t2 * (5.0f * k[1] + t2 * (7.0f * k[2] + t2 * 9.0f * k[3])));
        if (fabsf(slope) < 1e-6f) slope = 1.0f;
        theta = clamped(theta - (value - radius) / slope, 0.0f, PI);
    }
    const float scale = radius > 1e-9f ? __sinf(theta) / radius : 1.0f, cosine = __cosf(theta);  // 0 <= theta <= pi
    const vec3 ray{u * scale, v * scale, cosine};
    return cosine > WIDE_ANGLE_COSINE ? (1.0f / cosine) * ray : ray;
}

// Camera-space ray through the plane point (u, v); the caller has checked that the lens is one of these.
__device__ __forceinline__ vec3 camera_ray(int lens, float u, float v, const float* params) {
    if (lens == OPENCV) return opencv_ray(u, v, params);
    if (lens == OPENCV_FISHEYE) return fisheye_ray(u, v, params);
    return {u, v, 1.0f};
}

// Views one after the other (rays/op.py).
struct Cameras {
    const float* camera_to_world;
    const float* focal;
    const float* principal;
    const int* resolution;
    const int* lens;
    const float* lens_params;
};

// Unit direction in internal space through the position (x, y) of a view, in pixels.
__device__ __forceinline__ vec3 direction_through(const Cameras& cameras, int view, float x, float y) {
    const float* focal = cameras.focal + 2 * view;
    const float* principal = cameras.principal + 2 * view;
    const vec3 ray = camera_ray(cameras.lens[view], (x - principal[0]) / focal[0], (y - principal[1]) / focal[1], cameras.lens_params + N_LENS_PARAMS * view);
    return normalized(rotate(cameras.camera_to_world + 12 * view, ray));
}
