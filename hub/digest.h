// hub/digest.h: checks a file against its ETag on the Hub: the SHA-256 of its bytes (64 digits), or the SHA-1 of its
// git blob (40 digits), which covers "blob SIZE", a NUL and the bytes. Other ETags cannot be checked.
#ifndef QUILL_HUB_DIGEST_H
#define QUILL_HUB_DIGEST_H

#include <sys/types.h>
#include <sha1.h>
#include <sha2.h>

#include "base/base.h"

typedef enum { HUB_DIGEST_NONE, HUB_DIGEST_GIT, HUB_DIGEST_SHA256 } HubDigestKind;

typedef struct {
    HubDigestKind kind;
    SHA1_CTX sha1;
    SHA2_CTX sha2;
} HubDigest;

HubDigestKind hub_digest_kind(const char *etag);
void hub_digest_start(HubDigest *d, const char *etag, uint64_t size); // size of the whole file
void hub_digest_add(HubDigest *d, const void *bytes, size_t n);
void hub_digest_end(HubDigest *d, char digits[65]); // "" for HUB_DIGEST_NONE

#endif
