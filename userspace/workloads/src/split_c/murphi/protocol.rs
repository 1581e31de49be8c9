//! German's protocol: caches share a line, and a home directory grants copies and has them taken back.
//!
//! A client asks for a shared or the exclusive copy; the home serves one client at a time, first has other copies
//! invalidated if need be, and waits for the acknowledgments. There is one channel of each kind for each client, with
//! room for one message. The promise: where one cache has the exclusive copy, no other one has any.

/// The most caches whose states fit into a word.
pub const MOST: u32 = 5;

/// The protocol with so many caches. A state is one word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Protocol(pub(super) u32);

/// Part of a state: where it begins for client 0, and its bits. All parts of a client lie in one stretch.
#[derive(Clone, Copy)]
struct Field {
    shift: u32,
    bits: u32,
}

/// Bits of a client.
const CLIENT: u32 = 10;
/// Its copy.
const CACHE: Field = Field { shift: 0, bits: 2 };
/// What it asks for.
const REQUEST: Field = Field { shift: 2, bits: 2 };
/// What the home tells it.
const ORDER: Field = Field { shift: 4, bits: 2 };
/// Whether it acknowledges.
const ACKNOWLEDGED: Field = Field { shift: 6, bits: 1 };
/// The home takes it to have a copy.
const SHARER: Field = Field { shift: 7, bits: 1 };
/// The home is to invalidate its copy.
const LISTED: Field = Field { shift: 8, bits: 1 };

/// What the home does: for whom, plus one, and what.
const SERVED: Field = Field { shift: 50, bits: 3 };
const COMMAND: Field = Field { shift: 53, bits: 2 };
/// It has granted the exclusive copy.
const GRANTED: Field = Field { shift: 55, bits: 1 };

const NONE: u64 = 0;
/// Of a copy, and of what is asked for or granted.
const SHARED: u64 = 1;
const EXCLUSIVE: u64 = 2;
/// Of an order.
const INVALIDATE: u64 = 3;

impl Field {
    fn of(self, state: u64, client: u32) -> u64 {
        state >> (self.shift + CLIENT * client) & ((1 << self.bits) - 1)
    }

    fn set(self, state: &mut u64, client: u32, value: u64) {
        let shift = self.shift + CLIENT * client;
        *state &= !(((1 << self.bits) - 1) << shift);
        *state |= value << shift;
    }
}

impl Protocol {
    /// Nobody has a copy, nothing is under way.
    pub(super) fn first(self) -> u64 {
        0
    }

    /// The states that follow, one for each rule that applies.
    pub(super) fn next(self, state: u64, next: &mut Vec<u64>) {
        let home = |field: Field| field.of(state, 0);
        let mut follow = |changes: &[(Field, u32, u64)]| {
            let mut state = state;
            for (field, client, value) in changes {
                field.set(&mut state, *client, *value);
            }
            next.push(state);
        };
        let (command, granted) = (home(COMMAND), home(GRANTED));
        for client in 0..self.0 {
            let of = |field: Field| field.of(state, client);
            let (cache, request, order) = (of(CACHE), of(REQUEST), of(ORDER));
            if request == NONE && cache == NONE {
                follow(&[(REQUEST, client, SHARED)]);
            }
            if request == NONE && cache != EXCLUSIVE {
                follow(&[(REQUEST, client, EXCLUSIVE)]);
            }
            if command == NONE && request != NONE {
                let mut changes = vec![
                    (COMMAND, 0, request),
                    (SERVED, 0, u64::from(client) + 1),
                    (REQUEST, client, NONE),
                ];
                changes.extend((0..self.0).map(|other| (LISTED, other, SHARER.of(state, other))));
                follow(&changes);
            }
            let invalidates = command == EXCLUSIVE || command == SHARED && granted == 1;
            if invalidates && of(LISTED) == 1 && order == NONE {
                follow(&[(ORDER, client, INVALIDATE), (LISTED, client, 0)]);
            }
            if command != NONE && of(ACKNOWLEDGED) == 1 {
                follow(&[(ACKNOWLEDGED, client, 0), (SHARER, client, 0), (GRANTED, 0, 0)]);
            }
            match order {
                INVALIDATE if of(ACKNOWLEDGED) == 0 => {
                    follow(&[
                        (ORDER, client, NONE),
                        (ACKNOWLEDGED, client, 1),
                        (CACHE, client, NONE),
                    ]);
                }
                SHARED | EXCLUSIVE => follow(&[(ORDER, client, NONE), (CACHE, client, order)]),
                _ => {}
            }
            if home(SERVED) == u64::from(client) + 1 && order == NONE {
                let alone = (0..self.0).all(|other| SHARER.of(state, other) == 0);
                let grants = command == SHARED && granted == 0 || command == EXCLUSIVE && alone;
                if grants {
                    follow(&[
                        (SHARER, client, 1),
                        (COMMAND, 0, NONE),
                        (SERVED, 0, 0),
                        (GRANTED, 0, (command == EXCLUSIVE).into()),
                        (ORDER, client, command),
                    ]);
                }
            }
        }
    }

    /// Whether the promise is broken.
    pub(super) fn breaks(self, state: u64) -> bool {
        let copies = |kind: u64| {
            (0..self.0)
                .filter(move |client| CACHE.of(state, *client) == kind)
                .count()
        };
        copies(EXCLUSIVE) > 1 || copies(EXCLUSIVE) == 1 && copies(SHARED) > 0
    }
}
