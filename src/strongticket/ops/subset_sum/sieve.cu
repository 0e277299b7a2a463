// Many items: meet in the middle without sorting. One problem per team: a warp, or all warps of a block.
//
// The first LOW items have 2^LOW "low" sums; what is left of the target after a choice of the other items is a
// "wanted" sum. A subset is a low sum and a wanted sum, and its gap is their difference: the smallest gap is sought.
//
// 1. Sums are integers: items times a power of two, rounded. A sum of them is exact, in any order.
// 2. From the density of sums around the target, guess a reach within which a few subsets lie.
// 3. Split the line into cells and mark, in a bitmap, all cells within reach of a low sum. A wanted sum in an unmarked
//    cell has no low sum within reach; nearly all are discarded here. Cells share bits (their number is taken modulo
//    the bitmap's size), which keeps some wanted sums by mistake and loses none.
// 4. The same with roles exchanged: a second bitmap, of the remaining wanted sums, discards nearly all low sums.
// 5. Compare all remaining low and wanted sums: every subset within reach is found.
// 6. Nothing within reach, or too much: guess again.
//
// Exactness. With every item and the target rounded by at most 1/2, and float64 sums in item order off by far less than
// 2^-14 in the same unit, |gap| and the float64 error differ by at most (N + 1) / 2 + 2^-14. So the subset of least
// float64 error has a gap at most N + 1 above the smallest: all those are summed again in float64 and in item order.
// If even the narrowest reach holds more subsets than fit (many ties), the host solves the problem.

constexpr int THREADS = 1 << LOG_THREADS;
constexpr int TEAM_WARPS = THREADS / WARP;

constexpr int HIGH = N - LOW;
constexpr int PASS_ITEMS = HIGH < MOST_HIGH ? HIGH : MOST_HIGH;
constexpr int LAST_ITEMS = HIGH - PASS_ITEMS; // each choice of these is a pass over the other wanted sums

constexpr u8 SEARCH = 254; // a status: no answer yet

constexpr u32 SLACK = N + 2;
constexpr int LEAST_SHIFT = 7;    // a reach of 64
constexpr int LARGEST_SHIFT = 29; // a reach of 2^28

static_assert(N <= WARP && LOW >= LOG_THREADS && PASS_ITEMS >= LOG_THREADS, "a team has more threads than sums");
static_assert(SLACK < 1u << (LEAST_SHIFT - 1), "the least reach must hold every subset that could be the best");
static_assert(THREADS % JOIN_LANES == 0, "a low sum is compared by whole groups of threads");
static_assert(BLOCK_THREADS == TEAMS * THREADS, "a block is made of teams");
static_assert(TEAMS == 1 || TEAM_WARPS == 1, "teams wait for each other if they share a block and are several warps");

__device__ inline void team_sync()
{
    if (TEAM_WARPS == 1)
        __syncwarp();
    else
        __syncthreads();
}

__device__ inline int team_thread() { return threadIdx.x % THREADS; }

// --- Bitmaps ---------------------------------------------------------------------------------------------------------

// A cell has a bit in a word; the next cell has the next bit, maybe in another word. `word_of` says in which word. The
// second bitmap must scatter the cells that share a bit in the first one: otherwise every wanted sum kept by mistake
// would keep the low sum it was mistaken for.
struct LowBitmap {
    static constexpr u32 WORDS = 1u << (LOG_LOW_BITS - 5);
    uint4 words[WORDS / 4];
    __device__ static u32 word_of(u32 cell) { return cell / 32 % WORDS; }
};
struct WantedBitmap {
    static constexpr u32 WORDS = 1u << (LOG_WANTED_BITS - 5);
    uint4 words[WORDS / 4];
    __device__ static u32 word_of(u32 cell) { return (cell / 32 + (cell >> LOG_LOW_BITS) * 0x9e3779b1u) % WORDS; }
};

// Marks the two cells, which are neighbours, that the interval of one cell's length from `start` touches.
template <class Bitmap> __device__ void mark_from(Bitmap &bitmap, int start, int shift)
{
    u32 *words = reinterpret_cast<u32 *>(bitmap.words);
    u32 cell = start >> shift;
    atomicOr(&words[Bitmap::word_of(cell)], 3u << cell % 32);
    if (cell % 32 == 31) atomicOr(&words[Bitmap::word_of(cell + 1)], 1u);
}

template <class Bitmap> __device__ u32 marked(const Bitmap &bitmap, int sum, int shift)
{
    u32 cell = sum >> shift;
    return reinterpret_cast<const u32 *>(bitmap.words)[Bitmap::word_of(cell)] >> cell % 32 & 1;
}

template <class Bitmap> __device__ void clear(Bitmap &bitmap)
{
#pragma unroll 4
    for (u32 i = team_thread(); i < Bitmap::WORDS / 4; i += THREADS) bitmap.words[i] = uint4{0, 0, 0, 0};
}

