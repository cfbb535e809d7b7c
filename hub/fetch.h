// hub/fetch.h: fetches a file of the Hub into the cache: look-up, lock, resumed transfer, check, link.
#ifndef QUILL_HUB_FETCH_H
#define QUILL_HUB_FETCH_H

#include "base/progress.h"
#include "hub/cache.h"
#include "hub/http.h"

// State of the progress line.
typedef struct {
    Progress progress;
    const char *file;    // name of the current file
    uint64_t all;        // bytes of all files
    uint64_t before;     // bytes of the complete files
    uint64_t now;        // bytes of the current file so far
    double shown, rated; // when the line and the rate were last updated
    uint64_t rated_at;   // bytes at that update of the rate
    double rate;         // bytes a second, over the last seconds
} HubMeter;

typedef struct {
    HubHttp *http;
    const char *root, *repo, *commit;
    char *folder; // folder of the repository in the cache
    HubMeter meter;
} HubFetch;

// Creates snapshots/COMMIT/PATH unless it exists. An interrupted transfer is continued, in this process or a later one.
// If size or hash are wrong, the file is removed and fetched once more. QUILL_MODEL: the Hub has no such file, or
// refuses it; QUILL_IO: network, disk, or wrong bytes again; a signal, after which blobs/ETAG.incomplete stays.
Status hub_fetch_file(HubFetch *f, const HubFile *file);

// QUILL_IO: the disk of the repository's blobs has less room than `missing` bytes. `what` begins the message.
Status hub_fetch_check_room(const HubFetch *f, const char *what, uint64_t missing);

// ---- for the tests ----

// "Qwen3-8B-Q4_K_M.gguf 1.20 GB of 5.03 GB, 34.1 MB/s, 1:52 left"
void hub_meter_text(const HubMeter *m, Buf *out);

#endif
