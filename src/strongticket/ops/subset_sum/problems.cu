// Shared by both kernels: where problems come from and answers go, and a few operations of a warp.
//
// Compiled at run time for one number of items: -DN=..., with -DITEM=... and -DTARGET=... the types in memory.
// Without includes, so that NVRTC needs no headers. Compiled without fused multiply-add: sums must round as on a CPU.

typedef unsigned int u32;
typedef unsigned char u8;
typedef long long i64;

constexpr int WARP = 32;
constexpr u32 EVERY_LANE = 0xffffffffu;

// `Status` of result.py; NOT_SETTLED asks the host for its slower exact path.
constexpr u8 OPTIMAL = 0, UNREACHABLE = 2, NOT_SETTLED = 255;

__device__ inline int lane_index() { return threadIdx.x % WARP; }

struct Answer {
    u8 status;
    u32 mask;
    double error;
};

struct Answers {
    bool *mask;
    double *error;
    u8 *status;
    u32 *unsettled; // number of problems left to the host

    // Called by a whole warp; lane k writes item k.
    template <class Problems>
    __device__ void write(const Problems &problems, typename Problems::Cursor cursor, Answer answer) const
    {
        int k = lane_index();
        if (k < N) mask[problems.item_place(cursor) + k] = answer.mask >> k & 1;
        if (k == 0) {
            i64 place = problems.place(cursor);
            error[place] = answer.error;
            status[place] = answer.status;
            if (answer.status == NOT_SETTLED) atomicAdd(unsettled, 1u);
        }
    }
};

// Problem after problem, one row each. Lane k of a warp holds item k.
//
// `Raw` is a problem as it came from memory. It is fetched while the problem before it is being solved, so nothing may
// be computed from it earlier: the first use of a register waits for the load.
struct Rows {
    const TARGET *targets;
    i64 target_stride;
    const ITEM *items;
    i64 row_stride, item_stride;
    i64 count;

    struct Cursor {
        i64 row;
    };
    struct Raw {
        TARGET target;
        ITEM item;
    };

    __device__ Cursor at(i64 problem) const { return {problem}; }
    __device__ bool holds(Cursor c) const { return c.row < count; }
    __device__ Cursor after(Cursor c, Cursor stride) const { return {c.row + stride.row}; }
    __device__ i64 place(Cursor c) const { return c.row; }
    __device__ i64 item_place(Cursor c) const { return c.row * N; }

    __device__ Raw fetch(Cursor c) const
    {
        int k = lane_index();
        if (!holds(c)) return {};
        return {targets[c.row * target_stride], k < N ? items[c.row * row_stride + k * item_stride] : ITEM(0)};
    }
    __device__ double item(Raw raw) const { return raw.item; }
};

// Problem (output, block) over the products u_k v_{output,k} / divisor of the block's units k. All blocks have N units;
// `columns` and `starts` say which blocks these are and where their units start.
struct Products {
    const TARGET *targets;
    i64 target_row_stride, target_column_stride;
    const float *u, *v;
    i64 v_row_stride, v_unit_stride;
    const i64 *columns, *starts;
    i64 outputs, blocks; // of this size
    i64 all_blocks, all_units;
    double divisor;

    struct Cursor {
        i64 output, block;
        i64 column, start; // of the block
    };
    struct Raw {
        TARGET target;
        float u, v;
    };

    __device__ Cursor locate(i64 output, i64 block) const
    {
        if (output >= outputs) return {output, block};
        return {output, block, columns[block], starts[block]};
    }
    __device__ Cursor at(i64 problem) const { return locate(problem / blocks, problem % blocks); }
    __device__ bool holds(Cursor c) const { return c.output < outputs; }
    __device__ Cursor after(Cursor c, Cursor stride) const
    {
        i64 output = c.output + stride.output, block = c.block + stride.block;
        return block < blocks ? locate(output, block) : locate(output + 1, block - blocks);
    }
    __device__ i64 place(Cursor c) const { return c.output * all_blocks + c.column; }
    __device__ i64 item_place(Cursor c) const { return c.output * all_units + c.start; }

