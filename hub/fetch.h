// hub/fetch.h: a file of the Hub into the cache: looked up, locked, resumed, checked, linked.
#ifndef QUILL_HUB_FETCH_H
#define QUILL_HUB_FETCH_H

#include "base/progress.h"
#include "hub/cache.h"
#include "hub/http.h"

// What the progress line tells.
typedef struct {
    Progress progress;
    const char *file;    // which comes now
    uint64_t all;        // bytes of all files
    uint64_t before;     // of the files that are there
    uint64_t now;        // of the file that comes
    double shown, rated; // times of the last line, of the last rate
    uint64_t rated_at;   // bytes then
    double rate;         // bytes a second, over the last seconds
} HubMeter;

typedef struct {
    HubHttp *http;
    const char *root, *repo, *commit;
    char *folder; // of the repository in the cache
    HubMeter meter;
} HubFetch;

// Makes snapshots/COMMIT/PATH, unless it is there. A cut transfer goes on where it was cut, in this process or a later
// one; bytes of a wrong number or hash are removed and fetched once more. QUILL_MODEL: the Hub has no such file, or
// does not give it; QUILL_IO: network, disk, or other bytes than the Hub has announced; a signal, after which
// blobs/ETAG.incomplete stays.
Status hub_fetch_file(HubFetch *f, const HubFile *file);

// ---- for the tests ----

// "Qwen3-8B-Q4_K_M.gguf 1.20 GB of 5.03 GB, 34.1 MB/s, 1:52 left"
void hub_meter_text(const HubMeter *m, Buf *out);

#endif
