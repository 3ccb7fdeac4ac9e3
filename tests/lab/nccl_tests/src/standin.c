/* The lab's stand-in for nccl-tests: takes its options, really moves data between the ranks with MPI, checks it,
 * and prints in the format of nccl-tests 2.17, or with NCCL_TESTS_LAB_RELEASE of 2.13 or 2.10. Every figure is
 * measured, on CPU and over the lab's network.
 *
 * NCCL_TESTS_LAB_LINKS="NODE,NET" are the bus bandwidths in GB/s that links of a node and of the network are to have:
 * an operation that the lab moved faster waits for them, so that figures are steady on a busy machine, too.
 *
 * Faults, for tests: NCCL_TESTS_LAB_FAULT="KIND[:NUMBER]@HOST[/DEVICE]" or, for a path between two nodes,
 * "slow:0.3@HOST+HOST" (in jobs of these two) or "net:0.3@HOST+HOST" (in all jobs with both); several separated by
 * commas. The file /etc/gpuops-lab-nccl-fault on a node holds the same
 * without @HOST. Kinds: slow:F (F of the speed), net:F (the same, between nodes only), dip:P (slow to 0.75 with
 * probability P), hang, crash, wrong, usage (exit code 0), copies (every rank runs alone), cut (ends well after a row).
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */
#define _GNU_SOURCE
#include <getopt.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define VERSION "2.17.6"
#define FAULT_FILE "/etc/gpuops-lab-nccl-fault"
#define HOST 64
#define GPUS 64

enum collective { ALL_REDUCE, ALL_GATHER, BROADCAST, REDUCE_SCATTER, REDUCE, ALLTOALL, SCATTER, GATHER, SENDRECV };
static const char *const names[] = {"all_reduce", "all_gather", "broadcast", "reduce_scatter", "reduce", "alltoall",
                                    "scatter", "gather", "sendrecv"};
static enum collective what;
static MPI_Comm world; /* all ranks, or this one alone */
static int release = 217;
static double link_gbps; /* 0: as fast as it goes */
static int rank, ranks, local_rank, device, check = 1;
static char host[HOST];
static struct { double slow, dip; int hang, crash, wrong, copies, cut; } fault = {1, 0, 0, 0, 0, 0, 0};

