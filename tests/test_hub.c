// tests/test_hub.c: names of models, the files of a model in a repository, the choice among models, heads of HTTP
// answers, hashes, the progress line. tests/hub.bats tests the transfers.
#include "tests/rig/testing.h"

#include "base/jsonio.h"
#include "hub/choose.h"
#include "hub/curl.h"
#include "hub/digest.h"
#include "hub/fetch.h"

// ---- libcurl's numbers ----------------------------------------------------------------------------------------------

#if __has_include(<curl/curl.h>)
#define CURL_DISABLE_TYPECHECK
#define CURL_DISABLE_DEPRECATION
#include <curl/curl.h>
#define SAME(ours, theirs) _Static_assert((long)(ours) == (long)(theirs), #theirs)
SAME(HUB_CURL_LOW_SPEED_LIMIT, CURLOPT_LOW_SPEED_LIMIT);
SAME(HUB_CURL_LOW_SPEED_TIME, CURLOPT_LOW_SPEED_TIME);
SAME(HUB_CURL_NOPROGRESS, CURLOPT_NOPROGRESS);
SAME(HUB_CURL_NOBODY, CURLOPT_NOBODY);
SAME(HUB_CURL_FOLLOWLOCATION, CURLOPT_FOLLOWLOCATION);
SAME(HUB_CURL_CONNECTTIMEOUT, CURLOPT_CONNECTTIMEOUT);
SAME(HUB_CURL_HTTPGET, CURLOPT_HTTPGET);
SAME(HUB_CURL_NOSIGNAL, CURLOPT_NOSIGNAL);
SAME(HUB_CURL_PROTOCOLS, CURLOPT_PROTOCOLS);
SAME(HUB_CURL_WRITEDATA, CURLOPT_WRITEDATA);
SAME(HUB_CURL_URL, CURLOPT_URL);
SAME(HUB_CURL_RANGE, CURLOPT_RANGE);
SAME(HUB_CURL_ERRORBUFFER, CURLOPT_ERRORBUFFER);
SAME(HUB_CURL_USERAGENT, CURLOPT_USERAGENT);
SAME(HUB_CURL_HTTPHEADER, CURLOPT_HTTPHEADER);
SAME(HUB_CURL_HEADERDATA, CURLOPT_HEADERDATA);
SAME(HUB_CURL_XFERINFODATA, CURLOPT_XFERINFODATA);
SAME(HUB_CURL_WRITEFUNCTION, CURLOPT_WRITEFUNCTION);
SAME(HUB_CURL_HEADERFUNCTION, CURLOPT_HEADERFUNCTION);
SAME(HUB_CURL_XFERINFOFUNCTION, CURLOPT_XFERINFOFUNCTION);
SAME(HUB_CURL_RESPONSE_CODE, CURLINFO_RESPONSE_CODE);
SAME(HUB_CURL_REDIRECT_URL, CURLINFO_REDIRECT_URL);
SAME(HUB_CURLE_OK, CURLE_OK);
SAME(HUB_CURLE_FAILED_INIT, CURLE_FAILED_INIT);
SAME(HUB_CURLE_NO_HOST, CURLE_COULDNT_RESOLVE_HOST);
SAME(HUB_CURLE_NO_CONNECTION, CURLE_COULDNT_CONNECT);
SAME(HUB_CURLE_OUT_OF_MEMORY, CURLE_OUT_OF_MEMORY);
SAME(HUB_CURLE_PEER_FAILED_VERIFICATION, CURLE_PEER_FAILED_VERIFICATION);
SAME(HUB_CURL_HTTP, CURLPROTO_HTTP);
SAME(HUB_CURL_HTTPS, CURLPROTO_HTTPS);
SAME(HUB_CURL_ERROR_SIZE, CURL_ERROR_SIZE);
#endif

// ---- names ----------------------------------------------------------------------------------------------------------

