/*
 * nvml: a card's temperature and power, and its driver's version.
 *
 * Purpose    By NVIDIA's management library, where there is one: it comes with the driver.
 * Ownership  None; the library stays loaded.
 * Threads    Any.
 * Failure    What is not known stays as it was: 0, "".
 */
#ifndef NEEDLED_CUDA_NVML_H
#define NEEDLED_CUDA_NVML_H

struct nvml_reading {
    char uuid[48]; /* "GPU-...", or "MIG-..." where the library knows a slice by it */
    char driver[32];
    int temperature_celsius;
    int power_watts;
};

/* uuid: the 16 bytes CUDA knows the device by. Of a slice (MIG) temperature and power are those of the
 * card it is of. */
void nvml_read(const unsigned char *uuid, struct nvml_reading *ret_reading);

#endif
