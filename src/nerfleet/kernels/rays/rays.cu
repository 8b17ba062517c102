// Training rays: which pixel each looks through, its ray, the colour it should have. One thread a ray.
//   pixels [P, 4] u8, pixel_offsets, drawable [n_views + 1] i64 (first pixel of each view; how many pixels before it may be drawn),
//   places [P] i32 or null (index of each pixel within its photograph; null: all are there, in order),
//   camera_to_world [n_views, 3, 4], focal, principal [n_views, 2] f32, resolution [n_views, 2] i32, lens [n_views] i32, lens_params [n_views, 7] f32
//   state [4] i64 (step, rays of this step)
//   origins, directions, targets, backgrounds [N, 3] f32, starts [N] f32: written
#include "color.cuh"
#include "lens.cuh"
#include "philox.cuh"
#include "stepping.cuh"

constexpr unsigned STREAM_RAYS = 0, STREAM_BACKGROUND = 1;
constexpr int STATE_STEP = 0, STATE_RAYS = 1;
constexpr float NO_RAY = -1.0f;

// floor(total * word / 2^32), also where the product does not fit into 64 bits.
__device__ __forceinline__ unsigned long long scaled(unsigned long long total, unsigned word) {
    return word * (total >> 32) + (word * (total & 0xFFFFFFFFull) >> 32);
}

// Last view whose first pixel is not after `pixel`.
__device__ __forceinline__ int view_of(const long long* offsets, int n_views, long long pixel) {
    int low = 0, high = n_views;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (offsets[middle] <= pixel) low = middle;
        else high = middle;
    }
    return low;
}

__device__ __forceinline__ vec3 blend(uchar4 rgba, vec3 background, bool in_srgb) {
    const vec3 colour = (1.0f / 255.0f) * vec3{static_cast<float>(rgba.x), static_cast<float>(rgba.y), static_cast<float>(rgba.z)};
    if (rgba.w == 255) return colour;
    const float alpha = rgba.w * (1.0f / 255.0f);
    if (in_srgb) return alpha * colour + (1.0f - alpha) * background;
    return linear_to_srgb(alpha * srgb_to_linear(colour) + (1.0f - alpha) * srgb_to_linear(background));
}

extern "C" __global__ void __launch_bounds__(128)
sample_rays(const uchar4* pixels, const long long* pixel_offsets, const long long* drawable, const int* places, const Cameras cameras,
            const long long* state, int n_views, unsigned key_low, unsigned key_high, const Stepping stepping, const Box box, int background_kind, int srgb_blend, float* origins,
            float* directions, float* starts, float* targets, float* backgrounds) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int n_rays = static_cast<int>(state[STATE_RAYS]);
    if (i >= n_rays) return;
    const unsigned step = static_cast<unsigned>(state[STATE_STEP]);
    const uint4 words = philox(make_uint4(i, step, STREAM_RAYS, 0), Key{key_low, key_high});
    const unsigned long long total = drawable[n_views];
    const long long draw = (i * total + scaled(total, words.x)) / static_cast<unsigned long long>(n_rays);
    const int view = view_of(drawable, n_views, draw);
    const long long first = pixel_offsets[view], pixel = total == 0 ? 0 : (first > 0 ? first : 0) + draw - drawable[view];
    const int inside = places ? places[pixel] : static_cast<int>(pixel - first), width = cameras.resolution[2 * view];
    const vec3 direction = direction_through(cameras, view, inside % width + 0.5f, inside / width + 0.5f);
    const vec3 origin = translation(cameras.camera_to_world + 12 * view);

    float near, far;
    box_interval(origin, direction, box, near, far);
    const uchar4 rgba = pixels[pixel];
    const bool masked = total == 0 || (rgba.x == 255 && rgba.y == 0 && rgba.z == 255 && rgba.w == 0);
    vec3 background;
    if (background_kind == 0) {
        const uint4 colour = philox(make_uint4(i, step, STREAM_BACKGROUND, 0), Key{key_low, key_high});
        background = {uniform(colour.x), uniform(colour.y), uniform(colour.z)};
    } else {
        const float grey = background_kind == 2 ? 1.0f : 0.0f;
        background = {grey, grey, grey};
    }
    store3(origins + 3 * i, origin);
    store3(directions + 3 * i, direction);
    starts[i] = far <= near || masked ? NO_RAY : to_lattice(stepping, near) + uniform(words.y);
    store3(targets + 3 * i, blend(rgba, background, srgb_blend != 0));
    store3(backgrounds + 3 * i, background);
}
