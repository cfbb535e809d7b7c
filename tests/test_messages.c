// tests/test_messages.c: the list that owns messages.
#include "tests/rig/testing.h"

#include "answer/messages.h"

static void assert_texts(const MessageList *l, const char *const *want) {
    int n = 0;
    for (; want[n]; n++) {
        assert_in_range(n, 0, l->n - 1);
        assert_int_equal(l->at[n].text.n, strlen(want[n]));
        assert_string_equal(l->at[n].text.data, want[n]);
    }
    assert_int_equal(l->n, n);
}

static void test_inserting_and_removing(void **state) {
    (void)state;
    MessageList l = {0};
    char text[] = "first";
    messages_insert(&l, 0, "user", str_of(text));
    text[0] = 'x'; // the list has a copy
    messages_insert(&l, 1, "assistant", (Str){0});
    messages_insert(&l, 0, "system", str_of("system"));
    assert_texts(&l, (const char *const[]){"system", "first", "", NULL});
    assert_string_equal(l.at[0].role, "system");
    assert_null(l.at[0].more);
    messages_remove(&l, 1);
    messages_remove(&l, 1);
    assert_texts(&l, (const char *const[]){"system", NULL});
    messages_free(&l);
    assert_texts(&l, (const char *const[]){NULL});
}

static void test_splitting_and_joining(void **state) {
    (void)state;
    MessageList l = {0};
    static const char *const all[] = {"a", "b", "c", NULL};
    for (int i = 0; i < 3; i++) messages_insert(&l, i, "user", str_of(all[i]));
    for (int at = 0; at <= 3; at++) {
        MessageList rest = messages_split(&l, at);
        assert_texts(&rest, all + at);
        assert_int_equal(l.n, at);
        messages_join(&l, &rest);
        assert_texts(&l, all);
        assert_null(rest.at);
    }
    MessageList none = {0}, rest = messages_split(&none, 0);
    messages_join(&none, &rest);
    assert_int_equal(none.n, 0);
    messages_free(&none);
    messages_free(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inserting_and_removing),
        cmocka_unit_test(test_splitting_and_joining),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