struct gpu { char bus[32], name[96]; int index; };
static struct gpu gpus[GPUS];
static int gpu_count;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void pause_for(double seconds) {
    struct timespec t = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

static size_t bytes(const char *text) {
    char *unit;
    double value = strtod(text, &unit);
    switch (*unit) {
    case 'G': case 'g': value *= 1024; /* fall through */
    case 'M': case 'm': value *= 1024; /* fall through */
    case 'K': case 'k': value *= 1024;
    }
    return (size_t)value;
}

/* Whether this rank is at an end of a path that the job uses; with `alone` only in jobs of exactly these two hosts. */
static int both_in_job(const char *pair, const char *all_hosts, int alone) {
    char copy[2 * HOST];
    int different = 0, first = 0, other = 0;
    snprintf(copy, sizeof copy, "%s", pair);
    char *second = strchr(copy, '+');
    *second++ = 0;
    for (int r = 0; r < ranks; r++) {
        const char *h = all_hosts + (size_t)r * HOST;
        first |= !strcmp(h, copy);
        other |= !strcmp(h, second);
        if (strcmp(h, copy) && strcmp(h, second)) different = 1;
    }
    return first && other && !(different && alone) && (!strcmp(host, copy) || !strcmp(host, second));
}

static int many_hosts(const char *all_hosts) {
    for (int r = 1; r < ranks; r++)
        if (strcmp(all_hosts, all_hosts + (size_t)r * HOST)) return 1;
    return 0;
}

static void usage(FILE *out) {
    fprintf(out, "USAGE: " TEST_NAME "_perf \n\t[-t,--nthreads <num threads>] \n\t[-g,--ngpus <gpus per thread>] \n"
                 "\t[-b,--minbytes <min size in bytes>] \n\t[-e,--maxbytes <max size in bytes>] \n\t[-f,--stepfactor <increment factor>] \n"
                 "\t[-n,--iters <iteration count>] \n\t[-w,--warmup_iters <warmup iteration count>] \n\t[-c,--check <check iteration count>] \n"
                 "\t[-N,--run_cycles <cycle count>] \n\t[-J,--output_file <file>] \n\t[-h,--help]\n");
}

static void one_fault(char *spec, const char *all_hosts) {
    char *where = strchr(spec, '@'), *gpu;
    if (where) *where++ = 0;
    if ((gpu = strchr(where ? where : spec, '/'))) {
        *gpu++ = 0;
        if (atoi(gpu) != (gpu_count ? gpus[device].index : device)) return;
    }
    if (where && strchr(where, '+')) {
        if (!both_in_job(where, all_hosts, strncmp(spec, "net", 3) != 0)) return;
    } else if (where && strcmp(where, host)) return;
    char *number = strchr(spec, ':');
    if (number) *number++ = 0;
    if (!strcmp(spec, "slow")) fault.slow = number ? atof(number) : 0.5;
    if (!strcmp(spec, "dip")) fault.dip = number ? atof(number) : 0.05;
    if (!strcmp(spec, "net") && many_hosts(all_hosts)) fault.slow = number ? atof(number) : 0.5;
    if (!strcmp(spec, "copies")) fault.copies = 1;
    if (!strcmp(spec, "cut")) fault.cut = 1;
    if (!strcmp(spec, "hang")) fault.hang = 1;
    if (!strcmp(spec, "crash")) fault.crash = 1;
    if (!strcmp(spec, "wrong")) fault.wrong = 1;
    if (!strcmp(spec, "usage")) {
        if (rank == 0) usage(stdout);
        MPI_Finalize();
        exit(0);
    }
}

static void read_faults(void) {
    char text[512] = "", *all_hosts = calloc(ranks, HOST), *save, *spec;
    MPI_Allgather(host, HOST, MPI_CHAR, all_hosts, HOST, MPI_CHAR, MPI_COMM_WORLD);
    if (getenv("NCCL_TESTS_LAB_FAULT")) snprintf(text, sizeof text, "%s", getenv("NCCL_TESTS_LAB_FAULT"));
    FILE *file = fopen(FAULT_FILE, "r");
    if (file) {
        size_t used = strlen(text);
        if (used) text[used++] = ',';
        used += fread(text + used, 1, sizeof text - used - 1, file);
        text[used] = 0;
        fclose(file);
    }
    double node_gbps, net_gbps;
    const char *links = getenv("NCCL_TESTS_LAB_LINKS");
    if (links && sscanf(links, "%lf,%lf", &node_gbps, &net_gbps) == 2) link_gbps = many_hosts(all_hosts) ? net_gbps : node_gbps;
    for (spec = strtok_r(text, ", \n", &save); spec; spec = strtok_r(NULL, ", \n", &save)) one_fault(spec, all_hosts);
    free(all_hosts);
}

/* The node's GPUs as nvidia-smi names them, narrowed by CUDA_VISIBLE_DEVICES; none: this CPU poses as any number. */
static void find_gpus(MPI_Comm node) {
    if (local_rank == 0) {
        FILE *smi = popen("nvidia-smi --query-gpu=pci.bus_id,name --format=csv,noheader 2>/dev/null", "r");
        char line[256];
        while (smi && gpu_count < GPUS && fgets(line, sizeof line, smi)) {
            unsigned domain, bus, slot;
            struct gpu *g = &gpus[gpu_count];
            if (sscanf(line, "%x:%x:%x.%*x, %95[^\n]", &domain, &bus, &slot, g->name) != 4) continue;
            snprintf(g->bus, sizeof g->bus, "%04x:%02x:%02x", domain, bus, slot);
            g->index = gpu_count++;
        }
        if (smi) pclose(smi);
    }
    MPI_Bcast(&gpu_count, 1, MPI_INT, 0, node);
    MPI_Bcast(gpus, sizeof gpus, MPI_BYTE, 0, node);
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible && gpu_count) {
        struct gpu kept[GPUS];
        int n = 0;
        for (const char *p = visible; *p && n < GPUS; p += strcspn(p, ","), p += *p == ',') {
            int i = atoi(p);
            if (*p < '0' || *p > '9' || i >= gpu_count) break;
            kept[n++] = gpus[i];
        }
        memcpy(gpus, kept, sizeof *gpus * n);
        gpu_count = n;
    }
}

