// Rays through the pixels of one camera (rays/camera.py); one thread a ray.
//   camera      one camera's pose [3, 4], focal [2], principal [2] f32, lens [1] i32, lens_params [7] f32
//   box         the box that is rendered, internal space
//   origins, directions [n, 3], starts [n] f32: written
#include "lens.cuh"
#include "stepping.cuh"

constexpr float NO_RAY = -1.0f, START_MARGIN = 1e-6f;

extern "C" __global__ void __launch_bounds__(256)
camera_rays(const Cameras camera, int width, int first, int n, float offset_x, float offset_y, float jitter, const Box box, const Stepping stepping,
            float* origins, float* directions, float* starts) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const int pixel = first + i;
    const vec3 origin = translation(camera.camera_to_world);
    const vec3 direction = direction_through(camera, 0, pixel % width + offset_x, pixel / width + offset_y);
    float near, far;
    box_interval(origin, direction, box, near, far);
    store3(origins + 3 * static_cast<size_t>(i), origin);
    store3(directions + 3 * static_cast<size_t>(i), direction);
    starts[i] = far > near ? to_lattice(stepping, near + START_MARGIN) + jitter : NO_RAY;
}