// --- What a team shares ----------------------------------------------------------------------------------------------

// Sums that passed a bitmap, and their subsets.
template <int CAPACITY> struct Survivors {
    int sum[CAPACITY];
    u32 subset[CAPACITY];
    u32 count; // may exceed CAPACITY; the surplus is lost

    __device__ u32 size() const { return min(count, u32(CAPACITY)); }
    __device__ bool lost() const { return count > CAPACITY; }
    __device__ void put(int value, u32 index)
    {
        u32 slot = atomicAdd(&count, 1u);
        if (slot < CAPACITY) sum[slot] = value, subset[slot] = index;
    }
};

struct Team {
    LowBitmap near_low;       // cells within reach of a low sum
    WantedBitmap near_wanted; // cells within reach of a remaining wanted sum
    double item[WARP];
    int step[WARP]; // what choosing an item adds: to a low sum the item, to a wanted sum minus the item
    Survivors<WANTED_CAPACITY> wanted;
    Survivors<LOW_CAPACITY> low;
    Survivors<FOUND_CAPACITY> found; // subsets within reach, with their gaps
    int target;
    int shift; // a cell is 2^shift long, the reach half of it
    u32 limit; // the largest gap of interest, at most the reach
    bool crowded; // a pass has lost survivors
    bool searching;

    __device__ int reach() const { return 1 << (shift - 1); }
};
static_assert(sizeof(Team) <= TEAM_BYTES, "TEAM_BYTES must hold a Team");

// --- All sums over some items ----------------------------------------------------------------------------------------

// The sum of the items FIRST, FIRST + 1, ... whose bits are set.
template <int FIRST, int COUNT> __device__ int chosen(const int *step, u32 bits)
{
    int sum = 0;
#pragma unroll
    for (int k = 0; k < COUNT; k++)
        if (bits >> k & 1) sum += step[FIRST + k];
    return sum;
}

// The 2^COUNT sums over items FIRST, ..., this thread's share of them, a batch at a time. A subset's lowest bits are
// the thread's number, the next count within a batch, and the highest are the batch's number.
template <int FIRST, int COUNT> struct Sums {
    static constexpr int BATCH_ITEMS = COUNT - LOG_THREADS < LOG_BATCH ? COUNT - LOG_THREADS : LOG_BATCH;
    static constexpr int BATCH = 1 << BATCH_ITEMS;
    static constexpr int BATCHES = 1 << (COUNT - LOG_THREADS - BATCH_ITEMS);

    const int *step;
    int start; // this thread's sum with nothing chosen beyond its own number
    int in_batch[BATCH_ITEMS + 1];

    __device__ Sums(const int *step, int origin)
        : step(step), start(origin + chosen<FIRST, LOG_THREADS>(step, team_thread()))
    {
#pragma unroll
        for (int k = 0; k < BATCH_ITEMS; k++) in_batch[k] = step[FIRST + LOG_THREADS + k];
    }
    __device__ int start_of(int batch) const
    {
        return start + chosen<FIRST + LOG_THREADS + BATCH_ITEMS, COUNT - LOG_THREADS - BATCH_ITEMS>(step, batch);
    }
    __device__ void fill(int (&sums)[BATCH], int batch) const
    {
        sums[0] = start_of(batch);
#pragma unroll
        for (int k = 0; k < BATCH_ITEMS; k++)
#pragma unroll
            for (int i = 0; i < 1 << k; i++) sums[(1 << k) + i] = sums[i] + in_batch[k];
    }
    // One sum again, at an index unknown at compile time: an array indexed like that would leave the registers.
    __device__ int again(int batch, int index) const
    {
        int sum = start_of(batch);
#pragma unroll
        for (int k = 0; k < BATCH_ITEMS; k++)
            if (index >> k & 1) sum += in_batch[k];
        return sum;
    }
    __device__ u32 subset(int batch, int index) const
    {
        return team_thread() | index << LOG_THREADS | batch << (LOG_THREADS + BATCH_ITEMS);
    }
};

template <int FIRST, int COUNT, class Bitmap> __device__ void mark_sums(Bitmap &bitmap, const Team &team)
{
    Sums<FIRST, COUNT> all(team.step, -team.reach());
    int shift = team.shift;
    for (int batch = 0; batch < all.BATCHES; batch++) {
        int starts[all.BATCH];
        all.fill(starts, batch);
#pragma unroll
        for (int i = 0; i < all.BATCH; i++) mark_from(bitmap, starts[i], shift);
    }
}