static double factor(void) {
    switch (what) {
    case ALL_REDUCE: return 2.0 * (ranks - 1) / ranks;
    case ALL_GATHER: case REDUCE_SCATTER: case ALLTOALL: case SCATTER: case GATHER: return (double)(ranks - 1) / ranks;
    default: return 1;
    }
}

/* `count` is nccl-tests' count: the elements of one rank's share where the collective spreads the buffer. */
static void move(float *in, float *out, int count, int in_place) {
    MPI_Comm w = world;
    void *self = in_place ? MPI_IN_PLACE : (void *)in;
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    switch (what) {
    case ALL_REDUCE: MPI_Allreduce(self, out, count, MPI_FLOAT, MPI_SUM, w); break;
    case ALL_GATHER: MPI_Allgather(self, count, MPI_FLOAT, out, count, MPI_FLOAT, w); break;
    case BROADCAST: if (!in_place && rank == 0) memcpy(out, in, sizeof(float) * count); MPI_Bcast(out, count, MPI_FLOAT, 0, w); break;
    case REDUCE_SCATTER: MPI_Reduce_scatter_block(self, out, count, MPI_FLOAT, MPI_SUM, w); break;
    case REDUCE: MPI_Reduce(rank == 0 ? self : (in_place ? out : in), out, count, MPI_FLOAT, MPI_SUM, 0, w); break;
    case ALLTOALL: MPI_Alltoall(in, count, MPI_FLOAT, out, count, MPI_FLOAT, w); break;
    case SCATTER: MPI_Scatter(in, count, MPI_FLOAT, out, count, MPI_FLOAT, 0, w); break;
    case GATHER: MPI_Gather(in, count, MPI_FLOAT, out, count, MPI_FLOAT, 0, w); break;
    case SENDRECV: MPI_Sendrecv(in, count, MPI_FLOAT, next, 0, out, count, MPI_FLOAT, before, 0, w, MPI_STATUS_IGNORE); break;
    }
    if (fault.wrong) out[0] += 1;
}

static float cell(int r, long i) { return (float)((r + 1) * (i % 7 + 1)); }

/* The elements that a rank's result buffer must hold, and how many differ. */
static long wrong_elements(const float *out, int count) {
    long total = count, bad = 0, all = (long)ranks * (ranks + 1) / 2;
    if (what == ALL_GATHER || what == ALLTOALL) total = (long)count * ranks;
    if (what == GATHER) total = rank ? 0 : (long)count * ranks;
    if (what == REDUCE && rank) total = 0;
    for (long i = 0; i < total; i++) {
        float want;
        switch (what) {
        case ALL_REDUCE: case REDUCE: want = (float)(all * (i % 7 + 1)); break;
        case REDUCE_SCATTER: want = (float)(all * (((long)rank * count + i) % 7 + 1)); break;
        case ALL_GATHER: case GATHER: want = cell(i / count, i % count); break;
        case ALLTOALL: want = cell(i / count, (long)rank * count + i % count); break;
        case SCATTER: want = cell(0, (long)rank * count + i); break;
        case BROADCAST: want = cell(0, i); break;
        default: want = cell((rank + ranks - 1) % ranks, i);
        }
        bad += out[i] != want;
    }
    return bad;
}

