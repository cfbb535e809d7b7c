// answer/saved.c: see answer/saved.h.
#define _GNU_SOURCE
#include "answer/saved.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "answer/transcript.h"
#include "base/file.h"
#include "base/note.h"

enum { STAMP = 15 }; // length of a time stamp as 20261122-085432

// The folder, made if it is missing. QUILL_IO: it cannot be made.
static Status folder(char *out, size_t cap) {
    char state[1024];
    bool there = dirs_state(state, sizeof state);
    snprintf(out, cap, "%s", state);
    if (there) {
        int n = snprintf(out, cap, "%s/conversations", state);
        errno = ENAMETOOLONG;
        there = n < (int)cap && (mkdir(out, 0700) == 0 || errno == EEXIST);
    }
    if (there) return OK;
    if (!*out)
        return status_error(QUILL_IO, "conversations: an absolute path in XDG_STATE_HOME or HOME expected, found none");
    return status_error(QUILL_IO,
                        "%.600s: cannot make this folder for conversations: %s; set XDG_STATE_HOME to a folder that "
                        "you can write to",
                        out, strerror(errno));
}

// The model's part of the file name: its name without folders and .gguf; characters other than letters, digits, . _ and
// - become _.
static void file_part(const char *model, char out[96]) {
    snprintf(out, 96, "%s", file_base(model));
    static const char *const ends[] = {".gguf", " (built into"}; // of a file, of the built-in model
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        char *end = strstr(out, ends[i]);
        if (end) *end = 0;
    }
    for (char *c = out; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-", *c)) *c = '_';
}

// Creates an empty file for a conversation with the model, which reserves its name. The caller frees *path.
static Status new_file(const char *model, char **path) {
    char dir[1100], part[96], stamp[STAMP + 1], name[1300];
    *path = NULL;
    TRY(folder(dir, sizeof dir));
    file_part(model, part);
    time_t now = time(NULL);
    struct tm local;
    int fd;
    do { // until the name is free: other chats may begin in the same second
        strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", localtime_r(&now, &local));
        snprintf(name, sizeof name, "%s/%s-%s.json", dir, stamp, part);
        now++;
        fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    } while (fd < 0 && errno == EEXIST);
    if (fd < 0) return status_error(QUILL_IO, "%.900s: cannot create: %s", name, strerror(errno));
    close(fd);
    *path = mem_copy(name, strlen(name));
    return OK;
}

SavedMark saved_mark(const char *path) {
    struct stat info;
    if (stat(path, &info) != 0) return (SavedMark){0};
    return (SavedMark){info.st_ino, info.st_size, info.st_mtim};
}

bool saved_changed(const char *path, const SavedMark *mark) {
    SavedMark now = saved_mark(path);
    return now.inode && (now.inode != mark->inode || now.size != mark->size ||
                         now.written.tv_sec != mark->written.tv_sec || now.written.tv_nsec != mark->written.tv_nsec);
}

static bool is_before(struct timespec a, struct timespec b) {
    return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}

// The path of the model's conversation that was written last; NULL: none. An empty file is a name that a chat has
// reserved: its chat has not written yet, or was killed before it could.
static char *find_last(const char *dir, const char *part) {
    char end[112], *best = NULL;
    struct timespec newest = {0};
    snprintf(end, sizeof end, "-%s.json", part);
    DIR *d = opendir(dir);
    for (struct dirent *f; d && (f = readdir(d));) {
        Buf path = {0};
        struct stat info;
        buf_printf(&path, "%s/%s", dir, f->d_name);
        bool ours = strlen(f->d_name) == STAMP + strlen(end) && strcmp(f->d_name + STAMP, end) == 0;
        bool written = ours && stat(path.data, &info) == 0 && info.st_size > 0;
        if (written && (!best || is_before(newest, info.st_mtim))) {
            free(best);
            best = path.data;
            newest = info.st_mtim;
        } else buf_free(&path);
    }
    if (d) closedir(d);
    return best;
}

Status saved_choose(const AnswerConfig *config, const char *model, char **path) {
    char dir[1100], part[96];
    *path = NULL;
    if (config->load) *path = mem_copy(config->load, strlen(config->load));
    if (config->load || !config->continue_last) return OK;
    TRY(folder(dir, sizeof dir));
    file_part(model, part);
    *path = find_last(dir, part);
    if (*path) return OK;
    return status_error(QUILL_USAGE,
                        "--continue: a conversation with %s expected in %.500s, found none; --autosave "
                        "saves one there, --load FILE loads any other",
                        part, dir);
}

Status saved_prompt(const AnswerConfig *config, const char *model, bool raw, Str system, Str prompt, SavedTalk *out) {
    char *path;
    Buf text = {0};
    *out = (SavedTalk){0};
    Status st = saved_choose(config, model, &path);
    if (!st.code && path) out->file.mark = saved_mark(path);
    if (!st.code && path) st = file_read(path, &text);
    if (!st.code && path) st = transcript_read(path, str_of_buf(&text), raw, &out->messages);
    if (!st.code && path && !config->load) out->settings = transcript_settings_json(str_of_buf(&text));
    buf_free(&text);
    if (!config->load) out->file.path = path;
    else free(path);
    if (st.code) return st;
    MessageList *list = &out->messages;
    if (system.data && list->n > 0 && strcmp(list->at[0].role, "system") == 0) messages_remove(list, 0);
    if (system.data) messages_insert(list, 0, "system", system);
    messages_insert(list, list->n, "user", prompt);
    return OK;
}

void saved_talk_free(SavedTalk *t) {
    messages_free(&t->messages);
    free(t->file.path);
    json_decref(t->settings);
    *t = (SavedTalk){0};
}

// ---- writing --------------------------------------------------------------------------------------------------------

Status saved_write(SavedFile *f, const char *model, json_t *settings, const MessageList *messages, char **left) {
    bool changed = f->path && saved_changed(f->path, &f->mark);
    *left = changed ? f->path : NULL;
    if (changed) f->path = NULL;
    bool fresh = !f->path;
    Status st = fresh ? new_file(model, &f->path) : OK;
    if (st.code) json_decref(settings);
    else st = transcript_write(f->path, model, settings, messages);
    if (!st.code) f->mark = saved_mark(f->path);
    else if (fresh && f->path) { // it is empty
        unlink(f->path);
        free(f->path);
        f->path = NULL;
    }
    if (st.code) free(*left), *left = NULL;
    return st;
}

Status saved_answer(const AnswerConfig *config, const char *model, SavedTalk *t, Str answer) {
    char *left;
    messages_insert(&t->messages, t->messages.n, "assistant", answer);
    Status st = saved_write(&t->file, model, json_incref(t->settings), &t->messages, &left);
    if (!st.code && left)
        note_print(config->quiet,
                   "%s was written by another run meanwhile and stays as it is; this conversation is saved in %s", left,
                   t->file.path);
    free(left);
    return st;
}
