// Runs CUDA kernels on a CPU: g++ compiles the kernel's own source after this header.
//
// Blocks run one after the other. The threads of a block are fibers that run until they wait at a barrier or take part
// in a warp operation; from round to round they are resumed in turning order, so that a result that depends on which
// thread comes first has a chance to show. Shared memory starts out as garbage. A block whose threads all wait for
// each other in vain ends the process with a message, which is what a GPU would do by hanging.
//
// Only what our kernels use is here: one-dimensional grids and blocks, and warp operations of all 32 lanes.

#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#ifndef __CUDA_ARCH__
#define __CUDA_ARCH__ 900
#endif
#define __device__
#define __global__
#define __shared__
#define __launch_bounds__(...)

struct dim3 {
    unsigned x, y, z;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) double2 {
    double x, y;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

static dim3 threadIdx, blockIdx, gridDim, blockDim;

// What `extern __shared__ uint4 shared[]` names in a kernel.
constexpr size_t SHARED_BYTES = 227 * 1024;
uint4 shared[SHARED_BYTES / sizeof(uint4)];

using std::abs;
using std::fabs;
template <class T> T min(T a, T b) { return b < a ? b : a; }
template <class T> T max(T a, T b) { return a < b ? b : a; }

namespace emulator {

constexpr unsigned WARP = 32;
constexpr size_t STACK_BYTES = 64 * 1024;

struct Barrier {
    unsigned arrived = 0, generation = 0;
};

struct Fiber {
    ucontext_t context;
    std::vector<char> stack = std::vector<char>(STACK_BYTES);
    bool finished = false;
};

static ucontext_t scheduler;
static std::vector<Fiber> fibers;
static std::vector<Barrier> warp_barriers;
static Barrier block_barrier;
static std::vector<uint64_t> exchanged; // one word a thread, for warp operations
static void (*body)(void **);
static void **arguments;
static unsigned running; // fibers not finished
static bool progressed;  // since the scheduler last went round

static void wait_at(Barrier &barrier, unsigned size)
{
    progressed = true; // arriving is progress; being resumed to find the barrier still closed is not
    unsigned generation = barrier.generation;
    if (++barrier.arrived == size) {
        barrier.arrived = 0;
        barrier.generation++;
        return;
    }
    while (barrier.generation == generation) swapcontext(&fibers[threadIdx.x].context, &scheduler);
}

static void wait_for_warp() { wait_at(warp_barriers[threadIdx.x / WARP], WARP); }

// Every lane gives a word and sees all words of its warp.
template <class T, class Read> static auto exchange(T mine, Read read)
{
    static_assert(sizeof(T) <= sizeof(uint64_t), "a lane gives one word");
    std::memcpy(&exchanged[threadIdx.x], &mine, sizeof(T));
    wait_for_warp();
    T lanes[WARP];
    for (unsigned lane = 0; lane < WARP; lane++)
        std::memcpy(&lanes[lane], &exchanged[threadIdx.x / WARP * WARP + lane], sizeof(T));
    wait_for_warp();
    return read(lanes);
}

static void enter()
{
    body(arguments);
    fibers[threadIdx.x].finished = true;
    progressed = true;
    running--;
    swapcontext(&fibers[threadIdx.x].context, &scheduler);
}

static void run_block()
{
    running = blockDim.x;
    for (Fiber &fiber : fibers) {
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.data();
        fiber.context.uc_stack.ss_size = fiber.stack.size();
        fiber.finished = false;
        makecontext(&fiber.context, enter, 0);
    }
    for (unsigned round = 0; running; round++) {
        progressed = false;
        for (unsigned i = 0; i < blockDim.x; i++) {
            threadIdx.x = round % 2 ? blockDim.x - 1 - i : i;
            if (!fibers[threadIdx.x].finished) swapcontext(&scheduler, &fibers[threadIdx.x].context);
        }
        if (!progressed) {
            std::fprintf(stderr, "emulator: block %u hangs: its threads wait at different barriers\n", blockIdx.x);
            std::abort();
        }
    }
}

template <class... Parameters, size_t... I>
static void call(void (*kernel)(Parameters...), void **values, std::index_sequence<I...>)
{
    kernel(*static_cast<Parameters *>(values[I])...);
}

template <auto kernel> struct Unpack;
template <class... Parameters, void (*kernel)(Parameters...)> struct Unpack<kernel> {
    static void run(void **values) { call(kernel, values, std::index_sequence_for<Parameters...>()); }
};

static void launch(void (*kernel)(void **), unsigned grid, unsigned block, size_t shared_bytes, void **values)
{
    if (shared_bytes > SHARED_BYTES || block % WARP) {
        std::fprintf(stderr, "emulator: cannot run %u threads with %zu shared bytes\n", block, shared_bytes);
        std::abort();
    }
    body = kernel, arguments = values;
    gridDim = {grid, 1, 1}, blockDim = {block, 1, 1};
    fibers.resize(block);
    exchanged.resize(block);
    for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++) {
        warp_barriers.assign(block / WARP, Barrier());
        block_barrier = Barrier();
        std::memset(shared, 0xab, SHARED_BYTES);
        run_block();
    }
}

} // namespace emulator

