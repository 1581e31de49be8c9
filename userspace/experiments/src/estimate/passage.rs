//! One datagram's way: the sender's overhead, the transit, the receiver's overhead.
//!
//! ```text
//! sent ──o_s──► returned ──L──► arrival ──o_r──► read        held, or on its way, when the system call returns
//! sent ──o_s──► arrival ──o_r──► read                        delivered within the system call: no latency at all
//! ```
//!
//! Model: all instants by one clock. A sender's overhead ends when its system call returns, or when the packet enters
//! the other host, whichever is first: two hosts on one machine may share a processor, and then the receiver's work is
//! done inside the sender's call. The receiver's overhead begins with the kernel's stamp, before the softirq work that
//! a socket cannot see, and ends when the program has the data; it contains the wake-up of that program.
//! What is lacking: for a packet that a server serves, the transit contains the service (g + G s); see [`super::train`].

use crate::probe::endpoint::{Receipt, Sent};

/// A datagram's three stretches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Passage {
    /// o_s, microseconds.
    pub send_us: f64,
    /// From the sender's overhead to the receiver's, microseconds.
    pub transit_us: f64,
    /// o_r, microseconds.
    pub receive_us: f64,
}

/// Divides a datagram's way; `clock_ns` is what a reading of the clock costs.
#[must_use]
pub(crate) fn divide(sent: &Sent, receipt: &Receipt, clock_ns: u64) -> Passage {
    let handed_over = sent.returned.min(receipt.arrival);
    let us = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e3;
    Passage {
        send_us: us(sent.at + clock_ns, handed_over),
        transit_us: us(handed_over, receipt.arrival),
        receive_us: us(receipt.arrival, receipt.read),
    }
}

/// The same for a train of single datagrams; what is lost has no passage.
#[must_use]
pub(crate) fn divide_all(sent: &[Sent], receipts: &[Receipt], clock_ns: u64) -> Vec<Passage> {
    receipts
        .iter()
        .filter_map(|receipt| Some(divide(sent.get(receipt.number as usize)?, receipt, clock_ns)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receipt(arrival: u64, read: u64) -> Receipt {
        Receipt {
            number: 0,
            arrival,
            read,
            turnaround: 0,
            there: None,
        }
    }

    #[test]
    fn held_packets_have_a_transit() {
        let sent = Sent {
            at: 1_000,
            returned: 6_050,
        };
        let passage = divide(&sent, &receipt(1_006_050, 1_013_050), 50);
        assert_eq!(
            passage,
            Passage {
                send_us: 5.0,
                transit_us: 1_000.0,
                receive_us: 7.0
            }
        );
    }

    #[test]
    fn work_of_the_receiver_inside_the_senders_call_is_the_receivers() {
        let sent = Sent {
            at: 0,
            returned: 90_000,
        };
        let passage = divide(&sent, &receipt(3_000, 95_000), 0);
        assert_eq!(
            (passage.send_us, passage.transit_us, passage.receive_us),
            (3.0, 0.0, 92.0)
        );
    }

    #[test]
    fn lost_ones_have_none() {
        let sent = [Sent { at: 0, returned: 1 }; 3];
        assert_eq!(divide_all(&sent, &[receipt(5, 6)], 0).len(), 1);
        let foreign = Receipt {
            number: 7,
            ..receipt(5, 6)
        };
        assert!(divide_all(&sent, &[foreign], 0).is_empty());
    }
}