static void test_names(void **state) {
    (void)state;
    static const struct {
        const char *text, *repo, *tag;
    } good[] = {
        {"Qwen/Qwen3-8B-GGUF", "Qwen/Qwen3-8B-GGUF", ""},
        {"Qwen/Qwen3-8B-GGUF:Q4_K_M", "Qwen/Qwen3-8B-GGUF", "Q4_K_M"},
        {"a/b:dir/file.gguf", "a/b", "dir/file.gguf"},
        {"_user/b_c.d", "_user/b_c.d", ""},
        {"hf.co/a/b:Q8_0", "a/b", "Q8_0"},
        {"https://huggingface.co/a/b", "a/b", ""},
        {"https://huggingface.co/a/b/", "a/b", ""},
        {"HTTPS://HuggingFace.co/a/b/tree/main", "a/b", ""},
        {"https://huggingface.co/a/b/blob/main/x/y.gguf", "a/b", "x/y.gguf"},
        {"https://huggingface.co/a/b/resolve/main/y.gguf?download=true", "a/b", "y.gguf"},
    };
    static const char *const bad[] = {
        "",
        "a",
        "a/",
        "/a",
        "a/b/c",
        "a/b:",
        "a//b",
        "../a",
        "a/..",
        "a/.b",
        "a/b.",
        "a/b-",
        "-a/b",
        "a/b--c",
        "a/b..c",
        "a b/c",
        "a/b c",
        "a/b\n",
        "a/b:x\ny",
        "https://elsewhere.org/a/b",
        "https://huggingface.co/a/b/blob/other/x.gguf",
    };
    HubName n;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_ok(hub_name_parse(good[i].text, &n));
        assert_string_equal(n.repo, good[i].repo);
        assert_string_equal(n.tag, good[i].tag);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (hub_name_parse(bad[i], &n).code != QUILL_USAGE) fail_msg("\"%s\" is taken", bad[i]);
    assert_true(hub_name_read("Qwen3-8B-GGUF:Q8_0", true, &n));
    assert_string_equal(n.repo, "Qwen3-8B-GGUF");
    char lengthy[400];
    memset(lengthy, 'a', sizeof lengthy);
    lengthy[2] = '/';
    lengthy[HUB_REPO_MOST] = 0;
    assert_ok(hub_name_parse(lengthy, &n));
    lengthy[HUB_REPO_MOST] = 'a', lengthy[HUB_REPO_MOST + 1] = 0;
    assert_int_equal(hub_name_parse(lengthy, &n).code, QUILL_USAGE);
}

static void test_types(void **state) {
    (void)state;
    static const char *const types[][2] = {
        {"Qwen3-8B-Q4_K_M.gguf", "Q4_K_M"},
        {"dir/llama-2-7b.Q4_0.gguf", "Q4_0"},
        {"gemma-3-4b-it-q4_0.gguf", "Q4_0"},
        {"Llama-3.2-3B-Instruct-IQ4_XS.gguf", "IQ4_XS"},
        {"x-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"},
        {"BF16/x-BF16-00001-of-00002.gguf", "BF16"},
        {"qwen2.5-0.5b-instruct-fp16.gguf", "FP16"},
        {"gpt-oss-20b-mxfp4.gguf", "MXFP4"},
        {"x-MXFP4_MOE.gguf", "MXFP4_MOE"},
        {"x-TQ1_0.gguf", "TQ1_0"},
        {"x-f16-Q8_0.gguf", "Q8_0"}, // the last type in the name counts
        {"Q8_0.gguf", "Q8_0"},
        {"ggml-model_q5_1.gguf", "Q5_1"},
        {"Q4_K_M/model.gguf", ""}, // only the file's own name counts
        {"model.gguf", ""},
        {"Qwen3-8B.gguf", ""},
        {"q4.gguf", ""},
        {"", ""},
    };
    char type[HUB_TYPE_MOST + 1];
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        hub_name_type(types[i][0], type);
        assert_string_equal(type, types[i][1]);
    }
    static const char *const unsafe[] = {"",
                                         "/a",
                                         "a/",
                                         "a//b",
                                         ".",
                                         "..",
                                         "a/../b",
                                         "a/./b",
                                         "a\nb",
                                         "a\\b",
                                         "a\x7f",
                                         "a/\xc2\x9b"
                                         "2J.gguf",
                                         "\xc2\x80"};
    for (size_t i = 0; i < ARRAY_LEN(unsafe); i++) assert_false(hub_name_is_safe_path(unsafe[i]));
    assert_true(hub_name_is_safe_path("a b/..c/.gitattributes"));
    assert_true(hub_name_is_safe_path("\xc2\xa0\xc3\x9b")); // characters above U+009F
}

