//! Slots beside netem's queue, played event by event as `net/sched/sch_netem.c` of Linux 6.1 does (`netem_dequeue`, `get_slot_next`,
//! `get_slot`): equal departures, packet for packet. Nothing here calls what is tested but [`fold`].

use std::collections::VecDeque;

use perturb_common::{
    abi::NONE,
    departure::Load,
    fate::JITTER_UNIT,
    grants::{Grants, State},
    units::{Instant, Ticks},
};

/// Random numbers of its own (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }
}

/// A packet: when it comes to the slots, and its bytes.
type Packet = (u64, u64);

/// netem with a slot and nothing else: `time_to_send` is when a packet comes.
struct Netem {
    max_packets: i64,
    max_bytes: i64,
    slot_next: u64,
    packets_left: i64,
    bytes_left: i64,
    /// `next_delay`, one after the other.
    delays: Vec<u64>,
    drawn: usize,
    queue: VecDeque<Packet>,
    sent: Vec<u64>,
}

impl Netem {
    /// `get_slot`: it is configured at time 1, and none is INT_MAX.
    fn new(packets: i64, bytes: i64, delays: Vec<u64>) -> Self {
        let or_any = |most: i64| if most == 0 { i64::from(i32::MAX) } else { most };
        Self {
            max_packets: or_any(packets),
            max_bytes: or_any(bytes),
            slot_next: 1,
            packets_left: or_any(packets),
            bytes_left: or_any(bytes),
            delays,
            drawn: 0,
            queue: VecDeque::new(),
            sent: Vec::new(),
        }
    }

    fn get_slot_next(&mut self, now: u64) {
        self.slot_next = now + self.delays[self.drawn];
        self.drawn += 1;
        self.packets_left = self.max_packets;
        self.bytes_left = self.max_bytes;
    }

    /// `netem_dequeue` until it has nothing to send: when the watchdog is to fire.
    fn dequeue(&mut self, now: u64) -> Option<u64> {
        loop {
            let &(time_to_send, bytes) = self.queue.front()?;
            if self.slot_next < time_to_send {
                self.get_slot_next(now);
            }
            if time_to_send <= now && self.slot_next <= now {
                self.queue.pop_front();
                self.sent.push(now);
                self.packets_left -= 1;
                self.bytes_left -= bytes as i64;
                if self.packets_left <= 0 || self.bytes_left <= 0 {
                    self.get_slot_next(now);
                }
                continue;
            }
            return Some(time_to_send.max(self.slot_next));
        }
    }

    /// When the packets leave.
    fn play(mut self, packets: &[Packet]) -> (Vec<u64>, usize) {
        let mut watchdog = None;
        for &packet in packets {
            while let Some(fires) = watchdog.filter(|&fires| fires < packet.0) {
                watchdog = self.dequeue(fires);
            }
            self.queue.push_back(packet);
            watchdog = self.dequeue(packet.0);
        }
        while let Some(fires) = watchdog {
            watchdog = self.dequeue(fires);
        }
        (self.sent, self.drawn)
    }
}

fn grants(packets: u64, bytes: u64) -> Grants {
    let or_any = |most| if most == 0 { u64::MAX } else { most };
    Grants {
        packets: or_any(packets),
        bytes: or_any(bytes),
        ..Grants::NONE
    }
}

fn fold(grants: &Grants, delays: &[u64], packets: &[Packet]) -> (Vec<u64>, u64) {
    let mut state = State::default();
    let left = packets.iter().map(|&(ready, bytes)| {
        let load = Load { bytes, segments: 1 };
        let drawn = |number: u64| Ticks(delays[number as usize]);
        let (leaves, in_time) = grants.leaves(&mut state, Instant(ready), load, Instant(u64::MAX), drawn);
        assert!(in_time);
        leaves.0
    });
    (left.collect(), state.drawn)
}

