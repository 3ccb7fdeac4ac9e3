/* GNU General Public License v3.0+ (see LICENSE)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * See nvml_config.h.
 */
#include "nvml_config.h"

#include <glob.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CONFIG "/etc/gpuops-lab/gpu.conf"
#define STATE "/run/gpuops-lab"
#define KEPT "/var/lib/gpuops-lab" /* what a card keeps over a restart */
#define MODULE "/proc/driver/nvidia" /* in the node a file system of its own, as is DRIVERS */
#define DRIVERS "/sys/bus/pci/drivers"
#define USER_SPACE "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1" /* the driver packages' own library, if installed */

static struct { char key[32], value[96]; } settings[MAX_SETTINGS];
struct gpu gpus[MAX_GPUS];
Device visible[MAX_GPUS]; /* the GPUs that the driver admits to have */
char switches[MAX_SWITCHES][32];
unsigned gpu_count, visible_count, switch_count;
static unsigned setting_count;
char driver[64];

const char *setting(const char *key)
{
    for (unsigned i = 0; i < setting_count; i++)
        if (!strcmp(settings[i].key, key))
            return settings[i].value;
    return "";
}

unsigned number(const char *key) { return (unsigned)strtoul(setting(key), NULL, 0); }

/* Faults are lists of POSITION or POSITION:AMOUNT. Returns the amount (1 where none is given), 0 if not listed. */
unsigned fault(const char *key, Device d)
{
    for (const char *item = setting(key); *item; item += strcspn(item, ","), item += *item == ',') {
        unsigned position, amount = 1;
        if (sscanf(item, "%u:%u", &position, &amount) >= 1 && position == d->position)
            return amount;
    }
    return 0;
}

void read_config(void)
{
    char line[512], value[384];
    FILE *file = fopen(CONFIG, "re");
    setting_count = gpu_count = visible_count = switch_count = 0;
    while (file && fgets(line, sizeof line, file)) {
        struct gpu *g = &gpus[gpu_count];
        if (gpu_count < MAX_GPUS && sscanf(line, "gpu=%31s %47s %23s %u %255s", g->bus_id, g->uuid, g->serial, &g->numa, g->cpus) == 5) {
            sscanf(g->bus_id, "%x:%x", &g->domain, &g->bus);
            g->position = gpu_count++;
        } else if (switch_count < MAX_SWITCHES && sscanf(line, "nvswitch=%31s", switches[switch_count]) == 1) {
            switch_count++;
        } else if (setting_count < MAX_SETTINGS && sscanf(line, "%31[a-z_]=%95[^\n]", settings[setting_count].key, value) == 2) {
            strcpy(settings[setting_count++].value, value);
        }
    }
    if (file)
        fclose(file);
    for (unsigned i = 0; i < gpu_count; i++)
        if (!fault("gpu_missing", &gpus[i]))
            visible[visible_count++] = &gpus[i];
}

const char *installed_version(void)
{
    static char path[PATH_MAX];
    char *suffix = realpath(USER_SPACE, path) ? strstr(path, ".so.") : NULL;
    return suffix ? suffix + strlen(".so.") : NULL;
}

/* ---- the kernel module, as it shows in /proc and /sys -------------------------------------------------------- */

static void __attribute__((format(printf, 2, 3))) write_file(const char *path, const char *format, ...)
{
    va_list arguments;
    FILE *file = fopen(path, "we");
    if (!file)
        return; /* a loaded module is a convenience: without it nvidia-smi works as well */
    va_start(arguments, format);
    vfprintf(file, format, arguments);
    va_end(arguments);
    fclose(file);
}

/* Like the real one, the module is loaded by the first who needs it, and stays until the node restarts. */
static void load_module(void)
{
    char path[128];
    glob_t found;
    int open = glob("/usr/src/nvidia*open*", GLOB_NOSORT, NULL, &found) == 0; /* sources of the open modules */
    globfree(&found);
    mkdir(MODULE, 0755), mkdir(MODULE "/gpus", 0755), mkdir(DRIVERS "/nvidia", 0755);
    write_file(MODULE "/version", "NVRM version: NVIDIA UNIX %s  %s  (%s)\n",
               open ? "Open Kernel Module for x86_64" : "x86_64 Kernel Module", driver, *setting("driver") ? "by a fault" : "simulated");
    for (unsigned i = 0; i < visible_count; i++) {
        const struct gpu *g = visible[i];
        snprintf(path, sizeof path, MODULE "/gpus/%s", g->bus_id);
        mkdir(path, 0755);
        snprintf(path, sizeof path, MODULE "/gpus/%s/information", g->bus_id);
        write_file(path, "Model: \t\t %s\nGPU UUID: \t %s\nBus Type: \t PCIe\nBus Location: \t %s\nDevice Minor: \t %u\n",
                   setting("name"), g->uuid, g->bus_id, g->position);
    }
}

/* What was loaded in earnest; a version that a fault made up does not outlive the fault. */
static const char *loaded_version(void)
{
    static char version[32];
    FILE *file = fopen(MODULE "/version", "re");
    char line[128], *found = NULL;
    if (file && fgets(line, sizeof line, file) && !strstr(line, "fault") && (found = strstr(line, "  ")))
        sscanf(found, "%31s", version);
    if (file)
        fclose(file);
    return found ? version : NULL;
}

/* The module's version is the one that a fault names, else the one that was loaded before, else that of the packages. */
Return find_driver(void)
{
    const char *installed = installed_version(), *loaded = *setting("driver") ? setting("driver") : loaded_version();
    snprintf(driver, sizeof driver, "%s", loaded ? loaded : installed ? installed : "");
    if (number("not_loaded"))
        remove(MODULE "/version");
    if (!*driver || number("not_loaded"))
        return DRIVER_NOT_LOADED;
    if (!loaded_version() || strcmp(loaded_version(), driver))
        load_module();
    return number("mismatch") || (installed && strcmp(installed, driver)) ? VERSION_MISMATCH : SUCCESS;
}

unsigned cuda_version(void)
{
    static const unsigned table[][2] = {{590, 13010}, {580, 13000}, {575, 12090}, {570, 12080}, {565, 12070}, {560, 12060},
                                        {555, 12050}, {550, 12040}, {545, 12030}, {535, 12020}, {525, 12000}};
    for (unsigned i = 0; i < sizeof table / sizeof *table; i++)
        if ((unsigned)atoi(driver) >= table[i][0])
            return table[i][1];
    return 11040;
}

static unsigned read_state(const char *folder, Device d, const char *key, unsigned otherwise)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%u.%s", folder, d->position, key);
    FILE *file = fopen(path, "re");
    if (file) {
        if (fscanf(file, "%u", &otherwise) != 1)
            otherwise = 0;
        fclose(file);
    }
    return otherwise;
}
unsigned recall(Device d, const char *key, unsigned otherwise) { return read_state(STATE, d, key, otherwise); }
unsigned recall_kept(Device d, const char *key, unsigned otherwise) { return read_state(KEPT, d, key, otherwise); }

static Return write_state(const char *folder, Device d, const char *key, unsigned value)
{
    char path[64];
    mkdir(folder, 0755);
    snprintf(path, sizeof path, "%s/%u.%s", folder, d->position, key);
    FILE *file = fopen(path, "we");
    if (!file)
        return NO_PERMISSION;
    fprintf(file, "%u\n", value);
    return fclose(file) ? UNKNOWN : SUCCESS;
}
Return remember(Device d, const char *key, unsigned value) { return write_state(STATE, d, key, value); }
Return remember_kept(Device d, const char *key, unsigned value) { return write_state(KEPT, d, key, value); }