// ---- models ---------------------------------------------------------------------------------------------------------

// The files of a repository, separated by blanks, in the order of the API; each has 100 bytes.
static HubFiles files_of(const char *paths) {
    Buf json = {0};
    HubFiles files = {0};
    buf_str(&json, "{\"sha\":\"0123456789012345678901234567890123456789\",\"siblings\":[");
    for (const char *at = paths; *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        buf_printf(&json, "%s{\"rfilename\":\"%.*s\",\"size\":100}", at == paths ? "" : ",", (int)n, at);
        at += n;
    }
    buf_str(&json, "]}");
    assert_ok(hub_files_read("a/b", str_of_buf(&json), &files));
    buf_free(&json);
    return files;
}

// The choice that a name makes among files: the first file, a blank, and the number of files; or the error's message.
static const char *chosen(const char *paths, const char *tag) {
    static char said[1200];
    HubFiles files = files_of(paths);
    HubModels models = {0};
    HubName name = {.repo = "a/b"};
    int which;
    snprintf(name.tag, sizeof name.tag, "%s", tag);
    hub_models_group(&files, &models);
    Status st = hub_models_choose(&name, &models, &which);
    if (st.code) {
        assert_int_equal(st.code, QUILL_MODEL);
        snprintf(said, sizeof said, "%s", st.message);
    } else snprintf(said, sizeof said, "%s %d", models.at[which].files[0]->path, models.at[which].n);
    hub_models_free(&models);
    hub_files_free(&files);
    return said;
}

static void test_choice(void **state) {
    (void)state;
    static const char three[] = "x-Q8_0.gguf x-Q4_K_M.gguf x-Q2_K.gguf config.json model.safetensors";
    assert_string_equal(chosen(three, ""), "x-Q4_K_M.gguf 1");
    assert_string_equal(chosen(three, "q8_0"), "x-Q8_0.gguf 1");
    assert_string_equal(chosen(three, "x-Q2_K"), "x-Q2_K.gguf 1");
    assert_string_equal(chosen(three, "safetensors"), "config.json 2");
    assert_string_equal(chosen("x-Q8_0.gguf x-Q2_K.gguf config.json model.safetensors", ""), "x-Q8_0.gguf 1");
    assert_string_equal(chosen("x-Q2_K.gguf config.json model.safetensors", ""), "config.json 2");
    assert_string_equal(chosen("x-Q2_K.gguf config.json", ""), "x-Q2_K.gguf 1"); // the only model
    assert_string_equal(chosen("model.gguf", ""), "model.gguf 1");
    assert_non_null(strstr(chosen("x-Q2_K.gguf x-Q3_K_S.gguf", ""), "it has Q2_K, Q3_K_S: name one, as a/b:Q2_K"));
    assert_non_null(strstr(chosen("x-Q4_K_M.gguf y-Q4_K_M.gguf", ""), "several found"));
    assert_string_equal(chosen("x-Q4_K_M.gguf y-Q4_K_M.gguf", "y-Q4_K_M.gguf"), "y-Q4_K_M.gguf 1");
    assert_non_null(strstr(chosen(three, "Q4_K_L"), "did you mean Q4_K_M?"));
    assert_non_null(strstr(chosen("README.md pytorch_model.bin config.json", ""), "has neither"));
    // Unsloth's mixes are used if there is no other file of the type.
    assert_string_equal(chosen("x-UD-Q4_K_XL.gguf", "Q4_K_XL"), "x-UD-Q4_K_XL.gguf 1");
    assert_string_equal(chosen("x-UD-Q4_K_XL.gguf x-Q4_K_XL.gguf", "Q4_K_XL"), "x-Q4_K_XL.gguf 1");
    // Files that are not models.
    assert_string_equal(chosen("mmproj-Q4_K_M.gguf x-mmproj-f16.gguf imatrix.gguf x.imatrix.gguf ggml-vocab-x.gguf "
                               "x-Q8_0.gguf",
                               ""),
                        "x-Q8_0.gguf 1");
    // Split files: all parts or none.
    assert_string_equal(chosen("d/x-Q4_K_M-00001-of-00003.gguf d/x-Q4_K_M-00003-of-00003.gguf "
                               "d/x-Q4_K_M-00002-of-00003.gguf x-Q8_0.gguf",
                               ""),
                        "d/x-Q4_K_M-00001-of-00003.gguf 3");
    assert_string_equal(chosen("x-Q4_K_M-00001-of-00002.gguf x-Q8_0.gguf", ""), "x-Q8_0.gguf 1");
    assert_string_equal(chosen("x-Q4_K_M-00001-of-00002.gguf x-Q4_K_M-00002-of-00002.gguf", "x-Q4_K_M"),
                        "x-Q4_K_M-00001-of-00002.gguf 2");
}