static void fill(float *in, float *out, long elements, int count, int in_place) {
    for (long i = 0; i < elements; i++) in[i] = cell(rank, i);
    if (!in_place) return;
    if (what == ALL_GATHER) memcpy(out + (long)rank * count, in, sizeof(float) * count);
    else memcpy(out, in, sizeof(float) * elements);
}

/* Mean seconds of one operation over all ranks, and the wrong elements of all ranks (-1: not checked). */
static double measure(float *in, float *out, long elements, int count, int warmup, int iters, int in_place, long *wrong) {
    double began, took, mean;
    for (int i = -warmup; i < 0; i++) { fill(in, out, 1, count, 0); move(in, out, count, in_place && what == ALL_REDUCE); }
    MPI_Barrier(world);
    double speed = fault.slow * (fault.dip > 0 && drand48() < fault.dip ? 0.75 : 1);
    began = now();
    for (int i = 0; i < iters; i++) {
        double start = now();
        move(in, out, count, in_place && what == ALL_REDUCE);
        double spent = now() - start, due = link_gbps > 0 ? elements * sizeof(float) * factor() / link_gbps / 1e9 : spent;
        if (due / speed > spent) pause_for(due / speed - spent);
    }
    MPI_Barrier(world);
    took = (now() - began) / iters;
    MPI_Allreduce(&took, &mean, 1, MPI_DOUBLE, MPI_SUM, world);
    *wrong = -1;
    if (check && !(in_place && (what == ALLTOALL || what == SENDRECV))) {
        int self = in_place && (what == ALL_REDUCE || what == ALL_GATHER);
        memset(out, 0, sizeof(float) * elements);
        fill(in, out, elements, count, self);
        move(in, out, count, self);
        long bad = wrong_elements(out, count);
        MPI_Allreduce(&bad, wrong, 1, MPI_LONG, MPI_SUM, world);
    }
    return mean / ranks;
}

static void print_devices(void) {
    struct { char host[HOST]; int pid, device; struct gpu gpu; } mine = {"", (int)getpid(), device, {"0000:00:00", "CPU (no GPU here)", 0}}, *all;
    if (gpu_count) mine.gpu = gpus[device];
    memcpy(mine.host, host, HOST);
    all = calloc(ranks, sizeof mine);
    MPI_Gather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, 0, world);
    for (int r = 0; rank == 0 && r < ranks; r++)
        if (release < 217) printf("#  Rank %2d Pid %6d on %10s device %2d [0x%.2s] %s\n", r, all[r].pid, all[r].host, all[r].device, all[r].gpu.bus + 5, all[r].gpu.name);
        else printf("#  Rank %2d Group  0 Pid %6d on %10s device %2d [%s] %s\n", r, all[r].pid, all[r].host, all[r].device, all[r].gpu.bus, all[r].gpu.name);
    free(all);
}

/* NCCL's log, where NCCL_DEBUG_FILE wants it. MPI over TCP is what NCCL would call Socket. */
static void log_network(void) {
    const char *pattern = getenv("NCCL_DEBUG_FILE");
    char path[1024];
    size_t used = 0;
    if (!pattern) return;
    for (const char *p = pattern; *p && used < sizeof path - HOST; p++) {
        if (p[0] == '%' && p[1] == 'h') used += sprintf(path + used, "%s", host), p++;
        else if (p[0] == '%' && p[1] == 'p') used += sprintf(path + used, "%d", (int)getpid()), p++;
        else path[used++] = *p;
    }
    path[used] = 0;
    FILE *log = fopen(path, "w");
    if (!log) return;
    fprintf(log, "%s:%d:%d [%d] NCCL INFO Using network Socket\n", host, (int)getpid(), (int)getpid(), device);
    fclose(log);
}

static FILE *json_file(const char *name) { /* like nccl-tests: never over an older file */
    char path[4096];
    snprintf(path, sizeof path, "%s", name);
    for (int i = 0; access(path, F_OK) == 0; i++) snprintf(path, sizeof path, "%s.%d", name, i);
    return fopen(path, "w");
}