// Keeps the sums in marked cells.
template <int FIRST, int COUNT, class Bitmap, int CAPACITY>
__device__ void sift_sums(
    const Bitmap &bitmap, const Team &team, int origin, u32 highest_bits, Survivors<CAPACITY> &survivors)
{
    Sums<FIRST, COUNT> all(team.step, origin);
    int shift = team.shift;
    for (int batch = 0; batch < all.BATCHES; batch++) {
        int sums[all.BATCH];
        all.fill(sums, batch);
        u32 hits = 0;
#pragma unroll
        for (int i = 0; i < all.BATCH; i++) hits |= marked(bitmap, sums[i], shift) << i;
        // A lane rarely has more than one.
        for (; hits; hits &= hits - 1) {
            int index = __ffs(hits) - 1;
            survivors.put(all.again(batch, index), all.subset(batch, index) | highest_bits);
        }
    }
}

// --- The search for one reach ----------------------------------------------------------------------------------------

// Every remaining wanted sum against every remaining low sum.
__device__ inline void join(Team &team)
{
    u32 limit = team.limit, wanted = team.wanted.size(), low = team.low.size();
    for (u32 j = team_thread() / JOIN_LANES; j < low; j += THREADS / JOIN_LANES) {
        u32 from = team.low.sum[j] - limit;
#pragma unroll 1
        for (u32 i = team_thread() % JOIN_LANES; i < wanted; i += JOIN_LANES) {
            u32 distance = team.wanted.sum[i] - from; // the gap plus the limit
            if (distance <= 2 * limit)
                team.found.put(abs(int(distance - limit)), team.low.subset[j] | team.wanted.subset[i] << LOW);
        }
    }
}

__device__ inline void search(Team &team)
{
    mark_sums<0, LOW>(team.near_low, team);
    for (u32 pass = 0; pass < 1u << LAST_ITEMS; pass++) {
        team_sync();
        int origin = team.target + chosen<LOW + PASS_ITEMS, LAST_ITEMS>(team.step, pass);
        sift_sums<LOW, PASS_ITEMS>(team.near_low, team, origin, pass << PASS_ITEMS, team.wanted);
        team_sync();
        for (u32 i = team_thread(); i < team.wanted.size(); i += THREADS)
            mark_from(team.near_wanted, team.wanted.sum[i] - team.reach(), team.shift);
        team_sync();
        sift_sums<0, LOW>(team.near_wanted, team, 0, 0, team.low);
        team_sync();
        clear(team.near_wanted);
        if (pass + 1 == 1u << LAST_ITEMS) clear(team.near_low);
        join(team);
        team_sync();
        if (LAST_ITEMS && team_thread() == 0) {
            team.crowded |= team.wanted.lost() || team.low.lost();
            team.wanted.count = team.low.count = 0;
        }
    }
}

// --- The team's first warp: what to search for next ------------------------------------------------------------------