#[test]
fn packets_leave_when_netem_lets_them_go() {
    const PACKETS: u64 = 400;
    let (mut waited, mut shared, mut alone) = (0, 0, 0);
    for seed in 1..=2000u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let most = 1 + random.below(400);
        let least = random.below(most);
        // One more than packets: each uses up at most one slot, and opens at most one.
        let delays: Vec<u64> = (0..2 * PACKETS + 1)
            .map(|_| least + random.below(most - least))
            .collect();
        let packets_left = [0, 1, 2, 8, 40][random.below(5) as usize];
        let bytes_left = [0, 1, 1514, 20_000][random.below(4) as usize];
        let (busy, mut now) = (random.below(5), 100);
        let packets: Vec<Packet> = (0..PACKETS)
            .map(|_| {
                // Bursts at one instant, a flow, or now and then a pause.
                now += match random.below(20) {
                    0 => random.below(3 * most),
                    other if other < 4 * busy => 0,
                    _ => random.below(most / 4 + 2),
                };
                (now, 60 + random.below(1455))
            })
            .collect();
        let netem = Netem::new(packets_left as i64, bytes_left as i64, delays.clone());
        let expected = netem.play(&packets);
        let (left, drawn) = fold(&grants(packets_left, bytes_left), &delays, &packets);
        assert_eq!((&left, drawn as usize), (&expected.0, expected.1), "seed {seed}");
        waited += left
            .iter()
            .zip(&packets)
            .filter(|(left, packet)| **left > packet.0)
            .count();
        shared += left.windows(2).filter(|pair| pair[0] == pair[1]).count();
        alone += left.windows(2).filter(|pair| pair[0] != pair[1]).count();
    }
    eprintln!("{waited} packets waited, {shared} left with the one ahead, {alone} behind it");
    assert!(waited > 500_000 && shared > 200_000 && alone > 200_000);
}

/// Who would leave too late takes nothing of a slot, and asks for none anew.
#[test]
fn what_gives_up_takes_nothing() {
    let grants = grants(2, 0);
    let mut state = State::default();
    let one = Load {
        bytes: 100,
        segments: 1,
    };
    let mut leaves = |ready, latest| {
        let (leaves, in_time) =
            grants.leaves(&mut state, Instant(ready), one, Instant(latest), |_| Ticks(100));
        (leaves.0, in_time)
    };
    assert_eq!(leaves(10, 109), (110, false));
    assert_eq!(leaves(20, 110), (110, true));
    assert_eq!(leaves(30, 109), (110, false));
    assert_eq!(leaves(40, 110), (110, true));
    // That used it up.
    assert_eq!(leaves(50, 1000), (210, true));
    // Two copies, or a super-packet, count as what they are.
    let two = Load {
        bytes: 200,
        segments: 2,
    };
    assert_eq!(
        grants.leaves(&mut state, Instant(60), two, Instant(1000), |_| Ticks(100)),
        (Instant(210), true)
    );
    assert_eq!(
        state,
        State {
            opens: 310,
            packets: 2,
            bytes: u64::MAX,
            drawn: 3
        }
    );
}

/// A time that a table has below zero is none, and one without a table is what it says.
#[test]
fn draws_are_of_the_table() {
    let drawn = |delay, scale, entry: i16| {
        let grants = Grants {
            delay: Ticks(delay),
            scale,
            table: 3,
            ..Grants::NONE
        };
        grants.drawn(7, 5, |_| entry).0
    };
    let scale = JITTER_UNIT as i16;
    assert_eq!(drawn(1000, 100, scale), 1100);
    assert_eq!(drawn(1000, 100, -scale), 900);
    assert_eq!(drawn(1000, 2000, -scale), 0);
    let fixed = Grants {
        delay: Ticks(1000),
        ..Grants::NONE
    };
    assert_eq!(
        (fixed.table, fixed.drawn(7, 5, |_| unreachable!()).0),
        (NONE, 1000)
    );
    // Each slot draws its own.
    let places = |number| {
        let mut place = 0;
        let grants = Grants {
            table: 0,
            ..Grants::NONE
        };
        let _ = grants.drawn(7, number, |at| {
            place = at;
            0
        });
        place
    };
    let distinct: std::collections::HashSet<usize> = (0..1000).map(places).collect();
    // Of 4096 places, 1000 draws hit 4096 (1 - (1 - 1/4096)^1000) = 887 in the mean, with a deviation of 9.
    assert!((840..930).contains(&distinct.len()), "{}", distinct.len());
}