static void test_shards(void **state) {
    (void)state;
    HubFiles files = files_of("config.json model-1.safetensors model-2.safetensors model.safetensors.index.json "
                              "other.safetensors tokenizer.json vocab.json");
    HubModels models = {0};
    hub_models_group(&files, &models);
    assert_int_equal(models.n, 1);
    HubModel *m = &models.at[0];
    assert_int_equal(m->n, 3); // config, tokenizer, index
    assert_int_equal(m->bytes, 500);
    Str index = str_of("{\"weight_map\":{\"a\":\"model-1.safetensors\",\"b\":\"model-1.safetensors\","
                       "\"c\":\"model-2.safetensors\"}}");
    assert_ok(hub_models_add_shards("a/b", &files, index, m));
    assert_int_equal(m->n, 5);
    assert_int_equal(m->bytes, 500);
    assert_int_equal(hub_models_add_shards("a/b", &files, str_of("{\"weight_map\":{\"a\":\"../x\"}}"), m).code,
                     QUILL_MODEL);
    assert_int_equal(hub_models_add_shards("a/b", &files, str_of("[]"), m).code, QUILL_MODEL);
    hub_models_free(&models);
    hub_files_free(&files);
}

static void test_answers(void **state) {
    (void)state;
    static const char *const bad[] = {"",
                                      "[]",
                                      "{}",
                                      "<html>",
                                      "{\"sha\":\"x\",\"siblings\":[]}",
                                      "{\"sha\":\"0123456789012345678901234567890123456789\"}",
                                      "{\"sha\":\"../3456789012345678901234567890123456789\",\"siblings\":[]}"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        HubFiles files = {0};
        assert_int_equal(hub_files_read("a/b", str_of(bad[i]), &files).code, QUILL_IO);
        hub_files_free(&files);
    }
    HubFiles files = files_of("../x /x a/../b c.gguf");
    assert_int_equal(files.n, 1);
    assert_string_equal(files.at[0].path, "c.gguf");
    hub_files_free(&files);
}

// ---- heads of answers -----------------------------------------------------------------------------------------------

static HubReply reply_of(const char *const *lines) {
    HubReply r = {.size = 7};
    for (; *lines; lines++) hub_http_header(str_of(*lines), &r);
    return r;
}

static void test_heads(void **state) {
    (void)state;
    HubReply r = reply_of((const char *const[]){
        "HTTP/1.1 200 Connection established\r\n", "Retry-After: 99\r\n", "\r\n", "HTTP/2 302\r\n",
        "etag: \"small\"\r\n", "X-Linked-Etag: \"abc\"\r\n", "ETag: W/\"later\"\r\n", "Content-Length: 12\r\n",
        "x-linked-size:  5027783488 \r\n", "content-length: 13\r\n", NULL});
    assert_string_equal(r.etag, "abc");
    assert_int_equal(r.size, 5027783488);
    assert_int_equal(r.wait, -1); // the header belongs to the proxy's answer
    r = reply_of((const char *const[]){"HTTP/1.1 206 Partial Content", "Content-Range: bytes 4000-7999/8000",
                                       "ETag: W/\"x\"", "Content-Length: 99999999999999999999", NULL});
    assert_int_equal(r.from, 4000);
    assert_string_equal(r.etag, "x");
    assert_int_equal(r.size, -1);
    r = reply_of((const char *const[]){"HTTP/1.1 429", "RateLimit: \"api\";r=0;t=55", "Retry-After: 3", NULL});
    assert_int_equal(r.wait, 3);
    r = reply_of((const char *const[]){"HTTP/1.1 429", "Retry-After: Wed, 21 Oct 2015 07:28:00 GMT", NULL});
    assert_int_equal(r.wait, 0); // the time has passed
    r = reply_of((const char *const[]){"HTTP/1.1 429", "Retry-After: soon", "no colon", ": ", "", NULL});
    assert_int_equal(r.wait, -1);
}

