// Marching: the samples of a ray are the lattice points n = start + k that lie inside the box and in an occupied cell.
// One thread can look for the first of them; a group of K neighbouring lanes finds the next K together.
#pragma once
#include "occupancy.cuh"

constexpr unsigned ALL_LANES = 0xFFFFFFFFu;
constexpr int MAX_SAMPLES = 1024;  // of a training ray
constexpr float SKIP_SLACK = 0.01f;  // in steps: rounding must not skip a sample just past an empty cell's border

struct Scene {
    const unsigned long long* bits;
    int max_cascade;
    float half_edge, inverse_edge;  // of the box: a cube around 0.5
    vec3 crop_low, crop_high;       // rendering only: points outside have no density
    Stepping stepping;
};

struct Ray {
    vec3 origin, direction;
    float start;
};

struct Point {
    float t, dt;
    vec3 position;
};

__device__ __forceinline__ Scene make_scene(const void* bits, int n_cascades, float cone, int aabb_scale) {
    Scene scene;
    scene.bits = static_cast<const unsigned long long*>(bits);
    scene.max_cascade = n_cascades - 1;
    scene.half_edge = 0.5f * static_cast<float>(aabb_scale);
    scene.inverse_edge = 1.0f / static_cast<float>(aabb_scale);
    scene.stepping = make_stepping(cone);
    return scene;
}

__device__ __forceinline__ Point point_at(const Scene& scene, const Ray& ray, int k) {
    const float n = ray.start + static_cast<float>(k);
    Point p;
    p.t = from_lattice(scene.stepping, n);
    p.dt = from_lattice(scene.stepping, n + 1.0f) - p.t;
    p.position = ray.origin + p.t * ray.direction;
    return p;
}

__device__ __forceinline__ bool inside_box(const Scene& scene, vec3 p) {
    return fmaxf(fabsf(p.x - 0.5f), fmaxf(fabsf(p.y - 0.5f), fabsf(p.z - 0.5f))) <= scene.half_edge;
}

__device__ __forceinline__ vec3 to_unit_cube(const Scene& scene, vec3 p) {
    return {__saturatef((p.x - 0.5f) * scene.inverse_edge + 0.5f), __saturatef((p.y - 0.5f) * scene.inverse_edge + 0.5f),
            __saturatef((p.z - 0.5f) * scene.inverse_edge + 0.5f)};
}

struct Step {
    bool inside, occupied;
    int next;  // first k that can be occupied, if this one is not
};

// Looks at lattice point k. Training looks cells up in a cascade no finer than the step; rendering only by position.
template <bool TRAINING>
__device__ __forceinline__ Step look(const Scene& scene, const Ray& ray, int k) {
    const Point p = point_at(scene, ray, k);
    Step step{inside_box(scene, p.position), false, k + 1};
    if (!step.inside) return step;
    int cascade = cascade_of_position(p.position, scene.max_cascade);
    if (TRAINING) cascade = max(cascade, cascade_of_step(p.dt, scene.max_cascade));
    Cell cell = look_up(scene.bits, p.position, cascade);
    if (!TRAINING) {
        const bool cropped = p.position.x < scene.crop_low.x || p.position.y < scene.crop_low.y || p.position.z < scene.crop_low.z ||
                             p.position.x > scene.crop_high.x || p.position.y > scene.crop_high.y || p.position.z > scene.crop_high.z;
        step.occupied = cell.occupied && !cropped;
        if (cell.occupied) return step;
        while (cell.size == 4 && cascade < scene.max_cascade) {  // empty on the next cascade too? its cells are twice as wide
            const Cell coarser = look_up(scene.bits, p.position, cascade + 1);
            if (coarser.occupied) break;
            cell = coarser;
            ++cascade;
        }
    } else {
        step.occupied = cell.occupied;
        if (cell.occupied) return step;
    }
    float exit = block_exit(cell, p.position, ray.direction, p.t);
    if (TRAINING && scene.stepping.cone > 0.0f && cascade < scene.max_cascade) {
        // From here on the step asks for a coarser cascade, which may be occupied where this one is empty.
        const float limit = 0.999f * exp2_int(cascade - 8) / scene.stepping.cone;
        if (p.t < limit) exit = fminf(exit, limit);
    }
    const float ahead = fminf(to_lattice(scene.stepping, exit) - ray.start - SKIP_SLACK, 1e9f);
    step.next = max(k + 1, static_cast<int>(ceilf(ahead)));
    return step;
}

// First occupied k of a ray, or -1; one thread a ray.
template <bool TRAINING>
__device__ __forceinline__ int first_sample(const Scene& scene, const Ray& ray) {
    int k = 0;
    while (true) {
        const Step step = look<TRAINING>(scene, ray, k);
        if (!step.inside) return -1;
        if (step.occupied) return k;
        k = step.next;
    }
}

// A warp's 32 lanes as 32 / width groups of neighbours; each group works on one ray.
struct Group {
    int width, shift;  // lanes; first lane
    int rank;          // of this lane

    __device__ __forceinline__ explicit Group(int width) : width(width) {
        const int lane = threadIdx.x & 31;
        rank = lane & (width - 1);
        shift = lane - rank;
    }
    __device__ __forceinline__ unsigned ballot(bool value) const {
        const unsigned all = __ballot_sync(ALL_LANES, value) >> shift;
        return width == 32 ? all : all & ((1u << width) - 1);
    }
    __device__ __forceinline__ int below() const { return (1 << rank) - 1; }
    template <typename T>
    __device__ __forceinline__ T from(T value, int source_rank) const {
        return __shfl_sync(ALL_LANES, value, shift + source_rank);
    }
};

// Finds up to `want` (at most the group's width) samples from ray k on and gives the i-th to the lane of rank i.
// k moves on; `ended` is set when the ray has left the box. All lanes of the warp call it together; a group whose ray is
// `ended` on entry takes no part. Stops early when some group has samples and others find none for a while.
// scratch: 32 ints a warp. Returns the number found.
template <bool TRAINING>
__device__ __forceinline__ int find_samples(const Scene& scene, const Ray& ray, const Group& group, int want, int* scratch, int& k, bool& ended, int& own_k) {
    constexpr int PATIENCE = 6;
    int found = 0;
    for (int tries = 0;; ++tries) {
        const bool searching = !ended && found < want;
        if (!__any_sync(ALL_LANES, searching)) break;
        if (tries >= PATIENCE && __any_sync(ALL_LANES, found > 0)) break;
        Step step{true, false, 0};
        if (searching) step = look<TRAINING>(scene, ray, k + group.rank);
        const unsigned outside = group.ballot(!step.inside);
        unsigned occupied = group.ballot(step.occupied);
        if (outside) occupied &= (outside & (0u - outside)) - 1;  // nothing counts from the first lane outside on
        const int rank = __popc(occupied & group.below()), room = want - found, n_new = __popc(occupied);
        const bool mine = occupied >> group.rank & 1;
        if (mine && rank < room) scratch[group.shift + found + rank] = k + group.rank;
        const unsigned left_over = group.ballot(mine && rank == room);
        const int next = group.from(step.next, group.width - 1);
        if (searching) {
            if (left_over) {
                k += __ffs(left_over) - 1;
            } else if (outside) {
                ended = true;
            } else {
                k = next;
            }
            found += min(n_new, room);
        }
    }
    __syncwarp();
    own_k = scratch[threadIdx.x & 31];
    __syncwarp();
    return found;
}