// --- CUDA's functions ------------------------------------------------------------------------------------------------

inline void __syncthreads() { emulator::wait_at(emulator::block_barrier, blockDim.x); }
inline void __syncwarp() { emulator::wait_for_warp(); }

inline unsigned __ballot_sync(unsigned, bool vote)
{
    return emulator::exchange(vote, [](const bool *lanes) {
        unsigned votes = 0;
        for (unsigned lane = 0; lane < emulator::WARP; lane++) votes |= unsigned(lanes[lane]) << lane;
        return votes;
    });
}
template <class T> T __shfl_sync(unsigned, T mine, unsigned lane)
{
    return emulator::exchange(mine, [=](const T *lanes) { return lanes[lane % emulator::WARP]; });
}
template <class T> T __shfl_xor_sync(unsigned, T mine, unsigned mask)
{
    unsigned lane = threadIdx.x % emulator::WARP ^ mask;
    return emulator::exchange(mine, [=](const T *lanes) { return lanes[lane]; });
}
inline unsigned __reduce_min_sync(unsigned, unsigned mine)
{
    return emulator::exchange(mine, [](const unsigned *lanes) {
        unsigned least = lanes[0];
        for (unsigned lane = 1; lane < emulator::WARP; lane++) least = min(least, lanes[lane]);
        return least;
    });
}
inline int __reduce_add_sync(unsigned, int mine)
{
    return emulator::exchange(mine, [](const int *lanes) {
        int sum = 0;
        for (unsigned lane = 0; lane < emulator::WARP; lane++) sum += lanes[lane];
        return sum;
    });
}

inline unsigned __float_as_uint(float x)
{
    unsigned bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}
inline float __uint_as_float(unsigned bits)
{
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

// What `mma.sync.m16n8k16` does for bfloat16, in float64 and rounded once: sums (16, 8) += A (16, 16) B (16, 8).
inline void multiply_tiles(float *sums, const unsigned *a, uint2 b)
{
    auto half = [](uint64_t word, unsigned place) { return __uint_as_float(unsigned(word >> 16 * place << 16)); };
    float A[16][16], B[16][8];
    // A lane holds columns 2 at, 2 at + 1 of rows `of` and `of + 8`, then those 8 further.
    auto for_lanes = [](auto use) {
        for (unsigned lane = 0; lane < emulator::WARP; lane++) use(lane, lane / 4, lane % 4);
    };
    for (unsigned far = 0; far < 2; far++)
        emulator::exchange(uint64_t(a[2 * far + 1]) << 32 | a[2 * far], [&](const uint64_t *lanes) {
            for_lanes([&](unsigned lane, unsigned of, unsigned at) {
                for (unsigned k = 0; k < 4; k++) A[of + 8 * (k / 2)][8 * far + 2 * at + k % 2] = half(lanes[lane], k);
            });
            return 0;
        });
    emulator::exchange(uint64_t(b.y) << 32 | b.x, [&](const uint64_t *lanes) {
        for_lanes([&](unsigned lane, unsigned of, unsigned at) {
            for (unsigned k = 0; k < 4; k++) B[8 * (k / 2) + 2 * at + k % 2][of] = half(lanes[lane], k);
        });
        return 0;
    });
    unsigned of = threadIdx.x % emulator::WARP / 4, at = threadIdx.x % 4;
    for (unsigned k = 0; k < 4; k++) {
        double sum = sums[k];
        for (unsigned j = 0; j < 16; j++) sum += double(A[of + 8 * (k / 2)][j]) * B[j][2 * at + k % 2];
        sums[k] = float(sum);
    }
}

inline unsigned atomicAdd(unsigned *place, unsigned value) { return std::exchange(*place, *place + value); }
inline unsigned atomicOr(unsigned *place, unsigned value) { return std::exchange(*place, *place | value); }

inline int __ffs(unsigned x) { return __builtin_ffs(int(x)); }
inline int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }

inline uint64_t bits_of(double x)
{
    uint64_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}
inline long long __double_as_longlong(double x) { return (long long)bits_of(x); }
inline double __longlong_as_double(long long bits)
{
    double x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}
inline int __double2hiint(double x) { return int(bits_of(x) >> 32); }
inline int __double2loint(double x) { return int(bits_of(x)); }
inline double __hiloint2double(int high, int low)
{
    uint64_t bits = uint64_t(unsigned(high)) << 32 | unsigned(low);
    double x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}
// Conversions saturate on a GPU; in C++ they would be undefined there.
inline int __double2int_rn(double x)
{
    return std::isnan(x) ? 0 : x >= 2147483647.0 ? INT32_MAX : x <= -2147483648.0 ? INT32_MIN : int(std::nearbyint(x));
}
inline int __float2int_rn(float x) { return __double2int_rn(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __fdividef(float x, float y) { return x / y; }

// Gives a kernel of the source an entry for the test that loads this: EMULATED(solve_rows)
#define EMULATED(kernel)                                                                                               \
    extern "C" void emulated_##kernel(unsigned grid, unsigned block, size_t shared_bytes, void **values)               \
    {                                                                                                                  \
        emulator::launch(emulator::Unpack<&kernel>::run, grid, block, shared_bytes, values);                           \
    }
