//! Packets through FIFO servers, exactly: the emulator's own recursion in the order of arrivals.
//!
//! Model. A packet enters at a given time and crosses the servers of its path; each does `departure` to it, dropping it
//! if its buffer is full. Servers see packets in the order in which they arrive *there* ([`Order::Arrival`]), as real
//! ones do: a heap of the next arrivals, the earliest first. What an emulator does that computes a packet's whole path
//! when it is sent is [`Order::Entry`]: servers see packets in the order in which they entered the network. The two
//! agree where packets do not overtake each other on the way to a server.
//!
//! What it lacks: loss, jitter and other fates, and instances of servers; they are decided by index, not by time.

use std::{cmp::Reverse, collections::BinaryHeap};

use perturb_common::{
    departure::{Load, Outcome, Server, departure},
    units::Instant,
};

/// In which order servers see packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// In which they arrive there: exact.
    Arrival,
    /// In which they entered the network.
    Entry,
}

/// A packet that enters the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) entry: Instant,
    /// How large it is.
    pub(crate) load: Load,
    /// The servers that it crosses, as indices.
    pub(crate) path: Vec<usize>,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It left the last server.
    Delivered(Instant),
    /// A server, as an index, dropped it.
    Dropped(usize),
}

/// What becomes of each packet, in the order given; packets of the same time count in that order.
///
/// # Panics
/// When a path names a server that is not there.
#[must_use]
pub(crate) fn simulate(servers: &[Server], packets: &[Packet], order: Order) -> Vec<Fate> {
    let mut free = vec![Instant(0); servers.len()];
    let mut fates: Vec<Fate> = packets
        .iter()
        .map(|packet| Fate::Delivered(packet.entry))
        .collect();
    let mut arrivals: BinaryHeap<Reverse<(Instant, usize, usize)>> = packets
        .iter()
        .enumerate()
        .map(|(index, packet)| Reverse((packet.entry, index, 0)))
        .collect();
    while let Some(Reverse((mut time, index, mut position))) = arrivals.pop() {
        let packet = &packets[index];
        while let Some(&server) = packet.path.get(position) {
            match departure(&servers[server], free[server], time, packet.load) {
                Outcome::Served(service) => {
                    free[server] = service.free;
                    time = service.next;
                    fates[index] = Fate::Delivered(time);
                }
                Outcome::TailDrop | Outcome::BeyondHorizon | Outcome::Down | Outcome::Early => {
                    fates[index] = Fate::Dropped(server);
                    break;
                }
            }
            position += 1;
            if order == Order::Arrival {
                if position < packet.path.len() {
                    arrivals.push(Reverse((time, index, position)));
                }
                break;
            }
        }
    }
    fates
}

#[cfg(test)]
mod tests {
    use perturb_common::units::Ticks;
    use proptest::prelude::*;

    use super::*;

    fn server(gap: u64, latency: u64) -> Server {
        Server {
            gap: Ticks(gap),
            latency: Ticks(latency),
            ..Server::IDLE
        }
    }

    fn packet(entry: u64, path: &[usize]) -> Packet {
        Packet {
            entry: Instant(entry),
            load: Load {
                bytes: 1,
                segments: 1,
            },
            path: path.to_vec(),
        }
    }

    /// A burst in a slow NIC must not make the trunk look busy to others: its last packet gets there at 300.
    #[test]
    fn reservations_in_the_future_are_what_entry_order_gets_wrong() {
        let servers = [server(100, 0), server(10, 0)];
        let packets = [
            packet(0, &[0, 1]),
            packet(0, &[0, 1]),
            packet(0, &[0, 1]),
            packet(120, &[1]),
        ];
        let delivered = |order| -> Vec<u64> {
            simulate(&servers, &packets, order)
                .into_iter()
                .map(|fate| match fate {
                    Fate::Delivered(time) => time.0,
                    Fate::Dropped(_) => 0,
                })
                .collect()
        };
        assert_eq!(delivered(Order::Arrival), [110, 210, 310, 130]);
        assert_eq!(delivered(Order::Entry), [110, 210, 310, 320]);
    }

    #[test]
    fn a_path_without_servers_is_no_delay() {
        let packets = [packet(5, &[])];
        assert_eq!(
            simulate(&[], &packets, Order::Arrival),
            [Fate::Delivered(Instant(5))]
        );
    }

    proptest! {
        /// One server: the recursion of Lindley over the sorted arrivals, whichever order it is folded in.
        #[test]
        fn one_server_is_lindley(mut entries in prop::collection::vec(0u64..10_000, 1..50), gap in 1u64..500) {
            let packets: Vec<Packet> = entries.iter().map(|&entry| packet(entry, &[0])).collect();
            let found = simulate(&[server(gap, 7)], &packets, Order::Arrival);
            prop_assert_eq!(&found, &simulate(&[server(gap, 7)], &packets, Order::Entry));
            let mut times: Vec<u64> = found.iter().map(|fate| match fate {
                Fate::Delivered(time) => time.0,
                Fate::Dropped(_) => unreachable!("no buffer"),
            }).collect();
            times.sort_unstable();
            entries.sort_unstable();
            let mut free = 0;
            for (entry, time) in entries.into_iter().zip(times) {
                free = free.max(entry) + gap;
                prop_assert_eq!(time, free + 7);
            }
        }

        /// Two servers in a row that all cross: nobody overtakes, so both orders agree.
        #[test]
        fn orders_agree_where_nobody_overtakes(
            entries in prop::collection::vec(0u64..10_000, 1..50), gaps in (1u64..500, 1u64..500),
        ) {
            let servers = [server(gaps.0, 3), server(gaps.1, 5)];
            let packets: Vec<Packet> = entries.iter().map(|&entry| packet(entry, &[0, 1])).collect();
            prop_assert_eq!(
                simulate(&servers, &packets, Order::Arrival),
                simulate(&servers, &packets, Order::Entry)
            );
        }
    }
}
