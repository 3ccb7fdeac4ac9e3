/* GNU General Public License v3.0+ (see LICENSE)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * What the two halves of our NVML share: the shapes of its functions, and how the GPUs are linked.
 */
#ifndef NVML_SHAPES_H
#define NVML_SHAPES_H

#include "nvml_config.h"

/* A number; "not supported" unless the condition holds. */
#define NUMBER(function, type, condition, expression)                  \
    Return function(Device d, type *value)                             \
    {                                                                  \
        (void)d;                                                       \
        if (!(condition))                                              \
            return NOT_SUPPORTED;                                      \
        *value = (type)(expression);                                   \
        return SUCCESS;                                                \
    }
/* A number that is read from the GPU when asked for: one in trouble has none. */
#define READING(function, type, expression)                            \
    Return function(Device d, type *value)                             \
    {                                                                  \
        *value = (type)(expression);                                   \
        return health(d);                                              \
    }

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };

#pragma GCC visibility push(hidden)
Return health(Device d);
Device by_bus_id(const char *bus_id);
void fill_pci(struct pci *pci, const char *bus_id, unsigned id, unsigned subsystem);
unsigned own_links(Device d);
int link_up(Device d, unsigned link);
Return is_link(unsigned link);
unsigned is_mig(Device d); /* a MIG device; its name and UUID: */
void mig_name(Device d, char *text, unsigned size);
void mig_uuid(Device d, char *text, unsigned size);
#pragma GCC visibility pop

Return nvmlDeviceGetPciInfo_v3(Device d, struct pci *pci);

#endif
