// jinja/parse.h: parses a template's source into a tree, by Jinja2's grammar.
//
// Supported: for (with if, else, break, continue), if, set (values and blocks, namespace fields), macro, call, filter,
// with, raw; of generation, block and autoescape only the bodies. Not supported: include, import, extends.
#ifndef QUILL_JINJA_PARSE_H
#define QUILL_JINJA_PARSE_H

#include "jinja/value.h"

typedef enum {
    // expressions
    N_CONST,     // value
    N_NAME,      // name
    N_LIST,      // items
    N_TUPLE,     // items
    N_DICT,      // items: key, value, key, value ...
    N_ATTRIBUTE, // a.name
    N_INDEX,     // a[b]
    N_SLICE,     // a[items[0]:items[1]:items[2]]; omitted parts are N_NOTHING
    N_NOTHING,
    N_CALL,     // a(items), which are N_ARGUMENT
    N_ARGUMENT, // a; op: 0, '=' (name = a), '*', 'P' (**a)
    N_FILTER,   // a | name(items); in filter blocks the innermost a is NULL: the body
    N_TEST,     // a is name(items)
    N_NOT,
    N_NEGATIVE,
    N_POSITIVE,
    N_AND,
    N_OR,
    N_BINARY,  // a op b: + - * / % 'F' (//) 'P' (**)
    N_CONCAT,  // items
    N_COMPARE, // a, then items: N_OPERAND
    N_OPERAND, // op a: '<' 'l' (<=) '>' 'g' (>=) '=' '!' 'i' (in) 'n' (not in)
    N_CHOICE,  // b if a else c; c may be NULL
    N_FIELD,   // name.field as the target of an assignment
    // statements
    N_TEXT,         // value
    N_PRINT,        // a
    N_FOR,          // for a in b if c: body, else other; op 1: recursive
    N_IF,           // items: N_BRANCH
    N_BRANCH,       // if a (NULL: else): body
    N_SET,          // a = b
    N_SET_BLOCK,    // a = body through the filters b (or NULL)
    N_MACRO,        // name(items), which are N_PARAMETER: body; op: TAKES_ bits if the body uses varargs or kwargs
    N_PARAMETER,    // name = a (or NULL)
    N_CALL_BLOCK,   // a is the call; items, body and op are its caller's
    N_FILTER_BLOCK, // body through the filters a
    N_WITH,         // items: N_SET; body
    N_SCOPE,        // body
    N_BREAK,
    N_CONTINUE,
} NodeKind;

enum { TAKES_MORE = 1, TAKES_NAMED = 2 }; // varargs, kwargs

typedef struct Node Node;
struct Node {
    NodeKind kind;
    int op;
    int line;
    Str name, field;
    Value value;
    Node *a, *b, *c;
    Node *items, *body, *other; // heads of lists
    Node *next;                 // the next node of the list that this node is in
};

// Parses the source; the tree is in the heap. NULL: the heap has failed, or the template is empty.
Node *jinja_tree(Heap *h, Str source);

#endif
