// hub/digest.c: see hub/digest.h.
#include "hub/digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

HubDigestKind hub_digest_kind(const char *etag) {
    size_t n = strlen(etag);
    if (strspn(etag, "0123456789abcdef") != n) return HUB_DIGEST_NONE;
    return n == 64 ? HUB_DIGEST_SHA256 : n == 40 ? HUB_DIGEST_GIT : HUB_DIGEST_NONE;
}

void hub_digest_start(HubDigest *d, const char *etag, uint64_t size) {
    d->kind = hub_digest_kind(etag);
    SHA1Init(&d->sha1);
    SHA256Init(&d->sha2);
    if (d->kind != HUB_DIGEST_GIT) return;
    char head[40];
    int n = snprintf(head, sizeof head, "blob %" PRIu64, size);
    hub_digest_add(d, head, (size_t)n + 1);
}

void hub_digest_add(HubDigest *d, const void *bytes, size_t n) {
    if (d->kind == HUB_DIGEST_GIT) SHA1Update(&d->sha1, bytes, n);
    if (d->kind == HUB_DIGEST_SHA256) SHA256Update(&d->sha2, bytes, n);
}

void hub_digest_end(HubDigest *d, char digits[65]) {
    uint8_t found[32];
    size_t n = d->kind == HUB_DIGEST_SHA256 ? 32 : d->kind == HUB_DIGEST_GIT ? 20 : 0;
    if (d->kind == HUB_DIGEST_GIT) SHA1Final(found, &d->sha1);
    if (d->kind == HUB_DIGEST_SHA256) SHA256Final(found, &d->sha2);
    for (size_t i = 0; i < n; i++) snprintf(digits + 2 * i, 3, "%02x", found[i]);
    digits[2 * n] = 0;
}
