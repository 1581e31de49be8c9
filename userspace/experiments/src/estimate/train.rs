//! g and G from the arrivals of bursts.
//!
//! Model: a burst of n messages of s wire bytes that the network serves one by one arrives within (n - 1)(g + G s)
//! from the first message's last datagram to the last message's (LogGP). So the spacing is one number for each burst,
//! in which lateness at both ends counts once, not n times; least squares over s gives g at s = 0 and G as the slope.
//! If the spacing is that of the sender's own calls, the sender is the slowest stage: g and G are then at most what is
//! seen, and hidden behind the overhead.
//! The first third of a burst is left out where enough remains: until then packets may have found the network idle,
//! because the sender was interrupted.
//! Only the spacings of messages that follow each other count, so that it does not matter whether a lost one was served.
//! What is lacking: a burst of whose messages no two neighbors came has no spacing.

use perturb_stats::{Line, RegressionError};

use crate::probe::endpoint::{Receipt, Sent, Train};

/// How much longer than the sender's interval the spacing must be for the network to be the slowest stage.
const SLOWER: f64 = 1.25;

/// Messages that must remain when the beginning of a burst is left out.
const REMAINING: usize = 8;

/// A burst.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spacing {
    /// Between the messages' arrivals, microseconds.
    pub arrivals_us: f64,
    /// Between the sender's calls, microseconds.
    pub calls_us: f64,
}

impl Spacing {
    /// How long the network was busy with each message, microseconds: 0 if it waited for the sender.
    #[must_use]
    pub fn service_us(&self) -> f64 {
        if self.arrivals_us > SLOWER * self.calls_us {
            self.arrivals_us
        } else {
            0.0
        }
    }
}

/// The spacings of a train's bursts; a burst of which no two neighbors came has none.
#[must_use]
pub(crate) fn spacings(train: &Train, sent: &[Sent], receipts: &[Receipt]) -> Vec<Spacing> {
    let mut last_of: Vec<Option<u64>> = vec![None; train.messages as usize];
    for receipt in receipts {
        if let Some(last) = last_of.get_mut((receipt.number / train.segments) as usize) {
            *last = Some(last.unwrap_or(0).max(receipt.arrival));
        }
    }
    let burst = train.burst as usize;
    let of_burst = |(arrivals, calls): (&[Option<u64>], &[Sent])| {
        let left_out = Some(arrivals.len() / 3).filter(|third| arrivals.len() - third >= REMAINING);
        let came = &arrivals[left_out.unwrap_or(0)..];
        let (mut whole, mut count) = (0, 0_u32);
        for neighbors in came.windows(2) {
            if let [Some(first), Some(second)] = *neighbors {
                whole += i128::from(second) - i128::from(first);
                count += 1;
            }
        }
        let (start, end) = (calls.first()?, calls.last()?);
        if count == 0 || calls.len() < 2 {
            return None;
        }
        // Stamps are of a clock that may be set back while it is compared with the other.
        Some(Spacing {
            arrivals_us: whole.max(0) as f64 / 1e3 / f64::from(count),
            calls_us: end.at.saturating_sub(start.at) as f64 / 1e3 / (calls.len() - 1) as f64,
        })
    };
    last_of
        .chunks(burst)
        .zip(sent.chunks(burst))
        .filter_map(of_burst)
        .collect()
}

/// g in microseconds and G in ns per byte, from (wire bytes, spacing in microseconds).
pub(crate) fn fit(points: &[(f64, f64)]) -> Result<(f64, f64), RegressionError> {
    let line = Line::fit(points)?;
    Ok((line.intercept, line.slope * 1e3))
}

#[cfg(test)]
mod tests {
    use perturb_stats::{SplitMix64, median};
    use proptest::prelude::*;

    use super::*;

    /// What a network with g (us) and G (ns/B) makes of a train, stamped up to `late_us` late.
    fn served(
        train: &Train,
        gap_us: f64,
        byte_ns: f64,
        call_us: f64,
        late_us: f64,
    ) -> (Vec<Sent>, Vec<Receipt>) {
        let mut random = SplitMix64::new(5);
        let wire = (train.payload + 42) as f64;
        let (mut sent, mut receipts) = (Vec::new(), Vec::new());
        let mut free = 0.0_f64;
        for message in 0..train.messages {
            let place = f64::from(message % train.burst);
            let start = f64::from(message / train.burst) * train.interval_ns as f64 / 1e3 + place * call_us;
            sent.push(Sent {
                at: (start * 1e3) as u64,
                returned: ((start + call_us) * 1e3) as u64,
            });
            for segment in 0..train.segments {
                free = free.max(start + call_us) + gap_us + byte_ns * wire / 1e3;
                let late = late_us * random.fraction();
                receipts.push(Receipt {
                    number: message * train.segments + segment,
                    arrival: ((free + 500.0 + late) * 1e3) as u64,
                    read: 0,
                    turnaround: 0,
                    there: None,
                });
            }
        }
        (sent, receipts)
    }

    fn train(payload: usize) -> Train {
        Train {
            messages: 7 * 32,
            segments: 1,
            payload,
            burst: 32,
            interval_ns: 500_000_000,
        }
    }

    proptest! {
        #[test]
        fn finds_the_network_that_made_the_arrivals(gap in 20.0..800.0_f64, byte in 0.0..2_000.0_f64) {
            let mut points = Vec::new();
            for payload in [64, 512, 1024, 1472] {
                let plan = train(payload);
                let (sent, receipts) = served(&plan, gap, byte, 5.0, 50.0);
                let seen: Vec<f64> = spacings(&plan, &sent, &receipts).iter().map(Spacing::service_us).collect();
                prop_assert_eq!(seen.len(), 7);
                points.push(((payload + 42) as f64, median(&seen).unwrap()));
            }
            let (g, per_byte) = fit(&points).unwrap();
            // 50 us of lateness over 31 spacings, seen at four sizes.
            prop_assert!((g - gap).abs() < 2.0, "{g} for {gap}");
            prop_assert!((per_byte - byte).abs() < 2.0, "{per_byte} for {byte}");
        }
    }

    #[test]
    fn a_slow_sender_hides_the_gap() {
        let plan = train(64);
        let (sent, receipts) = served(&plan, 20.0, 0.0, 100.0, 0.0);
        let seen = spacings(&plan, &sent, &receipts);
        assert!(
            seen.iter()
                .all(|spacing| spacing.service_us() == 0.0 && (spacing.arrivals_us - 100.0).abs() < 0.1)
        );
    }

    #[test]
    fn a_message_of_many_datagrams_ends_with_its_last() {
        let plan = Train {
            segments: 10,
            ..train(1472)
        };
        let (sent, receipts) = served(&plan, 0.0, 8.0, 20.0, 0.0);
        let seen = spacings(&plan, &sent, &receipts);
        assert!(
            (seen[0].service_us() - 10.0 * 1514.0 * 0.008).abs() < 0.1,
            "{seen:?}"
        );
    }

    #[test]
    fn losses_are_counted_out() {
        let plan = train(64);
        let (sent, mut receipts) = served(&plan, 100.0, 0.0, 5.0, 0.0);
        receipts.retain(|receipt| receipt.number % 32 != 0 && receipt.number % 7 != 3);
        let seen = spacings(&plan, &sent, &receipts);
        assert!(
            seen.iter()
                .all(|spacing| (spacing.arrivals_us - 100.0).abs() < 0.1)
        );
        receipts.retain(|receipt| receipt.number == 9);
        assert!(spacings(&plan, &sent, &receipts).is_empty());
    }
}
