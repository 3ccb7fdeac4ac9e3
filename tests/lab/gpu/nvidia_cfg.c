/* GNU General Public License v3.0+ (see LICENSE)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The part of libnvidia-cfg.so.1 that nvidia-persistenced needs to start: which GPUs there are, and that they open.
 * NVML (nvml.c) takes a running daemon for persistence mode.
 */
#include "nvml_config.h"

#include <stdlib.h>

struct location { int domain, bus, slot, function; };

int nvCfgGetPciDevices(int *count, struct location **locations)
{
    read_config();
    if (find_driver() != SUCCESS || !(*locations = calloc(MAX_GPUS, sizeof **locations)))
        return 0;
    for (*count = 0; *count < (int)visible_count; ++*count)
        (*locations)[*count] = (struct location){(int)visible[*count]->domain, (int)visible[*count]->bus, 0, 0};
    return 1;
}

int nvCfgOpenPciDevice(int domain, int bus, int slot, int function, void **handle)
{
    for (unsigned i = 0; i < visible_count && slot + function == 0; i++)
        if ((int)visible[i]->domain == domain && (int)visible[i]->bus == bus && !fault("gpu_lost", visible[i]))
            return *handle = (void *)visible[i], 1;
    return 0;
}

int nvCfgCloseDevice(void *handle) { return handle != NULL; }
