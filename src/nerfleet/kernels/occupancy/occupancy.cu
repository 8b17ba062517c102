// Refresh of the occupancy grid (occupancy/op.py).
//   grid, updates [n_cascades * 128^3] f32, Morton order; cells [n] i32, positions [n, 3] f32 in the unit cube, raw [n] f32
//   bits [n_cascades * 128^3 / 32] u32; hyper [4] f32 (mean density of cascade 0)
//   sums [gridDim of occupancy_decay] f32 scratch
#include "occupancy.cuh"
#include "philox.cuh"
#include "stepping.cuh"

constexpr unsigned STREAM_OCCUPANCY = 2;
constexpr int STATE_STEP = 0, HYPER_MEAN_DENSITY = 3, MAX_TRIES = 10;
constexpr float DECAY = 0.95f, MAX_THRESHOLD = 0.01f;

__device__ __forceinline__ unsigned choose_cell(unsigned i, unsigned n_uniform, unsigned step, Key key, const float* grid, unsigned n_cells) {
    unsigned cell = 0;
    for (unsigned attempt = 0; attempt < MAX_TRIES; ++attempt) {
        const uint4 words = philox(make_uint4(i, step, STREAM_OCCUPANCY, attempt), key);
        const unsigned offset = __umulhi(words.x, n_cells);
        if (i < n_uniform) {
            cell = static_cast<unsigned>((static_cast<unsigned long long>(i) * n_cells + offset) / n_uniform);
            if (grid[cell] >= 0.0f) break;
        } else {
            cell = offset;
            if (grid[cell] > MAX_THRESHOLD) break;
        }
    }
    return cell;
}

extern "C" __global__ void __launch_bounds__(256)
occupancy_sample(const float* grid, const long long* state, unsigned key_low, unsigned key_high, int aabb_scale, int first, int n_uniform, int n,
                 int n_cells, int* cells, float* positions) {
    const int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= n) return;
    const unsigned i = static_cast<unsigned>(first + j), step = static_cast<unsigned>(state[STATE_STEP]);
    const Key key{key_low, key_high};
    const unsigned cell = choose_cell(i, static_cast<unsigned>(n_uniform), step, key, grid, static_cast<unsigned>(n_cells));
    cells[j] = static_cast<int>(cell);
    const unsigned code = cell & (CELLS_A_CASCADE - 1);
    const float scale = exp2_int(static_cast<int>(cell / CELLS_A_CASCADE)) / static_cast<float>(aabb_scale);
    const uint4 words = philox(make_uint4(i, step, STREAM_OCCUPANCY, MAX_TRIES), key);
    const auto place = [&](unsigned coordinate, unsigned word) {
        return __saturatef(((static_cast<float>(coordinate) + uniform(word)) * (1.0f / CELLS) - 0.5f) * scale + 0.5f);
    };
    store3(positions + 3 * static_cast<size_t>(j),
           vec3{place(gather_bits(code), words.x), place(gather_bits(code >> 1), words.y), place(gather_bits(code >> 2), words.z)});
}

// Values are not negative, so their bits order as they do.
extern "C" __global__ void __launch_bounds__(256) occupancy_splat(const int* cells, const float* raw, int n, float* updates) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float value = expf(raw[i]) * FINEST_STEP;
    if (value == value) atomicMax(reinterpret_cast<int*>(updates + cells[i]), __float_as_int(value));
}

extern "C" __global__ void __launch_bounds__(256) occupancy_decay(float* updates, float* grid, int n_cells, float* sums) {
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n_cells; i += gridDim.x * blockDim.x) {
        const float old = grid[i];
        if (old >= 0.0f) {
            const float value = fmaxf(old * DECAY, updates[i]);
            grid[i] = value;
            if (i < static_cast<int>(CELLS_A_CASCADE)) sum += value;
        }
        updates[i] = 0.0f;
    }
    __shared__ float parts[8];
    for (int d = 16; d > 0; d >>= 1) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, d);
    if ((threadIdx.x & 31) == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        float total = 0.0f;
        for (int w = 0; w < 8; ++w) total += parts[w];
        sums[blockIdx.x] = total;
    }
}

// One warp: always the same order of additions.
extern "C" __global__ void __launch_bounds__(32) occupancy_mean(const float* sums, int n, float* hyper) {
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += 32) sum += sums[i];
    for (int d = 16; d > 0; d >>= 1) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, d);
    if (threadIdx.x == 0) hyper[HYPER_MEAN_DENSITY] = sum * (1.0f / CELLS_A_CASCADE);
}

// A warp writes one 32-bit word for each of its 32 rounds: coalesced reads, no shared memory.
extern "C" __global__ void __launch_bounds__(256) occupancy_bits(const float* grid, const float* hyper, int n_cells, unsigned* bits) {
    const float threshold = fminf(hyper[HYPER_MEAN_DENSITY], MAX_THRESHOLD);
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned word = __ballot_sync(0xFFFFFFFFu, i < n_cells && grid[i] > threshold);
    if (i < n_cells && (i & 31) == 0) bits[i / 32] = word;
}

// Cells of one cascade (its index >= 1) also become occupied where one of the eight finer cells that they cover is. A word's
// 32 cells are a 4x4x2 block; the finer cells of those inside the finer cube are 32 bytes in a row.
extern "C" __global__ void __launch_bounds__(256) occupancy_coarsen(unsigned* bits, int cascade) {
    constexpr unsigned WORDS = CELLS_A_CASCADE / 32, QUARTER = CELLS / 4;
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= WORDS) return;
    const unsigned code = i * 32;
    const unsigned x = gather_bits(code) - QUARTER, y = gather_bits(code >> 1) - QUARTER, z = gather_bits(code >> 2) - QUARTER;
    if (x >= 2 * QUARTER || y >= 2 * QUARTER || z >= 2 * QUARTER) return;
    const unsigned* finer = bits + (cascade - 1) * WORDS + morton(x, y, z) / 4;
    unsigned word = 0;
    for (int j = 0; j < 8; ++j) {
        const unsigned four = finer[j];
        for (int byte = 0; byte < 4; ++byte) word |= ((four >> 8 * byte & 255u) != 0 ? 1u : 0u) << (4 * j + byte);
    }
    bits[cascade * WORDS + i] |= word;
}
