// batch/tickets.h: a line of a batch on its way: its job, the requests that answer it, the line that comes of it.
#ifndef QUILL_TICKETS_H
#define QUILL_TICKETS_H

#include "answer/answer.h"
#include "batch/jobs.h"

// What all lines of a run share.
typedef struct {
    Engine *e;
    const AnswerConfig *config; // the run's, for every job that says nothing else
    const ChatTemplate *form;   // NULL: raw text
    Str system;                 // data NULL: no system message
} TicketOffice;

typedef struct {
    Sequence seq; // the request's
    Request request;
    Answer answer;
    bool ended; // its blocks are given back
} TicketAnswer;

typedef struct Ticket Ticket;
struct Ticket {
    int64_t line; // its number
    Job job;
    LogitBias *bias;       // of --ignore-eos
    TicketAnswer *answers; // (job.n); NULL: the line is no job, or a broken one
    double end;            // when its last answer had ended
    Status failed;
    Buf reply; // the line, once there is one; empty: nothing is to be said
    bool done;
    Ticket *next;
};

// Reads a line. A job's requests are with the scheduler when it returns, as if they had come at `came`; a broken line
// is done, and so is one that calls jobs off.
Ticket *ticket_new(const TicketOffice *office, Str line, int64_t number, double came);
// A line of which nothing is known but what is wrong with it.
Ticket *ticket_refuse(const TicketOffice *office, Status why, int64_t number);
bool ticket_begun(const Ticket *t); // a row of it was computed
void ticket_cancel(const TicketOffice *office, Ticket *t);
// Ends the answers whose requests have finished. True: all of them have now, and the reply is there.
bool ticket_collect(const TicketOffice *office, Ticket *t);
void ticket_free(const TicketOffice *office, Ticket *t); // its requests must have finished

#endif