static void test_origins(void **state) {
    (void)state;
    assert_true(hub_http_same_origin("https://huggingface.co/a", "https://HuggingFace.co"));
    assert_true(hub_http_same_origin("http://localhost:80/a?b", "http://localhost:80?c"));
    static const char *const others[] = {"http://huggingface.co/a",     "https://huggingface.co:444/a",
                                         "https://huggingface.co.evil", "https://huggingface.co@evil/a",
                                         "https://evil/huggingface.co", "huggingface.co",
                                         "https://cdn.huggingface.co/", ""};
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        assert_false(hub_http_same_origin("https://huggingface.co/", others[i]));
    assert_false(hub_http_same_origin("", ""));
    Buf out = {0};
    hub_http_escape("a b/\xc3\xa9%?#.gguf", &out);
    assert_string_equal(out.data, "a%20b/%C3%A9%25%3F%23.gguf");
    buf_free(&out);
}

// ---- hashes, progress -----------------------------------------------------------------------------------------------

static void test_digests(void **state) {
    (void)state;
    // sha256sum and git hash-object of "hello\n"
    static const char *const etags[] = {"5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03",
                                        "ce013625030ba8dba906f756967f9e9ca394464a"};
    char digits[65];
    HubDigest d;
    for (size_t i = 0; i < ARRAY_LEN(etags); i++) {
        hub_digest_start(&d, etags[i], 6);
        hub_digest_add(&d, "hel", 3);
        hub_digest_add(&d, "lo\n", 3);
        hub_digest_end(&d, digits);
        assert_string_equal(digits, etags[i]);
    }
    assert_int_equal(hub_digest_kind("5d41402abc4b2a76b9719d911017c592"), HUB_DIGEST_NONE); // an ETag of S3
    assert_int_equal(hub_digest_kind("CE013625030BA8DBA906F756967F9E9CA394464A"), HUB_DIGEST_NONE);
    hub_digest_start(&d, "x", 6);
    hub_digest_end(&d, digits);
    assert_string_equal(digits, "");
}

static void test_meter(void **state) {
    (void)state;
    HubMeter m = {.file = "dir/Qwen3-8B-Q4_K_M.gguf", .all = 5030000000, .before = 1000000000, .now = 200000000};
    static const struct {
        double rate;
        const char *text;
    } lines[] = {
        {0, "Qwen3-8B-Q4_K_M.gguf 1.20 GB of 5.03 GB"},
        {34200000, "Qwen3-8B-Q4_K_M.gguf 1.20 GB of 5.03 GB, 34.2 MB/s, 1:52 left"},
        {1000000, "Qwen3-8B-Q4_K_M.gguf 1.20 GB of 5.03 GB, 1.00 MB/s, 1 h 03 min left"},
        {1e10, "Qwen3-8B-Q4_K_M.gguf 1.20 GB of 5.03 GB, 10.0 GB/s"},
    };
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        Buf out = {0};
        m.rate = lines[i].rate;
        hub_meter_text(&m, &out);
        assert_string_equal(out.data, lines[i].text);
        buf_free(&out);
    }
}

int main(void) {
    jsonio_start();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),   cmocka_unit_test(test_types),   cmocka_unit_test(test_choice),
        cmocka_unit_test(test_shards),  cmocka_unit_test(test_answers), cmocka_unit_test(test_heads),
        cmocka_unit_test(test_origins), cmocka_unit_test(test_digests), cmocka_unit_test(test_meter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
