/* What is asked of the driver for a stream: memory, copies, launches, graphs. */
#include "cuda/driver.h"

Stream the_stream;
Lane *the_lane;

int
send_to(Lane *lane)
{
    the_lane = lane;
    the_stream = lane->stream;
    return enter_context_of(lane->gpu);
}

/* ---- memory */

char *
driver_allocate(size_t bytes)
{
    DevicePointer found = 0;
    if (is_emulated) {
        return emulated_memory(bytes);
    }
    if (enter_context() < 0) {
        PyErr_Clear();
        return NULL;
    }
    return driver.allocate(&found, bytes) == 0 ? (char *)found : NULL;
}

void
driver_free(char *memory)
{
    if (is_emulated) {
        emulated_free(memory);
    }
    else if (enter_context() == 0) {
        driver.free((DevicePointer)memory); /* which waits for the device */
    }
    else {
        PyErr_Clear();
    }
}

/* ---- copies */

/* The current stream, all of which is sent; NULL with an exception. */
static Lane *
ready_lane(Occasion occasion)
{
    Lane *lane = lane_now();
    if (lane == NULL || flush_at(occasion, lane) < 0 || send_to(lane) < 0) {
        return NULL;
    }
    lane->is_busy = lane->is_fed = 0; /* the caller waits for it */
    return lane;
}

int
driver_copy_to_device(char *to, const void *from, size_t bytes)
{
    Lane *lane = ready_lane(AT_COPY_IN);
    if (lane == NULL) {
        return -1;
    }
    if (is_emulated) {
        wait_emulated(lane, emulated_work(lane));
        memcpy(to, from, bytes);
        return 0;
    }
    int result = driver.to_device((DevicePointer)to, from, bytes, lane->stream);
    if (result == 0) {
        result = driver.stream_synchronize(lane->stream); /* the caller's memory may be gone after this */
    }
    return failed(result, "copying to the device") ? -1 : 0;
}

int
driver_copy_to_host(void *to, const char *from, size_t bytes)
{
    int result;
    Lane *lane = ready_lane(AT_LOOK);
    if (lane == NULL) {
        return -1;
    }
    if (is_emulated) {
        wait_emulated(lane, emulated_work(lane));
        memcpy(to, from, bytes);
        return raise_index_error();
    }
    if (bytes <= STAGING_BYTES) { /* under the lock: there is one staging buffer */
        result = driver.to_host(staging, (DevicePointer)from, bytes, lane->stream);
        result = result ? result : driver.stream_synchronize(lane->stream);
        memcpy(to, staging, bytes);
    }
    else {
        Py_BEGIN_ALLOW_THREADS
        result = driver.to_host(to, (DevicePointer)from, bytes, lane->stream);
        result = result ? result : driver.stream_synchronize(lane->stream);
        Py_END_ALLOW_THREADS
    }
    return failed(result, "copying to the host") ? -1 : raise_index_error();
}

int
driver_fill_zero(char *memory, size_t bytes)
{
    if (is_emulated) {
        memset(memory, 0, bytes);
        return 0;
    }
    return failed(driver.fill((DevicePointer)memory, 0, bytes, the_stream), "filling memory") ? -1 : 0;
}

/* ---- launches */

typedef void (*HostKernel)(const void *arguments, unsigned gx, unsigned gy, unsigned gz, unsigned block);

int
driver_launch(Function function, const unsigned *grid, unsigned block, void *arguments)
{
    if (is_emulated) {
        HostKernel kernel;
        memcpy(&kernel, &function, sizeof(kernel));
        kernel(arguments, grid[0], grid[1], grid[2], block);
        return 0;
    }
    LaunchAttribute attribute = {.id = PROGRAMMATIC_SERIALIZATION, .value.allowed = 1};
    LaunchConfiguration configuration = {{grid[0], grid[1], grid[2]}, {block, 1, 1}, 0, the_stream,
                                         &attribute, (unsigned)the_lane->gpu->overlaps_launches};
    void *list[] = {arguments};
    return failed(driver.launch(&configuration, function, list, NULL), "launching a kernel") ? -1 : 0;
}

/* ---- graphs */

int
driver_begin_capture(void)
{
    return failed(driver.begin_capture(the_stream, RELAXED_CAPTURE), "recording a graph") ? -1 : 0;
}

int
driver_end_capture(void **made)
{
    void *graph = NULL;
    int result = driver.end_capture(the_stream, &graph);
    if (made == NULL) { /* the error that is under way matters more */
        if (result == 0) {
            driver.graph_destroy(graph);
        }
        return 0;
    }
    if (failed(result, "recording a graph")) {
        return -1;
    }
    result = driver.graph_instantiate(made, graph, 0);
    driver.graph_destroy(graph);
    return failed(result, "making a graph") ? -1 : 0;
}

int
driver_launch_graph(void *graph)
{
    return failed(driver.graph_launch(graph, the_stream), "launching a graph") ? -1 : 0;
}

void
driver_free_graph(void *graph)
{
    if (graph != NULL && !is_emulated) {
        driver.graph_free(graph);
    }
}