int main(int argc, char **argv) {
    size_t from = 32 << 20, to = 32 << 20, step = 1 << 20;
    double by = 1;
    int iters = 20, warmup = 1, cycles = 1, threads = 1, per_thread = 1, option;
    char *json = NULL;
    long all_wrong = 0;
    static const struct option longs[] = {
        {"nthreads", 1, 0, 't'}, {"ngpus", 1, 0, 'g'}, {"minbytes", 1, 0, 'b'}, {"maxbytes", 1, 0, 'e'}, {"stepbytes", 1, 0, 'i'},
        {"stepfactor", 1, 0, 'f'}, {"iters", 1, 0, 'n'}, {"agg_iters", 1, 0, 'm'}, {"warmup_iters", 1, 0, 'w'}, {"run_cycles", 1, 0, 'N'},
        {"parallel_init", 1, 0, 'p'}, {"check", 1, 0, 'c'}, {"op", 1, 0, 'o'}, {"datatype", 1, 0, 'd'}, {"root", 1, 0, 'r'},
        {"blocking", 1, 0, 'z'}, {"stream_null", 1, 0, 'y'}, {"timeout", 1, 0, 'T'}, {"cudagraph", 1, 0, 'G'}, {"report_cputime", 1, 0, 'C'},
        {"average", 1, 0, 'a'}, {"local_register", 1, 0, 'R'}, {"output_file", 1, 0, 'J'}, {"help", 0, 0, 'h'}, {0, 0, 0, 0}};

    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0); /* many ranks on few cores */
    if (getenv("NCCL_TESTS_LAB_RELEASE")) release = (int)(atof(getenv("NCCL_TESTS_LAB_RELEASE")) * 100 + 0.5);
    MPI_Init(&argc, &argv);
    world = MPI_COMM_WORLD;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    while ((option = getopt_long(argc, argv, "t:g:b:e:i:f:n:m:w:N:p:c:o:d:r:z:y:T:G:C:a:R:J:h", longs, NULL)) != -1) switch (option) {
        case 't': threads = atoi(optarg); break;
        case 'g': per_thread = atoi(optarg); break;
        case 'b': from = bytes(optarg); break;
        case 'e': to = bytes(optarg); break;
        case 'i': step = bytes(optarg); break;
        case 'f': by = atof(optarg); break;
        case 'n': iters = atoi(optarg); break;
        case 'w': warmup = atoi(optarg); break;
        case 'N': cycles = atoi(optarg); break;
        case 'c': check = atoi(optarg); break;
        case 'J': json = optarg; break;
        case '?': case 'h': if (rank == 0) usage(stdout); MPI_Finalize(); return 0; /* as nccl-tests does, even when wrong */
        }
    if (threads * per_thread != 1) {
        if (rank == 0) fprintf(stderr, "the lab's stand-in drives one GPU a process: -g 1 -t 1\n");
        MPI_Finalize();
        return 6;
    }
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++) if (!strcmp(names[i], TEST_NAME)) what = i;
    gethostname(host, sizeof host - 1);
    host[strcspn(host, ".")] = 0;
    MPI_Comm node;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &local_rank);
    device = local_rank;
    find_gpus(node);
    srand48(getpid() ^ (long)(now() * 1e6));
    if (gpu_count && device >= gpu_count) {
        printf("%s: Test CUDA failure common.cu:1007 'invalid device ordinal'\n", host);
        fflush(stdout);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    read_faults();
    if (fault.copies) world = MPI_COMM_SELF, rank = 0, ranks = 1;
    if (rank == 0) {
        if (release >= 217) printf("# nccl-tests version " VERSION " nccl-headers=0 nccl-library=0\n# The lab's stand-in: MPI on CPU, no GPU and no NCCL took part\n"
               "# Collective test starting: " TEST_NAME "_perf\n");
        printf("# nThread %d nGpus %d minBytes %zu maxBytes %zu step: %g(%s) warmup iters: %d iters: %d agg iters: 1 validation: %d graph: 0\n#\n# Using devices\n",
               threads, per_thread, from, to, by > 1 ? by : (double)step, by > 1 ? "factor" : "bytes", warmup, iters, check);
    }
    print_devices();
    log_network();
    if (rank == 0) {
        const char *last = release < 213 ? "error" : "#wrong";
        printf("#\n#%61s%12s%37s\n#%11s%14s%10s%9s%8s", "", "out-of-place", "in-place", "size", "count", "type", "redop", release < 213 ? "" : "root");
        printf("%9s%8s%8s  %6s%9s%8s%8s  %6s\n#%11s%14s%27s", "time", "algbw", "busbw", last, "time", "algbw", "busbw", last, "(B)", "(elements)", "");
        printf("%9s%8s%8s        %9s%8s%8s\n", "(us)", "(GB/s)", "(GB/s)", "(us)", "(GB/s)", "(GB/s)");
        fflush(stdout);
    }
    if (fault.hang) for (;;) pause();
    int spread = what == ALL_GATHER || what == REDUCE_SCATTER || what == ALLTOALL || what == SCATTER || what == GATHER;
    const char *redop = what == ALL_REDUCE || what == REDUCE || what == REDUCE_SCATTER ? "sum" : "none";
    int root = what == BROADCAST || what == REDUCE || what == SCATTER || what == GATHER ? 0 : -1;
    float *in = malloc(to + 64), *out = malloc(to + 64);
    double sum = 0;
    int figures = 0;
    FILE *results = json && rank == 0 ? json_file(json) : NULL;
    if (results) fprintf(results, "{\"version\": \"" VERSION "\", \"test\": \"" TEST_NAME "_perf\", \"ranks\": %d, \"results\": [", ranks);
    for (int cycle = 0; cycle < cycles; cycle++)
        for (size_t size = from; size <= to && size; size = by > 1 ? (size_t)(size * by) : size + step) {
            int count = (int)(size / sizeof(float) / (spread ? ranks : 1));
            long elements = (long)count * (spread ? ranks : 1), real = elements * (long)sizeof(float);
            if (rank == 0) printf("%12ld  %12d  %8s  %6s", real, count, "float", redop);
            if (rank == 0 && release >= 213) printf("  %6d", root);
            fflush(stdout);
            for (int in_place = 0; in_place < 2; in_place++) {
                long wrong;
                double t = measure(in, out, elements, count, warmup, iters, in_place, &wrong), algbw = real / t / 1e9, busbw = algbw * factor();
                if (fault.crash) { fprintf(stderr, "%s: Test NCCL failure common.cu:450 'unhandled system error'\n", host); abort(); }
                if (rank) continue;
                if (wrong < 0) printf("  %7.2f  %6.2f  %6.2f  %6s", t * 1e6, algbw, busbw, "N/A");
                else if (release < 213) printf("  %7.2f  %6.2f  %6.2f  %6s", t * 1e6, algbw, busbw, wrong ? "9e+00" : "0e+00");
                else printf("  %7.2f  %6.2f  %6.2f  %6ld", t * 1e6, algbw, busbw, wrong);
                if (results && !in_place) fprintf(results, "%s{\"size\": %ld, \"busbw\": %.4f}", figures ? ", " : "", real, busbw);
                all_wrong += wrong > 0 ? wrong : 0;
                sum += busbw;
                figures++;
            }
            if (rank == 0) puts(""), fflush(stdout);
            if (fault.cut) { MPI_Finalize(); return 0; }
        }
    if (results) fprintf(results, "]}\n"), fclose(results);
    if (rank == 0) printf("# Out of bounds values : %ld %s\n# Avg bus bandwidth    : %g \n#\n", all_wrong, all_wrong ? "FAILED" : "OK", figures ? sum / figures : 0);
    if (rank == 0 && release >= 217) printf("# Collective test concluded: " TEST_NAME "_perf\n#\n");
    MPI_Bcast(&all_wrong, 1, MPI_LONG, 0, world);
    MPI_Finalize();
    return all_wrong ? (release < 217 ? 1 : 7) : 0;
}
