// hub/curl.h: libcurl, loaded when it is first needed: quill starts without it and is built without its headers.
//
// The numbers belong to libcurl's binary interface, which does not change (libcurl-errors(3), curl_easy_setopt(3));
// tests/test_hub.c compares them with curl.h if that is installed.
#ifndef QUILL_HUB_CURL_H
#define QUILL_HUB_CURL_H

#include "base/base.h"

typedef enum { // CURLoption: by the type of the value 0 (long), 10000 (pointer), 20000 (function), 30000 (curl_off_t)
    HUB_CURL_LOW_SPEED_LIMIT = 19,
    HUB_CURL_LOW_SPEED_TIME = 20,
    HUB_CURL_NOPROGRESS = 43,
    HUB_CURL_NOBODY = 44,
    HUB_CURL_FOLLOWLOCATION = 52,
    HUB_CURL_CONNECTTIMEOUT = 78,
    HUB_CURL_HTTPGET = 80,
    HUB_CURL_NOSIGNAL = 99,
    HUB_CURL_PROTOCOLS = 181,
    HUB_CURL_WRITEDATA = 10001,
    HUB_CURL_URL = 10002,
    HUB_CURL_RANGE = 10007,
    HUB_CURL_ERRORBUFFER = 10010,
    HUB_CURL_USERAGENT = 10018,
    HUB_CURL_HTTPHEADER = 10023,
    HUB_CURL_HEADERDATA = 10029,
    HUB_CURL_XFERINFODATA = 10057,
    HUB_CURL_WRITEFUNCTION = 20011,
    HUB_CURL_HEADERFUNCTION = 20079,
    HUB_CURL_XFERINFOFUNCTION = 20219,
} HubCurlOption;

enum { // CURLINFO, CURLcode, CURLPROTO and sizes
    HUB_CURL_RESPONSE_CODE = 0x200002,
    HUB_CURL_REDIRECT_URL = 0x10001f,
    HUB_CURLE_OK = 0,
    HUB_CURLE_FAILED_INIT = 2,
    HUB_CURLE_NO_PROXY = 5, // the proxy has no address
    HUB_CURLE_NO_HOST = 6,
    HUB_CURLE_NO_CONNECTION = 7,
    HUB_CURLE_OUT_OF_MEMORY = 27,
    HUB_CURLE_TIMEOUT = 28,
    HUB_CURLE_PEER_FAILED_VERIFICATION = 60,
    HUB_CURL_HTTP = 1,
    HUB_CURL_HTTPS = 2,
    HUB_CURL_ERROR_SIZE = 256,
};

typedef struct HubCurlList HubCurlList; // curl_slist

typedef struct {
    void *(*easy_init)(void);
    int (*easy_setopt)(void *handle, int option, ...);
    int (*easy_perform)(void *handle);
    int (*easy_getinfo)(void *handle, int info, ...);
    const char *(*easy_strerror)(int code);
    void (*easy_cleanup)(void *handle);
    HubCurlList *(*slist_append)(HubCurlList *list, const char *text); // copies the text
    void (*slist_free_all)(HubCurlList *list);
} HubCurl;

// Opens the library once. QUILL_IO: it is not there; the message says how to install it.
Status hub_curl_open(const HubCurl **out);

#endif
