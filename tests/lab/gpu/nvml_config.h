/* GNU General Public License v3.0+ (see LICENSE)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * What gpu.conf says: the board, its GPUs, the faults that are set; and what nvidia-smi changed since the node started.
 */
#ifndef NVML_CONFIG_H
#define NVML_CONFIG_H

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9,
       TIMEOUT = 10, CORRUPTED_INFOROM = 14, GPU_IS_LOST = 15, VERSION_MISMATCH = 18, UNKNOWN = 999 };
enum { VOLTA = 5, AMPERE = 7, HOPPER = 9 };
enum { MAX_GPUS = 16, MAX_SETTINGS = 128, MAX_SWITCHES = 8, MAX_LINKS = 18 };

typedef int Return; /* NVML's codes above */
typedef unsigned long long Counter;
typedef const struct gpu *Device;
struct gpu {
    unsigned position; /* on the board; also the N of /dev/nvidiaN, which stays when another GPU is missing */
    char bus_id[32], uuid[48], serial[24], cpus[256];
    unsigned domain, bus, numa;
};

#pragma GCC visibility push(hidden)
extern struct gpu gpus[MAX_GPUS];      /* on the board */
extern Device visible[MAX_GPUS];       /* those that the driver admits to have */
extern char switches[MAX_SWITCHES][32];
extern unsigned gpu_count, visible_count, switch_count;
extern char driver[64];                /* version of the loaded module */

void read_config(void);
Return find_driver(void);
const char *installed_version(void);   /* of the driver packages on this system; NULL without any */
unsigned cuda_version(void);           /* 12040 is 12.4 */

const char *setting(const char *key);  /* "" if absent */
unsigned number(const char *key);      /* 0 if absent */
unsigned fault(const char *key, Device d);
unsigned recall(Device d, const char *key, unsigned otherwise);
Return remember(Device d, const char *key, unsigned value);
unsigned recall_kept(Device d, const char *key, unsigned otherwise); /* over a restart of the node */
Return remember_kept(Device d, const char *key, unsigned value);
#pragma GCC visibility pop

#endif
