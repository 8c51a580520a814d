/* The driver's functions, as driver.c finds them. Declared here, so that building needs no CUDA headers. */
#ifndef UNDERTOW_CUDA_DRIVER_H
#define UNDERTOW_CUDA_DRIVER_H

#include "cuda/cuda.h"

typedef struct {
    unsigned id;
    char padding[4];
    union {
        char room[64];
        int allowed;
    } value;
} LaunchAttribute;

typedef struct {
    unsigned grid[3], block[3], shared;
    Stream stream;
    LaunchAttribute *attributes;
    unsigned count;
} LaunchConfiguration;

enum { PROGRAMMATIC_SERIALIZATION = 6, NON_BLOCKING_STREAM = 1, CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76,
       PROCESSORS = 16, THREADS_OF_PROCESSOR = 39, RELAXED_CAPTURE = 2, EVENT_WITHOUT_TIME = 2, PORTABLE_MEMORY = 1,
       NOT_READY = 600 };

typedef struct {
    int (*init)(unsigned);
    int (*driver_version)(int *);
    int (*device_count)(int *);
    int (*device_get)(int *, int);
    int (*device_name)(char *, int, int);
    int (*device_attribute)(int *, int, int);
    int (*device_memory)(size_t *, int);
    int (*device_uuid)(char *, int);
    int (*context_retain)(void **, int);
    int (*context_set)(void *);
    int (*context_synchronize)(void);
    int (*error_text)(int, const char **);
    int (*stream_create)(Stream *, unsigned, int);
    int (*stream_priorities)(int *, int *);
    int (*stream_synchronize)(Stream);
    int (*stream_query)(Stream);
    int (*stream_wait)(Stream, void *, unsigned);
    int (*event_create)(void **, unsigned);
    int (*event_record)(void *, Stream);
    int (*event_query)(void *);
    int (*event_synchronize)(void *);
    int (*event_elapsed)(float *, void *, void *);
    int (*event_destroy)(void *);
    int (*library_load)(Module *, const void *, void *, void *, unsigned, void *, void *, unsigned);
    int (*library_kernel)(Function *, Module, const char *);
    int (*launch)(const LaunchConfiguration *, Function, void **, void **);
    int (*allocate)(DevicePointer *, size_t);
    int (*free)(DevicePointer);
    int (*memory_info)(size_t *, size_t *);
    int (*allocate_host)(void **, size_t, unsigned);
    int (*free_host)(void *);
    int (*to_device)(DevicePointer, const void *, size_t, Stream);
    int (*to_host)(void *, DevicePointer, size_t, Stream);
    int (*within_device)(DevicePointer, DevicePointer, size_t, Stream);
    int (*to_peer)(DevicePointer, void *, DevicePointer, void *, size_t, Stream);
    int (*can_reach_peer)(int *, int, int);
    int (*fill)(DevicePointer, unsigned char, size_t, Stream);
    int (*begin_capture)(Stream, int);
    int (*end_capture)(Stream, void **);
    int (*graph_instantiate)(void **, void *, unsigned long long);
    int (*graph_launch)(void *, Stream);
    int (*graph_destroy)(void *);
    int (*graph_free)(void *);
} Driver;

extern Driver driver;

#endif