template <class Problems> struct Leader {
    const Problems &problems;
    const Answers &answers;
    Team &team;
    typename Problems::Cursor stride, cursor, next;
    typename Problems::Raw fetched; // the problem at `next`
    double target;
    int too_narrow, too_wide; // shifts known to be so

    __device__ Leader(const Problems &problems, const Answers &answers, Team &team)
        : problems(problems), answers(answers), team(team), stride(problems.at(i64(gridDim.x) * TEAMS)),
          next(problems.at(i64(blockIdx.x) * TEAMS + threadIdx.x / THREADS)), fetched(problems.fetch(next))
    {
    }

    // Answers problems that need no search, up to one that does; team.searching tells whether there is one.
    __device__ void take_next()
    {
        bool searching = false;
        while (!searching && problems.holds(next)) {
            cursor = next;
            target = fetched.target;
            double mine = problems.item(fetched);
            next = problems.after(cursor, stride);
            fetched = problems.fetch(next);
            Answer answer = prepare(mine);
            searching = answer.status == SEARCH;
            if (!searching) answers.write(problems, cursor, answer);
        }
        if (lane_index() == 0) team.searching = searching;
    }

    // Puts a problem into fixed point and guesses its reach, unless it can be answered without a search.
    __device__ Answer prepare(double mine)
    {
        int k = lane_index();
        __syncwarp();
        team.item[k] = mine;
        __syncwarp();
        // Low and wanted sums are at most `total` in size: in fixed point below 7/8 of 2^31, so that adding or
        // subtracting any reach cannot overflow.
        double total = warp_sum(fabs(mine)) * 1.15;
        int exponent = __double2hiint(total) >> 20; // total < 2^(exponent - 1022)
        double scale = __hiloint2double(min(1022 + 31 + 1023 - exponent, 2000) << 20, 0);
        int step = __double2int_rn(mine * scale);
        int sum = warp_sum(step), magnitude = warp_sum(abs(step));
        double low = 0.5 * (double(sum) - magnitude), high = 0.5 * (double(sum) + magnitude), wanted = target * scale;
        if (!(wanted > low + SLACK && wanted < high - SLACK)) {
            Ends ends = ends_of(team.item);
            if (!within(target, ends)) return nearest_end(target, ends, mine);
            if (total == 0.0) return {OPTIMAL, 0, 0.0};
        }
        if (exponent == 0x7ff) return {NOT_SETTLED}; // beyond float64's range

        int coarse = step >> 16;
        int shift = guess_shift(float(wanted - 0.5 * sum), float(warp_sum(coarse * coarse)) * 0x1p32f);
        team.step[k] = k < LOW ? step : -step;
        if (k == 0) team.target = __double2int_rn(wanted);
        aim(shift, 1u << (shift - 1));
        too_narrow = LEAST_SHIFT - 1, too_wide = LARGEST_SHIFT + 1;
        return {SEARCH};
    }

    // Subset sums are nearly normal, with variance (sum of squares) / 4. EXPECTED subsets should lie within reach r of
    // a target z deviations s from the mean: 2 r 2^N exp(-z^2 / 2) / (s sqrt(2 pi)) = EXPECTED, here for log2(r).
    __device__ static int guess_shift(float from_mean, float squares)
    {
        float variance = fmaxf(0.25f * squares, 1.0f);
        // log2(exp(z^2 / 2)), kept finite for the conversion to an integer.
        float log_tail = fminf(__fdividef(0.72134752f * from_mean * from_mean, variance), 64.0f);
        float log_reach = 0.5f * __log2f(1.5707963f * EXPECTED * EXPECTED * variance) + log_tail - N;
        return max(LEAST_SHIFT, min(LARGEST_SHIFT, __float2int_rn(log_reach) + 1));
    }

    // Sets up a search.
    __device__ void aim(int shift, u32 limit)
    {
        if (lane_index() != 0) return;
        team.shift = shift;
        team.limit = limit;
        team.wanted.count = team.low.count = team.found.count = 0;
        team.crowded = false;
    }

    // After a search: answers the problem, or sets up another search. Returns whether it is answered.
    __device__ bool conclude()
    {
        __syncwarp();
        int shift = team.shift;
        u32 limit = team.limit;
        bool lost = team.crowded || team.wanted.lost() || team.low.lost(), lost_found = team.found.lost();
        u32 nearest = ~0u - SLACK;
        for (u32 i = lane_index(); i < team.found.size(); i += WARP) nearest = min(nearest, u32(team.found.sum[i]));
        nearest = warp_min(nearest);
        __syncwarp(); // only now may a lane write what others have read above
        if (!lost && nearest + SLACK <= limit) {
            if (!lost_found) {
                answers.write(problems, cursor, best_within(nearest + SLACK));
                return true;
            }
            // Too many, but the nearest of those kept rules out the farther ones.
            if (nearest + SLACK < limit) return aim(shift, nearest + SLACK), false;
        }
        if (lost || lost_found) {
            too_wide = shift;
            shift = max(shift - 2, too_narrow + 1);
        } else {
            too_narrow = shift;
            // If there is a subset, its gap gives the reach that would have shown that none is better.
            shift = nearest > limit ? shift + 2 : max(shift + 1, 33 - __clz(nearest + SLACK));
            shift = min(shift, too_wide - 1);
        }
        if (shift <= too_narrow || shift >= too_wide) {
            answers.write(problems, cursor, {NOT_SETTLED});
            return true;
        }
        aim(shift, 1u << (shift - 1));
        return false;
    }

    // Of the subsets with at most this gap, the best by its sum in float64 and in item order.
    __device__ Answer best_within(u32 largest_gap) const
    {
        double best = __hiloint2double(0x7ff00000, 0);
        u32 best_mask = ~0u;
        for (u32 i = lane_index(); i < team.found.size(); i += WARP) {
            if (u32(team.found.sum[i]) > largest_gap) continue;
            u32 mask = team.found.subset[i];
            double sum = 0.0;
#pragma unroll
            for (int k = 0; k < N; k++)
                if (mask >> k & 1) sum += team.item[k];
            double error = fabs(target - sum);
            if (error < best || (error == best && mask < best_mask)) best = error, best_mask = mask;
        }
        __syncwarp();
        return warp_best(best, best_mask);
    }
};

template <class Problems> __device__ void solve_all(const Problems &problems, const Answers &answers)
{
    extern __shared__ uint4 shared[];
    Team &team = *reinterpret_cast<Team *>(shared + threadIdx.x / THREADS * (TEAM_BYTES / 16));
    bool leads = team_thread() < WARP;
    Leader<Problems> leader(problems, answers, team);

    clear(team.near_low);
    clear(team.near_wanted);
    for (bool answered = true;;) {
        if (leads && answered) leader.take_next();
        team_sync();
        if (!team.searching) break;
        search(team);
        if (leads) answered = leader.conclude();
    }
}