    __device__ Raw fetch(Cursor c) const
    {
        int k = lane_index();
        if (!holds(c)) return {};
        TARGET target = targets[c.output * target_row_stride + c.column * target_column_stride];
        if (k >= N) return {target, 0.0f, 0.0f};
        i64 unit = c.start + k;
        return {target, u[unit], v[c.output * v_row_stride + unit * v_unit_stride]};
    }
    __device__ double item(Raw raw) const
    {
        double product = double(raw.u) * double(raw.v);
        return divisor == 1.0 ? product : product / divisor;
    }
};

// --- A warp together; every lane gets the result --------------------------------------------------------------------

__device__ inline u32 warp_min(u32 x)
{
#if __CUDA_ARCH__ >= 800
    return __reduce_min_sync(EVERY_LANE, x);
#else
    for (int step = WARP / 2; step; step /= 2) x = min(x, __shfl_xor_sync(EVERY_LANE, x, step));
    return x;
#endif
}

__device__ inline int warp_sum(int x)
{
#if __CUDA_ARCH__ >= 800
    return __reduce_add_sync(EVERY_LANE, x);
#else
    for (int step = WARP / 2; step; step /= 2) x += __shfl_xor_sync(EVERY_LANE, x, step);
    return x;
#endif
}

__device__ inline double warp_sum(double x)
{
    for (int step = WARP / 2; step; step /= 2) x += __shfl_xor_sync(EVERY_LANE, x, step);
    return x;
}

// The least error, and the smallest mask that has it. Errors are not negative, so they compare as their bits do.
__device__ inline Answer warp_best(double error, u32 mask)
{
    u32 high = __double2hiint(error), low = __double2loint(error);
    u32 best_high = warp_min(high);
    u32 best_low = warp_min(high == best_high ? low : ~0u);
    bool best = high == best_high && low == best_low;
    return {OPTIMAL, warp_min(best ? mask : ~0u), __hiloint2double(best_high, best_low)};
}

// --- The ends of what a problem's items can sum to ------------------------------------------------------------------

struct Ends {
    double low, high;
};

__device__ inline Ends ends_of(const double *item)
{
    // Odd lanes add up the positive items, even lanes the negative ones.
    bool positive = lane_index() % 2;
    double sum = 0.0;
    for (int k = 0; k < N; k++)
        if (positive ? item[k] > 0.0 : item[k] < 0.0) sum += item[k];
    return {__shfl_sync(EVERY_LANE, sum, 0), __shfl_sync(EVERY_LANE, sum, 1)};
}

__device__ inline bool within(double target, Ends ends) { return target >= ends.low && target <= ends.high; }

// The answer to a target beyond an end; `mine` is the lane's own item.
__device__ inline Answer nearest_end(double target, Ends ends, double mine)
{
    bool below = target < ends.low;
    u32 chosen = __ballot_sync(EVERY_LANE, below ? mine < 0.0 : mine > 0.0);
    return {UNREACHABLE, chosen, fabs(target - (below ? ends.low : ends.high))};
}

// --- Kernels: a form of input, and solve_all, which the file after this one defines ---------------------------------

template <class Problems> __device__ void solve_all(const Problems &problems, const Answers &answers);

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS) solve_rows(
    const TARGET *targets, i64 target_stride, const ITEM *items, i64 row_stride, i64 item_stride, i64 count,
    bool *mask, double *error, u8 *status, u32 *unsettled)
{
    solve_all(
        Rows{targets, target_stride, items, row_stride, item_stride, count}, Answers{mask, error, status, unsettled});
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS) solve_products(
    const TARGET *targets, i64 target_row_stride, i64 target_column_stride, const float *u, const float *v,
    i64 v_row_stride, i64 v_unit_stride, const i64 *columns, const i64 *starts, i64 outputs, i64 blocks,
    i64 all_blocks, i64 all_units, double divisor, bool *mask, double *error, u8 *status, u32 *unsettled)
{
    solve_all(
        Products{targets, target_row_stride, target_column_stride, u, v, v_row_stride, v_unit_stride, columns, starts,
                 outputs, blocks, all_blocks, all_units, divisor},
        Answers{mask, error, status, unsettled});
}
