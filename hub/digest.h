// hub/digest.h: what a file's ETag on the Hub says of its bytes: their SHA-256 (64 digits), or the SHA-1 of a git blob
// (40 digits), which is that of "blob SIZE", a NUL and the bytes. Other ETags say nothing that can be checked.
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
void hub_digest_start(HubDigest *d, const char *etag, uint64_t size); // size: of the whole file
void hub_digest_add(HubDigest *d, const void *bytes, size_t n);
void hub_digest_end(HubDigest *d, char digits[65]); // "" for HUB_DIGEST_NONE

#endif
