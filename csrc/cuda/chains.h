/* What the files of chains share: chains.c says what they are, chain_kernels.c makes their kernels. */
#pragma once
#include "cuda/elementwise.h"

#define MOST_PIECES 8
#define MOST_SLOTS 8
#define MOST_NUMBERS 16

/* An array, or where all elements of a chain are read from one: `bytes` of each. */
typedef struct {
    const char *data;
    int code, is_single, bytes;
} Slot;

typedef struct {
    Elementwise *kernel;
    Variant *variant;
    int sources[MOST_IN]; /* slots; ~p: the result of piece p; a number's is not looked at */
    Slot out;
    Block *block; /* NULL: nobody has the result any more */
} Piece;

struct Chain {
    int count, slot_count, number_count, is_long;
    size_t from; /* where its entries begin in the queue */
    Function end; /* a kernel behind them that reads what the last piece gives, each element once; NULL: none yet */
    size_t end_at, behind_at; /* where its entry is, and one that follows it; 0: there is none */
    npy_intp size;
    Piece pieces[MOST_PIECES];
    Slot slots[MOST_SLOTS];
    Value numbers[MOST_NUMBERS];
};

/* What a kernel is made for. All of its bytes count. */
typedef struct {
    int count, slot_count, number_count, wide;
    Function end;
    struct {
        Elementwise *kernel;
        uint64_t key;
        signed char sources[MOST_IN], is_stored[8];
    } pieces[MOST_PIECES];
    signed char slots[MOST_SLOTS][2]; /* code, whether it is a single element */
} Shape;

typedef struct Joined {
    Shape shape;
    int seen, has_failed;
    Function function;
    struct Joined *next;
} Joined;

/* ---- chain_kernels.c */

/* How often a chain must have been seen before its kernel is made. */
extern int chain_sightings;
/* The shape of a chain that is closed, and what is known about chains of it; NULL: nothing, and no more are remembered. */
Shape shape_of(const Chain *chain);
Joined *find_joined(const Shape *shape);
/* Note that a chain was seen whose kernel is not there. */
void note_seen(Joined *joined);
/* Make the kernel of the chain that was last found to want one. Python runs, and may let other threads run. */
void make_wanted_chain(void);
int has_chain_maker(void);
